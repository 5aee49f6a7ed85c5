"""Networks and environments that an algorithm cannot train are refused by its section."""

import pytest

from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

CHOICE = {"action": DiscreteSpec(2)}
REAL = {"action": BoxSpec((1,), (-1.0,), (1.0,))}
LSTM = {"middleware_parameters": {"kind": "lstm"}}
SEQUENCES = {"replay": {"item": {"kind": "sequence"}}}


def make(algorithm, network=None, **sections):
    return RunConfig.model_validate({"algorithm": algorithm, "network": network or {}, **sections})


@pytest.mark.parametrize(
    ("algorithm", "environments", "message"),
    [
        ({"name": "crossq"}, 64, r"algorithm crossq learns from single transitions; use fc"),
        ({"name": "naf"}, 64, r"algorithm naf learns from single transitions; use fc"),
        ({"name": "sac"}, 64, "transition has no recurrent state, and .*: lstm has memory; use sequence"),
        ({"name": "dqn"}, 64, "transition has no recurrent state, and .*: lstm has memory; use sequence"),
        (
            {"name": "ppo", "minibatches": 4},
            3,
            r"algorithm.minibatches: 4 equal parts cannot be made of the 6 sequences of a batch "
            r"\(.*; a network with memory learns from whole sequences\)",
        ),
    ],
)
def test_a_network_with_memory_is_refused_where_it_cannot_be_trained(algorithm, environments, message):
    with pytest.raises(ValueError, match=message):
        make(algorithm, LSTM, actors={"environments": environments})


def test_layers_of_critics_take_the_place_of_a_scheme():
    graph = {"kind": "graph", "blocks": {"output": {"inputs": ["observation"], "layers": [8]}}}
    with pytest.raises(
        ValueError, match=r"algorithm\.critic_layers: takes the place of an fc middleware's scheme, and"
    ):
        make({"name": "sac", "critic_layers": [8]}, {"middleware_parameters": graph})
    make({"name": "sac"}, {"middleware_parameters": graph})
    make({"name": "sac", "critic_layers": [8]}, {"middleware_parameters": {"scheme": [4]}})


@pytest.mark.parametrize(
    ("algorithm", "environments"),
    [({"name": "dqn", **SEQUENCES}, 64), ({"name": "ppo", "minibatches": 4}, 4), ({"name": "impala"}, 3)],
)
def test_a_network_with_memory_is_taken_where_it_can(algorithm, environments):
    make(algorithm, LSTM, actors={"environments": environments})


@pytest.mark.parametrize(
    ("name", "action", "message"),
    [
        ("sac", DiscreteSpec(2), "is discrete, which it does not take; use algorithm discrete_sac"),
        ("td3", MultiBinarySpec((2,)), "is multi_binary, which it does not take; use algorithm impala"),
        (
            "sac",
            BoxSpec((1,), (0.0,), (None,)),
            "has the bounds [0, inf], by which it cannot be scaled to [-1, 1]; bound the environment's action space, "
            "or use algorithm impala",
        ),
        *(
            (
                name,
                BoxSpec((2,), (-1.0, low), (1.0, high)),
                f"has the bounds [{low:g}, {high:g}], by which it cannot be scaled to [-1, 1]; bound the environment's "
                "action space, or use algorithm impala",
            )
            for name, low, high in (
                ("sac", -3e38, 3e38),
                ("tqc", -1.7e38, 1.7e38),
                ("crossq", -1e31, 0.0),
                ("td3", -3e38, 3e38),
                ("ddpg", -1e31, 0.0),
                ("naf", 0.0, 1e-40),
            )
        ),
        (
            "td3",
            BoxSpec((2,), (-1.0, 1.0), (1.0, 1.0)),
            "has equal lower and upper bounds; remove such actions from the environment's space",
        ),
        ("dqn", BoxSpec((1,), (-1.0,), (1.0,)), "is box, and only choices have values; use algorithm sac or ppo"),
    ],
)
def test_actions_that_it_cannot_choose_are_refused_by_name(name, action, message):
    spec = EnvSpec("Arm-v0", {"observation": ArraySpec((3,), "float32")}, {"action": action})
    with pytest.raises(ConfigError) as refused:
        make({"name": name}).algorithm.check_actions(spec)
    assert str(refused.value) == f"algorithm {name}: action 'action' of Arm-v0 {message}"


@pytest.mark.parametrize("name", ["rainbow", "discrete_sac", "acer"])
def test_where_one_choice_is_needed_the_step_that_makes_it_is_named(name):
    for several in (MultiDiscreteSpec((2, 3), (0, 0)), MultiBinarySpec((4,))):
        spec = EnvSpec("Arm-v0", {"observation": ArraySpec((3,), "float32")}, {"action": several})
        with pytest.raises(
            ConfigError, match=r", or make one choice of all by environment\.preprocessing=\[\{step: map_discrete\}\]$"
        ):
            make({"name": name}).algorithm.check_actions(spec)


@pytest.mark.parametrize("name", ["ddpg", "td3", "naf"])
def test_several_actions_are_refused_where_the_network_has_one(name):
    arms = {"left": BoxSpec((1,), (-1.0,), (1.0,)), "right": BoxSpec((1,), (-1.0,), (1.0,))}
    spec = EnvSpec("Arms-v0", {"observation": ArraySpec((3,), "float32")}, arms)
    make({"name": "sac"}).algorithm.check_actions(spec)
    with pytest.raises(ConfigError) as refused:
        make({"name": name}).algorithm.check_actions(spec)
    assert str(refused.value) == (
        f"algorithm {name}: Arms-v0 has the actions left, right, and it takes a single one; use algorithm sac"
    )


@pytest.mark.parametrize(("name", "actions"), [("sac", REAL), ("dqn", CHOICE), ("ppo", REAL), ("impala", CHOICE)])
def test_other_actions_are_not(name, actions):
    spec = EnvSpec("Arm-v0", {"observation": ArraySpec((3,), "float32")}, actions)
    make({"name": name}).algorithm.check_actions(spec)
