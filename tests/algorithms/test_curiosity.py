"""Intrinsic rewards: novelty, its scale, and what counts. Runs on both backends (see test_backends.py)."""

import numpy as np
import pytest

from distrl.algorithms.predictors import ActionCode
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec
from tests.algorithms.curious import REAL, VECTOR, N, Recorder, T, make, make_batch
from tests.algorithms.states import assert_same, made_once, restore, states

KINDS = ["rnd", "icm"]
QUICK = {"learning_rate": 3e-3, "weight": 1.0, "clip": None}
once = made_once(make)


def recorded(kind="rnd", **settings):
    made, networks = once(curiosity={"kind": kind, **settings})
    within = made._algorithm
    recorder = made._algorithm = Recorder(within._algorithm if isinstance(within, Recorder) else within)
    return made, networks, recorder.batches


# --- novelty ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("D175")
@pytest.mark.parametrize("kind", KINDS)
def test_the_reward_of_the_same_observation_falls(kind):
    made, networks, batches = recorded(kind, **QUICK)
    batch = make_batch(networks, valid=np.ones((T, N), bool))
    for _ in range(100):
        made.update(networks, batch)
    first, last = batches[0].bonus, batches[-1].bonus
    assert (first > 0.0).all()
    assert last.mean() < 0.2 * first.mean()


@pytest.mark.row("D175")
def test_an_unseen_observation_stays_new():
    made, networks, batches = recorded(**QUICK)
    seen, unseen = (make_batch(networks, seed=seed, valid=np.ones((T, N), bool)) for seed in (0, 1))
    for _ in range(100):
        made.update(networks, seen)
    made.update(networks, unseen)
    assert batches[-1].bonus.mean() > 2.0 * batches[-2].bonus.mean()


@pytest.mark.row("D07.22", "D175")
def test_the_random_network_never_changes_and_is_another_one_than_the_predictor():
    made, networks, _ = recorded(**QUICK)
    before = {name: np.array(weight) for name, weight in networks["curiosity"].online.variables.items()}
    for seed in range(5):
        made.update(networks, make_batch(networks, seed=seed))
    after = {name: np.array(weight) for name, weight in networks["curiosity"].online.variables.items()}
    random = {name for name in before if "embedding_1" in name and "normalization" not in name}
    predictor = {name for name in before if "embedding_0" in name and "normalization" not in name}
    assert len(random) == len(predictor) == 4  # two layers
    assert all(np.array_equal(before[name], after[name]) for name in random)
    assert not any(np.array_equal(before[name], after[name]) for name in predictor)
    twins = {name.replace("embedding_0", "embedding_1") for name in predictor}
    assert twins == random
    kernel = next(name for name in sorted(predictor) if name.endswith("kernel"))
    assert not np.allclose(before[kernel], before[kernel.replace("embedding_0", "embedding_1")])


def dense(rows, weights, layer, relu):
    made = rows @ weights[f"{layer}/kernel"] + weights[f"{layer}/bias"]
    return np.maximum(made, 0.0) if relu else made


def slow_network(rows, network, prefix, head):
    """Return the output of one hidden layer and the head, in NumPy."""
    name = network.name
    weights = {key: np.array(array, np.float64) for key, array in network.online.variables.items()}
    return dense(
        dense(rows, weights, f"{name}/{prefix}middleware_dense_0", True), weights, f"{name}/{head}_head", False
    )


def slow_normalized(batch, rows):
    seen = batch.observations["observation"][:-1][batch.valid].astype(np.float64)
    return np.clip((rows - seen.mean(axis=0)) / np.sqrt(seen.var(axis=0) + 1e-8), -5.0, 5.0)


