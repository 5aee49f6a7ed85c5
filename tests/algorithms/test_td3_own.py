"""The example of an algorithm with several networks, over the public API alone, beside the built-in TD3."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from distrl import algorithms
from distrl.algorithms.selection import tried_out
from distrl.config.load import load
from distrl.errors import ConfigError
from distrl.types import BoxSpec, DiscreteSpec, EnvSpec
from tests.algorithms import arm
from tests.algorithms.states import restore, states

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "own_algorithm.md"
RUN_HERE = "tests/algorithms/test_td3_own.py runs it"
FILE = ROOT / "examples" / "own_td3.py"
NAME = "examples.own_td3:OwnTd3"
SETTINGS = {"policy_every_updates": 2, "target_noise": 0.6, "target_noise_clip": 0.3, "target_update_rate": 0.25}
NETWORK = {"l2_regularization": 0.1, "replace_mse_with_huber_loss": True}
PUBLIC = [
    "C51",
    "A2cParameters",
    "Acer",
    "ActionScale",
    "ActorCritic",
    "Algorithm",
    "AlgorithmContext",
    "AlgorithmSection",
    "ApexParameters",
    "Appo",
    "Awac",
    "Batch",
    "Bc",
    "BootstrappedDqn",
    "Copies",
    "Cql",
    "CriticTerms",
    "Crossq",
    "Ddpg",
    "DiscreteBcq",
    "DiscreteCql",
    "DiscreteSac",
    "Dqfd",
    "Dqn",
    "EnvSpec",
    "Experience",
    "GradientAlgorithm",
    "Impala",
    "Iql",
    "Loss",
    "Marwil",
    "Naf",
    "Networks",
    "Objective",
    "Part",
    "PolicyTerms",
    "Ppo",
    "QrDqn",
    "R2d2Parameters",
    "RainbowParameters",
    "Returns",
    "Rows",
    "Sac",
    "Step",
    "StepView",
    "Td3",
    "Td3Bc",
    "TemporalDifferences",
    "Tensor",
    "Tqc",
    "TrainedNumber",
    "Trpo",
    "Update",
    "Vpg",
    "action_input",
    "batch_discounts",
    "built",
    "context_of",
    "critic_targets",
    "gae",
    "held",
    "huber",
    "learned_rewards",
    "make_algorithm",
    "masked_mean",
    "n_step",
    "policy_gradient",
    "regularization",
    "smallest",
    "smoothed_actions",
    "squared_error",
    "step_discounts",
    "value_loss",
    "vtrace",
    "weighted_sum",
]


@cache
def compiled():
    return *(made := arm.make(NAME, NETWORK, **SETTINGS)), states(made[1])


@pytest.fixture
def own(monkeypatch):
    """The algorithm and its networks as they began."""
    monkeypatch.syspath_prepend(str(ROOT))
    algorithm, networks, initial = compiled()
    restore(networks, initial)
    return algorithm, networks


def test_it_makes_the_updates_of_the_built_in_one_bit_by_bit(own):
    known, others = arm.make("td3", NETWORK, **SETTINGS)
    for seed in range(5):
        update, other = own[0].update(own[1], arm.transitions(seed)), known.update(others, arm.transitions(seed))
        assert update.metrics.items() <= other.metrics.items()
        np.testing.assert_array_equal(update.priorities, other.priorities)
    for network, groups in states(others).items():
        for group, arrays in groups.items():
            for path, array in arrays.items():
                found = states(own[1])[network][group][path]
                np.testing.assert_array_equal(found, array, err_msg=f"{network}, {group}: {path}")


def test_a_restored_training_goes_on_bit_by_bit(own):
    arm.assert_goes_on_bit_by_bit(*own)


def test_the_learning_rate_can_be_steered(own):
    algorithm, networks = own
    network = algorithm.context.network.model_copy(update={"learning_rate": 0.5})
    algorithm.steer(networks, arm.config("td3", network.model_dump(exclude_unset=True)).algorithm_context)
    assert [float(each.optimizer.learning_rate) for each in networks.values()] == [0.5, 0.5]


@pytest.mark.parametrize(
    "actions",
    [
        {"action": DiscreteSpec(2)},
        {"action": BoxSpec((1,), (None,), (1.0,))},
        {"arm": BoxSpec((1,), (-1.0,), (1.0,)), "hand": BoxSpec((1,), (-1.0,), (1.0,))},
    ],
)
def test_other_actions_are_refused(own, actions):
    with pytest.raises(ConfigError, match="OwnTd3: E must have one action within bounds"):
        type(own[0])(own[0].context).build(EnvSpec("E", arm.OBSERVATIONS, actions))


def test_sequences_are_refused_before_the_launch(own):
    given = load(sets=["algorithm.replay.item.kind=sequence"], flags={"--algorithm": NAME})
    with pytest.raises(ConfigError, match=r"algorithm\.replay\.item\.kind: sequence; OwnTd3 takes transition"):
        tried_out(given)


@pytest.mark.row("F18")
def test_the_guides_tests_pass(monkeypatch):
    """Its twin in NumPy and its finite differences; the backend is TensorFlow, as on the page."""
    monkeypatch.syspath_prepend(str(ROOT))
    (block,) = (text.split("\n```")[0] for text in GUIDE.read_text().split(f"```python norun: {RUN_HERE}\n")[1:])
    exec(compile(block, str(GUIDE), "exec"), {})


@pytest.mark.parametrize("name", ["own_td3.py", "custom_algorithm.py", "change_one_thing.py"])
def test_the_examples_use_public_names_alone(name):
    public = {"distrl", "distrl.algorithms", "distrl.errors"}
    public |= {f"distrl.config.{section}" for section in ("exploration", "heads", "replay", "schedules")}
    text = (ROOT / "examples" / name).read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("distrl"):
            assert node.module in public
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")
    assert text.count("\n") <= 125


def test_no_public_name_is_lost():
    """A name that is renamed or removed breaks algorithms of users: change this list only with a line in CHANGELOG."""
    assert algorithms.__all__ == PUBLIC
    for name in PUBLIC:
        value = getattr(algorithms, name)
        assert name in ("Networks", "Rows", "Tensor") or value is getattr(import_module(value.__module__), name)
    with pytest.raises(AttributeError, match=r"'distrl\.algorithms' has no attribute 'Impalla'"):
        algorithms.Impalla  # noqa: B018


def test_the_page_shows_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text()
    for name in PUBLIC:
        assert f"::: distrl.algorithms.{name}\n" in page or f"`{name}`" in page  # types have no docstring


def test_the_guide_quotes_the_example():
    """Every block of the guide that is a part of the example has its lines."""
    guide, known = GUIDE.read_text(), {line.strip() for line in FILE.read_text().splitlines()}
    blocks = guide.split("```python norun: lines of examples/own_td3.py\n")[1:]
    assert len(blocks) > 4
    for block in blocks:
        for line in block.split("\n```")[0].splitlines():
            assert not line or line.strip() in known, line
