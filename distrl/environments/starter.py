"""A first configuration for an environment, from what a check of it has found."""

from collections.abc import Iterable
from typing import Any

import yaml

from distrl.config.environment import EnvironmentConfig, info_word
from distrl.environments.check import CheckedEpisode, CheckedSpaces, Finding, Infos
from distrl.types import ArraySpec, EnvSpec

ALGORITHM = "ppo"
"""Takes every kind of action, and masks."""
_BUDGET_ENV_STEPS = 500_000
_WIDE, _LARGE_REWARD = 10.0, 10.0
"""Numbers beyond these are normalised: bounds of an observation, and the mean size of a reward."""
_SUCCESS = "is_success"  # has a column of its own


def starter(config: EnvironmentConfig, findings: Iterable[Finding]) -> str:
    """Return a configuration in YAML, with comments that say why.

    Args:
        config: The environment that was checked.
        findings: Of `check.check_environment`.
    """
    tree: dict[str, Any] = {"environment": {"id": config.id, **config.model_dump(mode="json", exclude_defaults=True)}}
    tree["algorithm"], tree["network"], tree["stop"] = {"name": ALGORITHM}, {}, {"env_steps": _BUDGET_ENV_STEPS}
    episodes: list[CheckedEpisode] = []
    why = [f"A first configuration for {config.id}, from three episodes with random actions: distrl train FILE"]
    for finding in findings:
        if isinstance(finding, CheckedSpaces):
            why += _from_spaces(tree, finding)
        elif isinstance(finding, Infos):
            why += _from_infos(tree, finding)
        elif isinstance(finding, CheckedEpisode):
            episodes.append(finding)
    why += _from_episodes(tree, episodes)
    text: str = yaml.safe_dump(
        {name: part for name, part in tree.items() if part}, sort_keys=False, allow_unicode=True, width=120
    )
    return "".join(f"# {line}\n" for line in why) + text


def _from_spaces(tree: dict[str, Any], found: CheckedSpaces) -> Iterable[str]:
    wide = [name for name, array in found.spec.observations.items() if name != found.mask and _is_wide(array)]
    if wide:
        tree["network"]["input_embedders_parameters"] = {name: {"normalize": True} for name in wide}
        yield f"normalize: the numbers of {', '.join(wide)} have no bounds, or wide ones"
    if found.mask is not None:
        tree["network"]["heads_parameters"] = [{"kind": ALGORITHM, "action_mask": found.mask}]
        yield f"action_mask: {found.mask} has a number for each choice"
    yield from _goal(tree, found.spec)


def _goal(tree: dict[str, Any], spec: EnvSpec) -> Iterable[str]:
    if spec.reward_threshold is not None:
        tree["stop"]["mean_return"] = spec.reward_threshold
        yield "stop.mean_return: the environment's own threshold"


def _is_wide(array: ArraySpec) -> bool:
    is_number = array.one_hot is None and array.vocabulary is None and len(array.shape) != 3
    bounds = (array.low, array.high)
    return is_number and any(bound is None or abs(bound) > _WIDE for bound in bounds)


def _from_infos(tree: dict[str, Any], found: Infos) -> Iterable[str]:
    columns = {info_word(name): name for name in found.numbers if name != _SUCCESS}
    added = {name: "last" for name in columns.values() if name not in tree["environment"].get("metrics", {})}
    if added:
        tree["environment"]["metrics"] = tree["environment"].get("metrics", {}) | added
        yield "metrics: numbers of info, of each episode's last step; sum, mean, max and min are the other ways"


def _from_episodes(tree: dict[str, Any], episodes: list[CheckedEpisode]) -> Iterable[str]:
    steps = sum(episode.length_steps for episode in episodes)
    size = sum(abs(episode.total) for episode in episodes) / max(steps, 1)
    if size > _LARGE_REWARD:
        tree["algorithm"]["reward_normalization"] = {"kind": "discounted_return"}
        yield f"reward_normalization: rewards are about {size:,.3g} in size"
