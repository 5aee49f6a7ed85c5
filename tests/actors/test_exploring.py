"""An actor's exploration: all actions together, each in its way, and what moves or restarts it."""

import numpy as np
import pytest
from pydantic import TypeAdapter

from distrl.actors.exploring import Exploration
from distrl.actors.exploring.explorers import ActorRows
from distrl.config.exploration import ExplorationParameters
from distrl.config.schedules import Progress
from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.beta import BetaSpec
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.joint import ActionSelector
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.networks.actions.values import ValuesSpec
from distrl.types import BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

read = TypeAdapter(ExplorationParameters).validate_python

ROWS = 100_000
LOW, HIGH = (-2.0, 0.5), (2.0, 3.5)
BOX = BoxSpec((2,), LOW, HIGH)
ACTIONS = {
    "turn": DiscreteSpec(3),
    "best": DiscreteSpec(4),
    "gears": MultiDiscreteSpec((2, 4), (0, 0)),
    "switches": MultiBinarySpec((3,)),
    "force": BOX,
    "arm": BOX,
    "valve": BOX,
}
SPECS = {
    "turn": CategoricalSpec(3),
    "best": ValuesSpec(4, "q/q"),
    "gears": MultiCategoricalSpec((2, 4)),
    "switches": BernoulliSpec(3),
    "force": GaussianSpec(2),
    "arm": SquashedGaussianSpec(LOW, HIGH),
    "valve": BetaSpec(LOW, HIGH),
}
POLICIES = [name for name in SPECS if name != "best"]


def constant(value):
    return {"kind": "constant", "value": value}


def exploration(given, names=("turn",), environments=ROWS):
    specs, actions = {name: SPECS[name] for name in names}, {name: ACTIONS[name] for name in names}
    return Exploration(None if given is None else read(given), specs, actions, ActorRows(0, 1, environments))


def output(name):
    return "q/q" if name == "best" else f"policy/{name}"


def tiled(name, parameters, rows=ROWS):
    return {output(name): np.tile(np.array(parameters, np.float32), (rows, 1))}


def drawn(names, rows, seed=1):
    rng = np.random.default_rng(seed)
    return {output(name): rng.normal(size=(rows, SPECS[name].parameters_size)).astype(np.float32) for name in names}


@pytest.mark.row("D83", "D84")
@pytest.mark.parametrize("given", [None, {"kind": "policy"}, {"kind": "noisy_network"}, {"kind": "parameter_noise"}])
def test_without_exploration_the_policy_draws(given):
    """The same numbers from the same generator, bit for bit."""
    outputs = drawn(POLICIES, 50)
    explored = exploration(given, POLICIES, 50).sample(outputs, np.random.default_rng(3))
    plain = ActionSelector({name: SPECS[name] for name in POLICIES}).sample(outputs, np.random.default_rng(3))
    for name in POLICIES:
        np.testing.assert_array_equal(explored[0][name], plain[0][name])
    np.testing.assert_array_equal(explored[1], plain[1])


@pytest.mark.row("D84")
def test_samples_of_a_gaussian_policy_have_its_deviation():
    outputs = tiled("force", [1.0, -1.0, np.log(0.5), np.log(2.0)])
    actions, _ = exploration({"kind": "policy"}, ["force"]).sample(outputs, np.random.default_rng(0))
    np.testing.assert_allclose(actions["force"].std(axis=0), [0.5, 2.0], rtol=0.01)


@pytest.mark.row("D86")
def test_greedy_takes_the_best():
    given = {"kind": "greedy"}
    outputs = tiled("turn", [1, 3, 2], 4) | tiled("force", [0.5, -0.5, 3, 3], 4)
    actions, log_probabilities = exploration(given, ["turn", "force"], 4).sample(outputs, np.random.default_rng(0))
    assert actions["turn"].tolist() == [1] * 4
    assert actions["force"].tolist() == [[0.5, -0.5]] * 4
    assert log_probabilities.tolist() == [0.0] * 4