@pytest.mark.row("D175")
def test_rewards_of_rnd_against_a_slow_twin():
    made, networks, batches = recorded(weight=0.5, clip=1.2)
    batch = make_batch(networks)
    batch.observations["observation"][1, 0] = 1e6  # is cut
    network = networks["curiosity"]
    after = slow_normalized(batch, batch.observations["observation"][1:])
    predicted, wanted = (slow_network(after, network, f"embedding_{n}_", f"embedding_{n}") for n in (0, 1))
    errors = np.square(predicted - wanted).mean(axis=-1)
    deviation = np.sqrt(np.square(errors[batch.valid]).mean())
    expected = np.where(batch.valid, np.minimum(errors / deviation, 1.2), 0.0)
    told = made.update(networks, batch).metrics
    np.testing.assert_allclose(batches[0].bonus, 0.5 * expected, rtol=1e-4)
    assert told["intrinsic_deviation"] == pytest.approx(deviation, rel=1e-4)
    assert told["intrinsic_reward"] == pytest.approx(expected[batch.valid].mean(), rel=1e-4)
    assert told["predictor_loss"] == pytest.approx(errors[batch.valid].mean(), rel=1e-4)


@pytest.mark.row("D175")
def test_rewards_and_losses_of_icm_against_a_slow_twin():
    made, networks, batches = recorded("icm", weight=0.5, clip=None, beta=0.25)
    batch = make_batch(networks)
    before, after = (
        slow_network(slow_normalized(batch, rows), networks["curiosity"], "", "embedding")
        for rows in (batch.observations["observation"][:-1], batch.observations["observation"][1:])
    )
    taken = np.eye(2)[batch.actions["action"]]
    found = slow_network(np.concatenate([after, before], -1), networks["curiosity_inverse"], "", "embedding")
    led_to = slow_network(np.concatenate([before, taken], -1), networks["curiosity_forward"], "", "embedding")
    errors = 0.5 * np.square(led_to - after).sum(axis=-1)
    chances = np.exp(found) / np.exp(found).sum(axis=-1, keepdims=True)
    inverse = -np.log((chances * taken).sum(axis=-1))[batch.valid].mean()
    forward = errors[batch.valid].mean()
    deviation = np.sqrt(np.square(errors[batch.valid]).mean())
    told = made.update(networks, batch).metrics
    np.testing.assert_allclose(batches[0].bonus, np.where(batch.valid, 0.5 * errors / deviation, 0.0), rtol=1e-4)
    assert told["inverse_loss"] == pytest.approx(inverse, rel=1e-4)
    assert told["forward_loss"] == pytest.approx(forward, rel=1e-4)
    assert told["predictor_loss"] == pytest.approx(0.75 * inverse + 0.25 * forward, rel=1e-4)


@pytest.mark.row("D175")
def test_icm_finds_actions_that_show_and_is_not_paid_for_noise_that_actions_do_not_change():
    """The first number follows the action, the second is noise of the television."""
    made, networks, batches = recorded("icm", learning_rate=3e-3, weight=1.0, epochs=4)
    rng = np.random.default_rng(0)
    for _ in range(150):
        action = rng.integers(0, 2, (T, N)).astype("int32")
        moved = np.concatenate([np.zeros((1, N)), np.cumsum(2 * action - 1, axis=0)])
        rows = np.stack([moved, rng.standard_normal((T + 1, N)), np.zeros((T + 1, N))], -1).astype("float32")
        valid = np.ones((T, N), bool)
        batch = make_batch(networks, observations=VECTOR, valid=valid)._replace(
            observations={"observation": rows}, actions={"action": action}
        )
        told = made.update(networks, batch).metrics
    assert told["inverse_loss"] < 0.05
    assert batches[-1].bonus.mean() < 0.3


# --- what counts ------------------------------------------------------------------------------------------------------


@pytest.mark.row("D175")
@pytest.mark.parametrize("kind", [pytest.param("rnd", marks=pytest.mark.long), "icm"])
def test_invalid_steps_count_nowhere(kind):
    """Neither in rewards nor in statistics nor in gradients; what was recorded there changes nothing."""
    made, networks, _ = recorded(kind, epochs=2, minibatches=2)
    start, batch = states(networks), make_batch(networks)
    batch.valid[:, 0] = False
    rows = batch.observations["observation"].copy()
    rows[:, 0] = 1e3
    taken = batch.actions["action"].copy()
    taken[:, 0] = 1 - taken[:, 0]
    other = batch._replace(observations={"observation": rows}, actions={"action": taken})
    told, after = [], []
    for given in (batch, other):
        restore(networks, start)
        told.append(made.update(networks, given).metrics["intrinsic_reward"])
        after.append(states(networks))
    assert told[0] == pytest.approx(told[1], rel=1e-6)
    for name in (name for name in networks if name.startswith("curiosity")):
        for group, arrays in after[0][name].items():
            for path, array in arrays.items():
                np.testing.assert_allclose(array, after[1][name][group][path], rtol=1e-5, atol=1e-7, err_msg=path)


