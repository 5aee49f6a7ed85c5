"""SAC against a slow NumPy twin, and what each of its losses moves. Runs on TensorFlow and JAX."""

import math

import keras
import numpy as np
import pytest

from distrl.algorithms import make_algorithm
from distrl.errors import CheckpointError, ConfigError
from distrl.types import BoxSpec, DiscreteSpec, EnvSpec
from tests.algorithms import arm
from tests.algorithms.arm import GAMMA, HIGH, LOW, SCALE, SPEC, N, drawn, transitions
from tests.algorithms.states import assert_same, states
from tests.traces import traces

ALPHA = 0.3


def make(network=None, spec=SPEC, **algorithm):
    return arm.make("sac", network, spec, initial_temperature=ALPHA, **algorithm)


fresh = arm.fresh_build("sac", initial_temperature=ALPHA)


def values(copy, observation, scaled):
    return np.stack(copy.predict({"observation": observation, "action": scaled}))


def twin(networks, batch, noises):
    """Every loss and gradient-free number of one update, row by row."""
    main, critic = networks["main"], networks["critic"]
    before, after = batch.observations["observation"]
    alpha, target_entropy, rows = 0.3, -2.0, {"policy": [], "critic": [], "temperature": [], "priorities": [], "y": []}
    actions, log_p = drawn(main, before, noises[0])
    next_actions, next_log_p = drawn(main, after, noises[1])
    taken = (batch.actions["action"][0] - (HIGH + LOW) / 2) / ((HIGH - LOW) / 2)
    at_drawn, at_taken = (values(critic.online, before, scaled) for scaled in (actions, taken))
    at_next = values(critic.target, after, next_actions)
    for i in range(N):
        y = SCALE * batch.rewards[0, i]
        if not batch.terminated[0, i]:
            y += GAMMA ** batch.bootstrap_steps[0, i] * (min(at_next[:, i]) - alpha * next_log_p[i])
        weight = batch.importance_weights[i]
        rows["critic"].append(weight * 0.5 * ((y - at_taken[0, i]) ** 2 + (y - at_taken[1, i]) ** 2))
        rows["policy"].append(weight * (alpha * log_p[i] - min(at_drawn[:, i])))
        rows["temperature"].append(-weight * alpha * (log_p[i] + target_entropy))
        rows["y"].append(y)
        rows["priorities"].append(0.5 * (abs(y - at_taken[0, i]) + abs(y - at_taken[1, i])))
    return (
        {name: np.array(of_rows) for name, of_rows in rows.items()},
        -log_p.mean(),
        arm.of_critics(rows["y"], at_taken),
    )


@pytest.mark.row("D169")
def test_every_loss_is_that_of_a_slow_twin(fresh):
    """Bootstraps after truncation and not after termination, over one and two steps, with importance weights."""
    algorithm, networks = fresh
    networks["critic"].target.set_weights([weight + 0.1 for weight in networks["critic"].target.get_weights()])
    batch, seeds = transitions(), keras.random.SeedGenerator(3)
    noises = [np.asarray(keras.random.normal((N, 2), seed=seeds)) for _ in range(2)]
    online, target = (getattr(networks["critic"], copy).get_weights() for copy in ("online", "target"))
    mixed = [weight.trainable for weight in networks["critic"].online.model.weights]
    followed = [
        0.005 * fast + 0.995 * slow if rate else fast for fast, slow, rate in zip(online, target, mixed, strict=True)
    ]
    networks["critic"].target.set_weights(followed)
    rows, entropy, critics = twin(networks, batch, noises)
    networks["critic"].target.set_weights(target)
    update = algorithm.update(networks, batch)
    arm.assert_soft_update(update, rows, entropy, critics, ALPHA)
    for slow, expected, trained in zip(networks["critic"].target.get_weights(), followed, mixed, strict=True):
        if trained:
            np.testing.assert_allclose(slow, expected, rtol=1e-6)


def test_each_loss_moves_its_own_variables_alone(fresh):
    algorithm, _ = fresh
    arm.assert_each_loss_moves_its_own_variables_alone(algorithm, transitions())
    # d/d log alpha of mean(-alpha (log pi + target)), without importance weights
    batch = transitions(importance_weights=np.ones(N, np.float32))
    told, of_temperature = arm.assert_each_loss_moves_its_own_variables_alone(algorithm, batch)
    assert of_temperature == pytest.approx(0.3 * (float(told["entropy"]) + 2.0), rel=1e-5)


def test_rates_are_those_of_the_section():
    """The target copy, each optimizer, and the temperature move; it falls while entropy exceeds its target."""
    rates = {"target_update_rate": 0.25, "critic_learning_rate": 0.002, "temperature_learning_rate": 0.1}
    algorithm, networks = make(target_entropy=-20.0, **rates)
    main, critic = networks["main"], networks["critic"]
    assert [float(network.optimizer.learning_rate) for network in (main, critic)] == pytest.approx([0.01, 0.002])
    target = critic.online.get_weights()
    trained = [index for index, weight in enumerate(critic.online.model.weights) if weight.trainable]
    for seed in range(3):
        fast = critic.online.get_weights()
        metrics = algorithm.update(networks, transitions(seed)).metrics
        target = [0.25 * new + 0.75 * old for new, old in zip(fast, target, strict=True)]
    assert math.log(metrics["temperature"] / 0.3) == pytest.approx(-0.2, abs=0.02)
    slow = critic.target.get_weights()
    for index in trained:
        np.testing.assert_allclose(slow[index], target[index], rtol=1e-5)
    assert traces(algorithm._step) == 1