@pytest.mark.row("D81")
@pytest.mark.parametrize(
    ("temperature", "p"), [(1.0, [0.2689, 0.7311, 0.0, 0.0]), (0.1, [4.5398e-5, 0.99995, 0.0, 0.0])]
)
def test_boltzmann_draws_from_values_by_temperature(temperature, p):
    explorer = exploration({"kind": "boltzmann", "temperature": constant(temperature)}, ["best"])
    actions, log_probabilities = explorer.sample(tiled("best", [1, 2, -1e4, -1e4]), np.random.default_rng(0))
    frequencies = np.bincount(actions["best"], minlength=4) / ROWS
    np.testing.assert_allclose(frequencies, p, atol=0.005 if temperature == 1.0 else 1e-4)
    np.testing.assert_allclose(np.exp(log_probabilities), np.array(p)[actions["best"]], rtol=2e-4)


@pytest.mark.row("D81")
def test_boltzmann_does_not_overflow():
    explorer = exploration({"kind": "boltzmann", "temperature": constant(1e-6)}, ["best"], 5)
    with np.errstate(over="raise", invalid="raise"):
        actions, log_probabilities = explorer.sample(tiled("best", [1e38, 2e38, -3e38, 0], 5), np.random.default_rng(0))
    assert actions["best"].tolist() == [1] * 5
    assert log_probabilities.tolist() == [0.0] * 5
    assert log_probabilities.dtype == np.float32


def test_boltzmann_tempers_policies_of_choices_and_switches():
    names, rows = ["turn", "gears", "switches"], 200
    given = {"kind": "boltzmann", "temperature": {"kind": "linear", "start": 1.0, "end": 4.0, "steps": 2}}
    given["temperature"]["counts"] = "updates"
    explorer, outputs = exploration(given, names, rows), drawn(names, rows)
    explorer.move_to(Progress(0, 0, 2))
    tempered = {name: array / 4 for name, array in outputs.items()}
    selector = ActionSelector({name: SPECS[name] for name in names})
    explored = explorer.sample(outputs, np.random.default_rng(3))
    plain = selector.sample(tempered, np.random.default_rng(3))
    for name in names:
        np.testing.assert_array_equal(explored[0][name], plain[0][name])
    np.testing.assert_allclose(explored[1], plain[1], rtol=1e-5)


@pytest.mark.row("K10")
def test_every_action_is_explored_in_a_way_of_its_own():
    """`turn` by epsilon, `force` by an Ornstein-Uhlenbeck process, `arm` as the policy draws."""
    given = {
        "per_action": {
            "turn": {"kind": "epsilon_greedy", "epsilon": constant(0.5)},
            "force": {"kind": "ornstein_uhlenbeck", "sigma": 0.0, "mean": 1.0, "dt": 1.0},
        }
    }
    explorer = exploration(given, ["turn", "force", "arm"])
    outputs = tiled("turn", [9e3, 0, 0]) | tiled("force", [0, 1, 0, 0]) | tiled("arm", [0, 0, 0, 0])
    rng = np.random.default_rng(0)
    explorer.sample(outputs, rng)
    actions, log_probabilities = explorer.sample(outputs, rng)
    np.testing.assert_allclose(np.bincount(actions["turn"]) / ROWS, [2 / 3, 1 / 6, 1 / 6], atol=0.005)
    second = 0.15 + 0.15 * 0.85  # what the process has come to
    np.testing.assert_allclose(actions["force"], np.tile([second, 1 + second], (ROWS, 1)), rtol=1e-5)
    assert actions["arm"].std(axis=0) == pytest.approx(0.628 * np.array([2.0, 1.5]), rel=0.02)  # of tanh N(0, 1)
    of_turn = np.log(np.array([2 / 3, 1 / 6, 1 / 6]))[actions["turn"]]
    of_arm = SPECS["arm"].sampler().log_probability(outputs["policy/arm"], actions["arm"])
    np.testing.assert_allclose(log_probabilities, of_turn + of_arm, rtol=1e-4, atol=1e-5)