def test_a_batch_without_valid_steps_trains_nothing():
    made, networks, _ = recorded(**QUICK)
    told = made.update(networks, make_batch(networks, valid=np.zeros((T, N), bool))).metrics
    assert (told["intrinsic_reward"], told["intrinsic_deviation"], told["predictor_loss"]) == (0.0, 1.0, 0.0)


def test_it_is_added_after_rewards_are_normalised_clipped_and_scaled():
    """Rewards of 3 at a deviation of 2 are 1.5, cut to 1, times 0.5; the bonus is none of that."""
    settings = {"reward_normalization": {"clip": None}, "reward_clipping": "clamp_one", "reward_scale": 0.5}
    moments = {name: np.array(number) for name, number in (("count", 2.0), ("mean", 0.0), ("squares", 8.0))}
    made, networks = make("vpg", {"kind": "rnd", "weight": 3.0}, **settings, discount=0.0)
    recorder = made._algorithm = Recorder(made._algorithm)
    networks["main"].statistics.observe_rewards(moments)
    rewards = np.full((T, N), 3.0, "float32")
    batch = make_batch(networks, rewards=rewards, valid=np.ones((T, N), bool), reward_moments=moments)
    told = made.update(networks, batch).metrics
    plain, own = make("vpg", discount=0.0)
    summed = np.float32(0.5) + recorder.batches[0].bonus
    expected = plain.update(own, make_batch(own, rewards=summed, valid=np.ones((T, N), bool))).metrics
    assert told["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def test_transitions_over_several_steps_get_one_bonus():
    made, networks = make("dqn", {"kind": "rnd", "weight": 1.0}, replay={"item": {"n_step": 3}})
    recorder = made._algorithm = Recorder(made._algorithm)
    made.update(networks, make_batch(networks, "dqn", bootstrap_steps=np.full((1, N), 3, "int32")))
    assert recorder.batches[0].bonus.shape == (1, N)


# --- what it sees -----------------------------------------------------------------------------------------------------

MIXED = {
    "camera": ArraySpec((16, 16, 3), "uint8", 0, 255),
    "speed": ArraySpec((2,), "float32"),
    "words": ArraySpec((4,), "int32", vocabulary=7),
}
MANY = {
    "gear": DiscreteSpec(3),
    "knobs": MultiDiscreteSpec((2, 4), (0, 0)),
    "switches": MultiBinarySpec((3,)),
    "wheel": REAL["action"],
}


@pytest.mark.row("D175")
@pytest.mark.parametrize("kind", [pytest.param("rnd", marks=pytest.mark.long), "icm"])
def test_images_texts_and_several_actions(kind):
    made, networks = make(curiosity={"kind": kind, "learning_rate": 3e-3}, observations=MIXED, actions=MANY)
    recorder = made._algorithm = Recorder(made._algorithm)
    batch = make_batch(networks, observations=MIXED, actions=MANY, valid=np.ones((T, N), bool))
    for _ in range(40):
        made.update(networks, batch)
    batches = recorder.batches
    assert batches[-1].bonus.mean() < 0.5 * batches[0].bonus.mean()


def test_observations_that_the_policy_does_not_see_are_left_out():
    seen = {"observation": VECTOR["observation"], "noise": ArraySpec((2,), "float32")}
    network = {"input_embedders_parameters": {"noise": None}}
    made, networks = make(curiosity={"kind": "rnd"}, observations=seen, network=network)
    assert [name for name, _ in networks["curiosity"].online.normalizations] == ["observation"] * 2
    assert made.update(networks, make_batch(networks, observations=seen)).metrics["finite"]


def test_a_network_with_memory_stays_with_the_policy():
    memory = {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 4}}
    made, networks = make(curiosity={"kind": "icm"}, network=memory)
    assert networks["main"].online.recurrent_state
    assert not any(networks[name].online.recurrent_state for name in networks if name != "main")
    assert made.update(networks, make_batch(networks)).metrics["finite"]


