"""Checks that an exploration fits the actions and the network; `actors/exploring/` implements each exploration."""

from collections.abc import Mapping

from distrl.config.exploration import (
    ActionExploration,
    ExplorationParameters,
    MemberParameters,
    NoiseSection,
    NoisyNetworkParameters,
    ParameterNoiseParameters,
    PerActionParameters,
    PolicySamplingParameters,
    TruncatedGaussianNoiseParameters,
    UcbParameters,
)
from distrl.errors import ConfigError
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.ensemble import EnsembleSpec
from distrl.networks.actions.family import UndrawnFamily
from distrl.types import ActionSpec, BoxSpec


def of_each(
    exploration: ExplorationParameters | None, distributions: Mapping[str, FamilySpec]
) -> dict[str, ActionExploration]:
    """Return action -> its exploration, without actions that only follow the policy."""
    match exploration:
        case None | PolicySamplingParameters() | NoisyNetworkParameters() | ParameterNoiseParameters():
            return {}
        case PerActionParameters(per_action=given):
            return {action: one for action, one in given.items() if not isinstance(one, PolicySamplingParameters)}
        case _:
            return dict.fromkeys(distributions, exploration)


def check_exploration(
    exploration: ExplorationParameters | None,
    distributions: Mapping[str, FamilySpec],
    actions: Mapping[str, ActionSpec],
    *,
    has_noisy_layers: bool,
) -> None:
    """Raise ConfigError, with a remedy, if the exploration does not fit the network or an action."""
    if exploration is None:
        return
    if isinstance(exploration, PerActionParameters) and (odd := sorted(exploration.per_action.keys() - actions.keys())):
        raise ConfigError(f"exploration.per_action: {odd[0]} is no action of the environment, which has {[*actions]}")
    if isinstance(exploration, NoisyNetworkParameters) and not has_noisy_layers:
        raise ConfigError(
            "exploration.kind: noisy_network needs a network with noisy layers; "
            "set dense_layer: noisy_dense, or use parameter_noise"
        )
    for action, spec in distributions.items():
        if isinstance(spec, UndrawnFamily):
            _check_explored(exploration, action, spec)
    for action, one in of_each(exploration, distributions).items():
        _check_action(one, action, actions[action])
        _check_ensemble(one, action, distributions[action])
    if exploration.random_steps:
        for action, taken in actions.items():
            if _is_unbounded(taken):
                raise ConfigError(
                    f"exploration.random_steps: action {action} has no finite bounds to draw from; "
                    "set it to 0, or bound the environment's action space"
                )


def _check_explored(exploration: ExplorationParameters, action: str, spec: UndrawnFamily) -> None:
    """Refuse to follow the distribution of an action that has none."""
    given = exploration.per_action.get(action) if isinstance(exploration, PerActionParameters) else exploration
    if given is None:
        raise ConfigError(
            f"exploration.per_action: action {action} is not named, and has {spec.holds} and no distribution "
            f"to follow; name it, with {spec.explored_by}"
        )
    if isinstance(given, PolicySamplingParameters):
        raise _unfit(given, action, f"has {spec.holds} and no distribution; use {spec.explored_by}")


def _check_action(exploration: ActionExploration, action: str, spec: ActionSpec) -> None:
    continuous = isinstance(spec, BoxSpec)
    if isinstance(exploration, NoiseSection | TruncatedGaussianNoiseParameters):
        if not continuous:
            raise _unfit(exploration, action, f"is {spec.kind}, and noise needs real numbers; use epsilon_greedy")
        if isinstance(exploration, TruncatedGaussianNoiseParameters):
            if _is_unbounded(spec):
                raise _unfit(exploration, action, "has no finite bounds to stay within; use gaussian_noise")
        elif exploration.unit == "range" and _is_unbounded(spec):
            raise _unfit(exploration, action, "has no finite bounds to scale noise by; set unit: action")
    elif exploration.kind == "boltzmann" and continuous:
        raise _unfit(exploration, action, "has real numbers and no choices; use policy, epsilon_greedy or noise")
    elif exploration.kind == "epsilon_greedy" and _is_unbounded(spec):
        raise _unfit(exploration, action, "has no finite bounds to draw from; use gaussian_noise")


def _check_ensemble(exploration: ActionExploration, action: str, spec: FamilySpec) -> None:
    """Refuse an ensemble's exploration where there is none, and others where there is one."""
    of_ensemble = isinstance(exploration, MemberParameters | UcbParameters)
    if of_ensemble and not isinstance(spec, EnsembleSpec):
        raise _unfit(
            exploration, action, "has no ensemble of values; use algorithm bootstrapped_dqn, or epsilon_greedy"
        )
    if isinstance(spec, EnsembleSpec) and not of_ensemble and exploration.kind != "greedy":
        raise _unfit(exploration, action, f"has {spec.holds}; use {spec.explored_by}")


def _unfit(exploration: ActionExploration, action: str, why: str) -> ConfigError:
    return ConfigError(f"exploration.kind: {exploration.kind} does not fit: action {action} {why}")


def _is_unbounded(spec: ActionSpec) -> bool:
    return isinstance(spec, BoxSpec) and (None in spec.low or None in spec.high)