@pytest.mark.row("D22")
def test_actions_are_random_until_enough_steps_are_made():
    names = ["turn", "gears", "switches", "arm"]
    explorer = exploration({"kind": "policy", "random_steps": 100}, names)
    outputs = {}
    for name in names:
        outputs |= tiled(name, np.full(SPECS[name].parameters_size, -9.0))
    explorer.move_to(Progress(99))
    actions, log_probabilities = explorer.sample(outputs, np.random.default_rng(0))
    np.testing.assert_allclose(actions["switches"].mean(axis=0), 1 / 2, atol=0.01)
    np.testing.assert_allclose(actions["arm"].mean(axis=0), [0.0, 2.0], atol=0.02)
    np.testing.assert_allclose(log_probabilities, -np.log(3 * 2 * 4 * 8 * 4 * 3), rtol=1e-5)
    explorer.move_to(Progress(100))
    actions, _ = explorer.sample(outputs, np.random.default_rng(0))
    assert actions["switches"].mean() < 0.001  # the policy's: e^-9
    explorer.reset()
    assert explorer.sample(outputs, np.random.default_rng(0))[0]["switches"].mean() == pytest.approx(0.5, abs=0.01)


def test_it_changes_while_training_and_remembers_how_far_that_is():
    made = exploration({"kind": "boltzmann", "temperature": {"kind": "linear", "start": 4.0, "end": 1.0, "steps": 100}})
    made.move_to(Progress(100))
    explorer = made._explorers["turn"]
    made.change(read({"kind": "boltzmann", "temperature": {"kind": "linear", "start": 4.0, "end": 1.0, "steps": 100}}))
    assert made._explorers["turn"] is explorer  # nothing is forgotten where nothing changes
    made.change(read({"kind": "boltzmann", "temperature": {"kind": "linear", "start": 4.0, "end": 2.0, "steps": 200}}))
    logits = tiled("turn", [0.0, 1.0, 2.0])  # by a temperature of 3, halfway after 100 steps
    actions, log_probabilities = made.sample(logits, np.random.default_rng(1))
    tempered = np.exp(np.array([0.0, 1.0, 2.0]) / 3.0)
    np.testing.assert_allclose(log_probabilities, np.log(tempered / tempered.sum())[actions["turn"]], rtol=1e-5)


def test_episodes_begin_anew_after_rows_that_are_not_valid():
    given = {"kind": "ornstein_uhlenbeck", "sigma": 0.0, "mean": 1.0, "dt": 1.0}
    explorer = exploration(given, ["force"], 2)
    outputs, rng = tiled("force", [0, 1, 0, 0], 2), np.random.default_rng(0)
    seen = []
    for valid in ([True, True], [True, False], [True, True]):
        seen.append(explorer.sample(outputs, rng)[0]["force"][:, 0])
        explorer.follow(np.array(valid))
    expected = [[0.15, 0.15], [0.2775, 0.2775], [0.385875, 0.15]]
    np.testing.assert_allclose(seen, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "epsilon_greedy", "epsilon": {"kind": "ladder"}},
        {"kind": "epsilon_greedy", "epsilon": {"kind": "by_episode"}},
        {"per_action": {"force": {"kind": "ornstein_uhlenbeck"}, "arm": {"kind": "gaussian_noise"}}, "random_steps": 5},
    ],
)
def test_a_reset_makes_the_same_actions_again(given):
    names = ["turn", "force", "arm", "valve"]
    explorer, outputs = exploration(given, names, 6), drawn(names, 6)

    def act():
        explorer.reset()
        rng, found = np.random.default_rng(5), []
        for step in range(12):
            actions, log_probabilities = explorer.sample(outputs, rng)
            found.append(np.concatenate([array.ravel() for array in (*actions.values(), log_probabilities)]))
            explorer.follow(np.arange(6) != step)
            explorer.move_to(Progress(step))
        return np.array(found)

    first = act()
    np.testing.assert_array_equal(act(), first)
    assert len(np.unique(first, axis=0)) == 12