def test_actions_as_one_vector():
    code = ActionCode(EnvSpec("x", VECTOR, MANY | {"free": BoxSpec((1,), (None,), (3.0,))}))
    assert (code.choices, code.width) == ((3, 2, 4, 2, 2, 2), 18)
    taken = {
        "gear": np.array([1], "int32"),
        "knobs": np.array([[0, 3]], "int32"),
        "switches": np.array([[1, 0, 1]], "int32"),
        "wheel": np.float32([[-5.0, 0.75]]),  # the first beyond its bound -2
        "free": np.float32([[7.0]]),  # beyond 3
    }
    expected = [0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1, -1.0, 0.5, 3.0]
    np.testing.assert_allclose(np.array(code(taken)), [expected])


# --- a training that goes on ------------------------------------------------------------------------------------------


@pytest.mark.row("D175", "Q03")
@pytest.mark.parametrize("kind", [pytest.param("rnd", marks=pytest.mark.long), "icm"])
def test_a_resumed_training_goes_on_bit_by_bit(kind):
    settings = {"kind": kind, "epochs": 2, "minibatches": 4}
    made, networks = make(curiosity=settings)
    for seed in range(3):
        made.update(networks, make_batch(networks, seed=seed))
    saved = {name: network.state_arrays() for name, network in networks.items()}
    resumed, others = make(curiosity=settings, seed=1)
    for name, network in others.items():
        network.restore(saved[name])
    for seed in (3, 4):
        told = made.update(networks, make_batch(networks, seed=seed)).metrics
        assert told == resumed.update(others, make_batch(others, seed=seed)).metrics
    assert_same(states(networks), states(others))


def test_the_weight_changes_between_two_updates():
    made, networks, batches = recorded(weight=0.5)
    made.update(networks, make_batch(networks))
    changed = made.parameters.curiosity.model_copy(update={"weight": 0.0})
    parameters = made.parameters.model_copy(update={"curiosity": changed, "entropy_weight": 0.25})
    context = made.context
    made.steer(networks, type(context)(**{**vars(context), "parameters": parameters}))
    made.update(networks, make_batch(networks))
    assert batches[0].bonus.any()
    assert not batches[1].bonus.any()
    assert made._algorithm._coefficients["entropy_weight"].numpy() == 0.25


def test_a_predictor_that_is_not_finite_refuses_the_update():
    made, networks, _ = recorded(**QUICK)
    batch = make_batch(networks)
    batch.observations["observation"][1, 0] = np.nan
    before = states(networks)
    assert made.update(networks, batch).metrics["finite"] is False
    assert_same(before, states(networks))


def test_a_batch_after_a_refused_one_is_learned_from():
    made, networks, _ = recorded(**QUICK)
    made.update(networks, make_batch(networks))
    batch = make_batch(networks, seed=1)
    bias = next(
        variable for variable in networks["curiosity"].online.model.trainable_variables if "bias" in variable.path
    )
    good = np.array(bias)
    bias.assign(np.full(bias.shape, 3e38, np.float32))
    assert made.update(networks, batch).metrics["finite"] is False
    bias.assign(good)
    told = made.update(networks, batch).metrics
    assert told["finite"] is True
    assert np.isfinite(told["intrinsic_deviation"])
    assert told["intrinsic_reward"] > 0.0


def test_the_masks_of_an_ensemble_are_the_algorithms():
    network = {"heads_parameters": [{"kind": "ensemble_q", "members": 3}]}
    assert make("bootstrapped_dqn", {"kind": "rnd"}, bootstrap_probability=0.5, network=network)[0].bootstrap == (
        3,
        0.5,
    )
    assert make("ppo", {"kind": "rnd"})[0].bootstrap is None
