"""Every kind of exploration fits an action of every kind, or is refused in one line."""

import pytest
from pydantic import TypeAdapter

from distrl.config.exploration import ExplorationParameters
from distrl.errors import ConfigError
from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.deterministic import DeterministicSpec
from distrl.networks.actions.ensemble import EnsembleSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.networks.actions.values import MultiValuesSpec, ValuesSpec
from distrl.networks.policy.exploration_checks import check_exploration, of_each
from distrl.types import BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

read = TypeAdapter(ExplorationParameters).validate_python

SPACES = {
    "values": (DiscreteSpec(3), ValuesSpec(3, "q/q")),
    "ensemble": (DiscreteSpec(3), EnsembleSpec(3, 2, "ensemble_q/q")),
    "several_values": (MultiDiscreteSpec((2, 3), (0, 0)), MultiValuesSpec((2, 3), "q/q")),
    "discrete": (DiscreteSpec(3), CategoricalSpec(3)),
    "multi_discrete": (MultiDiscreteSpec((2, 3), (0, 0)), MultiCategoricalSpec((2, 3))),
    "multi_binary": (MultiBinarySpec((4,)), BernoulliSpec(4)),
    "box": (BoxSpec((1,), (-1.0,), (1.0,)), SquashedGaussianSpec((-1.0,), (1.0,))),
    "deterministic": (BoxSpec((1,), (-1.0,), (1.0,)), DeterministicSpec((-1.0,), (1.0,), "deterministic_policy")),
    "unbounded": (BoxSpec((2,), (-1.0, None), (1.0, 1.0)), GaussianSpec(2)),
}
WITH_LOGITS = ("discrete", "multi_discrete", "multi_binary")
CHOICES, NUMBERS = ("values", "several_values", *WITH_LOGITS), ("box", "unbounded")
FITS = {
    "policy": (*WITH_LOGITS, *NUMBERS),
    "member": ("ensemble",),
    "ucb": ("ensemble",),
    "greedy": ("ensemble", *CHOICES, *NUMBERS, "deterministic"),
    "epsilon_greedy": (*CHOICES, "box", "deterministic"),
    "boltzmann": CHOICES,
    "gaussian_noise": ("box", "deterministic"),
    "truncated_gaussian_noise": ("box", "deterministic"),
    "ornstein_uhlenbeck": (*NUMBERS, "deterministic"),
    "constant_noise": (*NUMBERS, "deterministic"),
    "noisy_network": ("ensemble", *CHOICES, *NUMBERS, "deterministic"),
    "parameter_noise": ("ensemble", *CHOICES, *NUMBERS, "deterministic"),
}


def check(given, *spaces, noisy=True):
    names = dict(zip("abc", spaces, strict=False))
    check_exploration(
        read(given),
        {name: SPACES[space][1] for name, space in names.items()},
        {name: SPACES[space][0] for name, space in names.items()},
        has_noisy_layers=noisy,
    )


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("kind", FITS)
def test_a_kind_fits_or_is_refused(kind, space):
    if space in FITS[kind]:
        check({"kind": kind}, space)
        return
    with pytest.raises(ConfigError) as raised:
        check({"kind": kind}, space)
    assert str(raised.value).startswith(f"exploration.kind: {kind} does not fit: action a ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("space", SPACES)
def test_random_steps_want_bounds(space):
    if space != "unbounded":
        return check({"kind": "greedy", "random_steps": 5}, space)
    with pytest.raises(ConfigError, match="random_steps: action a has no finite bounds to draw from"):
        check({"kind": "greedy", "random_steps": 5}, space)


@pytest.mark.row("D80")
@pytest.mark.parametrize(
    ("given", "spaces", "line"),
    [
        (
            {"kind": "gaussian_noise"},
            ["unbounded"],
            "exploration.kind: gaussian_noise does not fit: action a has no finite bounds to scale noise by; "
            "set unit: action",
        ),
        (
            {"kind": "truncated_gaussian_noise"},
            ["unbounded"],
            "exploration.kind: truncated_gaussian_noise does not fit: action a has no finite bounds to stay within; "
            "use gaussian_noise",
        ),
        (
            {"kind": "constant_noise"},
            ["box", "discrete"],
            "exploration.kind: constant_noise does not fit: action b is discrete, and noise needs real numbers; "
            "use epsilon_greedy",
        ),
        (
            {"kind": "policy"},
            ["values"],
            "exploration.kind: policy does not fit: action a has values of choices and no distribution; "
            "use epsilon_greedy or boltzmann",
        ),
        (
            {"kind": "policy"},
            ["deterministic"],
            "exploration.kind: policy does not fit: action a has one action per state and no distribution; "
            "use gaussian_noise, ornstein_uhlenbeck or greedy",
        ),
        (
            {"kind": "noisy_network"},
            ["discrete"],
            "exploration.kind: noisy_network needs a network with noisy layers; set dense_layer: noisy_dense, "
            "or use parameter_noise",
        ),
        pytest.param(
            {"per_action": {"a": {"kind": "epsilon_greedy"}}},
            ["values", "discrete", "several_values"],
            "exploration.per_action: action c is not named, and has values of choices and no distribution to follow; "
            "name it, with epsilon_greedy or boltzmann",
            marks=pytest.mark.row("K10"),
        ),
        pytest.param(
            {"per_action": {"turn": {"kind": "greedy"}}},
            ["discrete", "box"],
            "exploration.per_action: turn is no action of the environment, which has ['a', 'b']",
            marks=pytest.mark.row("K10"),
        ),
        pytest.param(
            {"per_action": {"a": {"kind": "boltzmann"}, "b": {"kind": "boltzmann"}}},
            ["discrete", "box"],
            "exploration.kind: boltzmann does not fit: action b has real numbers and no choices; "
            "use policy, epsilon_greedy or noise",
            marks=pytest.mark.row("K10"),
        ),
    ],
)
def test_a_refusal_says_what_would_do(given, spaces, line):
    with pytest.raises(ConfigError) as raised:
        check(given, *spaces, noisy=False)
    assert str(raised.value) == line


def test_noise_in_the_actions_unit_needs_no_bounds():
    check({"kind": "gaussian_noise", "unit": "action"}, "unbounded")


@pytest.mark.row("K10")
def test_actions_are_explored_each_in_its_way():
    distributions = {"a": CategoricalSpec(2), "b": GaussianSpec(1), "c": CategoricalSpec(3)}
    given = read(
        {"per_action": {"a": {"kind": "epsilon_greedy"}, "b": {"kind": "ornstein_uhlenbeck"}, "c": {"kind": "policy"}}}
    )
    assert {action: one.kind for action, one in of_each(given, distributions).items()} == {
        "a": "epsilon_greedy",
        "b": "ornstein_uhlenbeck",
    }
    assert {*of_each(read({"kind": "greedy"}), distributions)} == {"a", "b", "c"}
    for plain in (None, read({"kind": "policy"}), read({"kind": "noisy_network"}), read({"kind": "parameter_noise"})):
        assert of_each(plain, distributions) == {}