def test_a_temperature_with_the_learning_rate_0_stays():
    algorithm, networks = make(target_entropy=-20.0, temperature_learning_rate=0.0)
    told = [algorithm.update(networks, transitions(seed)).metrics["temperature"] for seed in range(3)]
    assert told == pytest.approx([0.3] * 3, rel=1e-6)


def test_without_rates_of_their_own_all_learn_at_the_networks(fresh):
    assert [float(network.optimizer.learning_rate) for network in fresh[1].values()] == pytest.approx([0.01, 0.01])
    assert float(fresh[0]._step._compiled._parts[2].optimizer.learning_rate) == pytest.approx(0.01)


def test_the_unit_of_actions_changes_nothing(fresh):
    """The same environment in millimetres."""
    low, high = (tuple(1000.0 * float(bound) for bound in bounds) for bounds in (LOW, HIGH))
    other, others = make(spec=EnvSpec("Arm-v0", SPEC.observations, {"action": BoxSpec((2,), low, high)}))
    algorithm, networks = fresh
    for seed in range(3):
        batch = transitions(seed)
        scaled = batch._replace(actions={"action": batch.actions["action"] * np.float32(1000.0)})
        expected = algorithm.update(networks, batch).metrics
        assert other.update(others, scaled).metrics == pytest.approx(expected, rel=1e-3)


def test_an_update_that_is_not_finite_changes_nothing(fresh):
    algorithm, networks = fresh
    algorithm.update(networks, transitions())
    before = states(networks)
    bad = transitions(1, rewards=np.full((1, N), np.nan, "float32"))
    assert algorithm.update(networks, bad).metrics["finite"] is False
    assert_same(states(networks), before)


def test_a_restored_training_goes_on_bit_by_bit(fresh):
    """Weights, target, three optimizers' moments, temperature, statistics and the generator of the noise."""
    algorithm, networks = fresh
    arm.assert_goes_on_bit_by_bit(algorithm, networks)
    saved = states(networks)
    assert list(saved["main"]) == ["online", "temperature", "noise", "optimizer", "statistics"]
    assert list(saved["critic"]) == ["online", "target", "optimizer", "statistics"]
    with pytest.raises(CheckpointError, match="the checkpoint has"):
        networks["main"].restore({group: arrays for group, arrays in saved["main"].items() if group != "temperature"})


def test_both_critics_start_apart_and_have_the_structure_of_the_section(fresh):
    weights = fresh[1]["critic"].online.model.trainable_variables
    first, second = ([weight for weight in weights if f"q_value_{index}_" in weight.path] for index in (0, 1))
    for critic in (first, second):
        assert [tuple(weight.shape) for weight in critic] == [(5, 8), (8,), (8, 1), (1,)]
    assert [np.array_equal(one, other) for one, other in zip(first, second, strict=True)] == [False, True, False, True]


def test_actors_get_the_policy_alone(fresh):
    _, networks = fresh
    assert all(name.startswith("main/") for name in networks["main"].online.policy_weights())
    assert list(networks["main"].online.outputs) == ["policy/action"]
    assert networks["main"].online.actions["action"].kind == "squashed_gaussian"


@pytest.mark.row("P07.3")
def test_several_boxes_are_one_action():
    actions = {"arm": BoxSpec((2,), (-1.0, -1.0), (1.0, 1.0)), "hand": BoxSpec((1,), (0.0,), (4.0,))}
    algorithm, networks = make(spec=EnvSpec("Robot-v0", SPEC.observations, actions))
    rng = np.random.default_rng(0)
    given = {"arm": rng.uniform(-1, 1, (1, N, 2)).astype("float32"), "hand": rng.random((1, N, 1)).astype("float32")}
    told = algorithm.update(networks, transitions(actions=given)).metrics
    # Near uniform at first: tanh of a standard normal has 0.60 nats less than log 2 each on average.
    assert told["entropy"] == pytest.approx(3 * 0.6, abs=1.0)
    assert networks["critic"].online.model.trainable_variables[0].shape == (3 + 2 + 1, 8)


@pytest.mark.parametrize(
    ("network", "algorithm", "message"),
    [
        (
            {"heads_parameters": [{"kind": "policy", "distribution": "beta"}]},
            {},
            "network.heads_parameters: policy: distribution: algorithm sac needs squashed_gaussian, not beta; leave it "
            "out",
        ),
        (
            {"heads_parameters": [{"kind": "value"}]},
            {},
            "network.heads_parameters: value: algorithm sac has the heads policy; leave value out",
        ),
    ],
)
def test_what_cannot_work_is_refused(network, algorithm, message):
    with pytest.raises(ConfigError) as refused:
        make(network, **algorithm)
    assert str(refused.value) == message


def test_choices_are_refused_with_what_to_use():
    spec = EnvSpec("CartPole-v1", SPEC.observations, {"action": DiscreteSpec(2)})
    with pytest.raises(ConfigError, match="is discrete, which it does not take; use algorithm discrete_sac"):
        make(spec=spec)


def test_update_before_build_is_an_error():
    with pytest.raises(RuntimeError, match="before build"):
        make_algorithm(arm.config("sac")).update({}, transitions())
