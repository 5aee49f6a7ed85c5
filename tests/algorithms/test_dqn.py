"""DQN's loss by hand, and what an update does to the network and its target."""

import numpy as np
import pytest
import tensorflow as tf

from distrl.algorithms import make_algorithm
from distrl.algorithms.algorithm import PRIORITIES
from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.networks.actions.values import MultiValuesSpec, ValuesSpec
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec, MultiDiscreteSpec

OBSERVATIONS = {"observation": ArraySpec((3,), "float32")}
SPEC = EnvSpec("toy", OBSERVATIONS, {"action": DiscreteSpec(2)})
TWO = {"left": ValuesSpec(2, "q/q/left"), "right": ValuesSpec(2, "q/q/right")}


def make(network=None, name="dqn", **algorithm):
    network = {"middleware_parameters": {"scheme": [8]}, "learning_rate": 0.01} | (network or {})
    return make_algorithm(RunConfig.model_validate({"algorithm": {"name": name, **algorithm}, "network": network}))


def transitions(rewards, actions=None, **fields):
    rewards = np.array([rewards], np.float32)  # [1, N]
    count = rewards.shape[1]
    rng = np.random.default_rng(0)
    given = {
        "observations": {"observation": rng.standard_normal((2, count, 3)).astype(np.float32)},
        "actions": {"action": np.zeros((1, count), np.int32)} if actions is None else actions,
        "rewards": rewards,
        "terminated": np.zeros((1, count), bool),
        "truncated": np.zeros((1, count), bool),
        "valid": np.ones((1, count), bool),
        "behaviour_log_probabilities": np.zeros((1, count), np.float32),
        "recurrent_state": {},
        "bootstrap_steps": np.ones((1, count), np.int32),
        "importance_weights": np.ones(count, np.float32),
    }
    return Batch(**(given | fields))


def compute(algorithm, batch, online, target, choices=None):
    """Term, metrics and the gradients of the online values; each of `online` and `target` [2, N, A], or by output."""
    algorithm.choices = choices or {"action": ValuesSpec(2, "q/q")}  # which `build` knows
    online = online if isinstance(online, dict) else {"q/q": online}
    target = target if isinstance(target, dict) else {"q/q": target}
    given = {name: tf.constant(np.array(values, np.float32)) for name, values in online.items()}
    slow = {f"target/{name}": tf.constant(np.array(values, np.float32)) for name, values in target.items()}
    with tf.GradientTape() as tape:
        tape.watch(given)
        terms, metrics = algorithm.loss({**given, **slow}, batch)
    assert list(terms) == ["q"]
    gradients = {name: gradient.numpy() for name, gradient in tape.gradient(terms["q"], given).items()}
    return float(terms["q"]), {name: np.asarray(value) for name, value in metrics.items()}, gradients


@pytest.mark.row("D150", "H02", "P07.2")
def test_loss_by_hand():
    """y = 1 + .99 x 3 = 3.97, and 1 where terminated; Q(o, 0) = 2: errors 1.97 and -1, (1.97^2 + 1) / 2."""
    online = [[[2.0, 9.0], [2.0, 9.0]], [[0.0, 0.0], [0.0, 0.0]]]
    target = [[[7.0, 7.0], [7.0, 7.0]], [[1.0, 3.0], [1.0, 3.0]]]
    batch = transitions([1.0, 1.0], terminated=np.array([[False, True]]))
    loss, metrics, gradients = compute(make(), batch, online, target)
    assert loss == pytest.approx((1.97**2 + 1.0) / 2, rel=1e-5)
    assert metrics == {
        "td_loss": pytest.approx(loss),
        "mean_q": pytest.approx(2.0),
        "mean_target": pytest.approx(4.97 / 2, rel=1e-5),
        "mean_td_error": pytest.approx(2.97 / 2, rel=1e-5),
    }
    # only the choice that was made is moved: -2 error / N
    expected = np.zeros((2, 2, 2), np.float32)
    expected[0, :, 0] = [-1.97, 1.0]
    np.testing.assert_allclose(gradients["q/q"], expected, rtol=1e-5)


@pytest.mark.row("D151", "H02", "G15")
def test_double_bootstraps_from_the_online_networks_choice():
    """argmax Q = 0 by [5, 1], valued 1 by [1, 3]: y = 1.99, error 1.99 - 0."""
    batch = transitions([1.0])
    online, target = [[[0.0, 0.0]], [[5.0, 1.0]]], [[[7.0, 7.0]], [[1.0, 3.0]]]
    assert compute(make(double=True), batch, online, target)[0] == pytest.approx(1.99**2, rel=1e-5)
    assert compute(make(), batch, online, target)[0] == pytest.approx(3.97**2, rel=1e-5)


@pytest.mark.row("H02", "D157")
def test_the_bootstrap_after_three_steps_is_discounted_three_times():
    """gamma .9: .9^3 = .729; of two transitions one has but two steps, as its episode was truncated: .81."""
    batch = transitions([2.62, 1.0], bootstrap_steps=np.array([[3, 2]], np.int32))
    online, target = np.zeros((2, 2, 2)), np.broadcast_to([2.0, 1.0], (2, 2, 2))
    algorithm = make(discount=0.9, replay={"item": {"n_step": 3}})
    loss, metrics, _ = compute(algorithm, batch, online, target)
    errors = np.array([2.62 + 0.729 * 2.0, 1.0 + 0.81 * 2.0])
    assert loss == pytest.approx(np.mean(errors**2), rel=1e-5)
    assert metrics["mean_td_error"] == pytest.approx(np.mean(errors), rel=1e-5)


@pytest.mark.row("D157")
def test_over_a_sequence_the_target_reaches_n_steps_ahead():
    """Rewards 1, 0, 2, gamma .9, V 2 at the end: [4.078, 3.42, 3.8]."""
    rows = np.ones((3, 1), bool)
    batch = Batch(
        observations={"observation": np.zeros((4, 1, 3), np.float32)},
        actions={"action": np.zeros((3, 1), np.int32)},
        rewards=np.array([[1.0], [0.0], [2.0]], np.float32),
        terminated=~rows,
        truncated=~rows,
        valid=rows,
        behaviour_log_probabilities=np.zeros((3, 1), np.float32),
        recurrent_state={},
    )
    algorithm = make(discount=0.9, replay={"item": {"n_step": 3}})
    loss, _, _ = compute(algorithm, batch, np.zeros((4, 1, 2)), np.full((4, 1, 2), 2.0))
    assert loss == pytest.approx(np.mean(np.array([4.078, 3.42, 3.8]) ** 2), rel=1e-5)
    one_step = make(discount=0.9)
    loss, _, _ = compute(one_step, batch, np.zeros((4, 1, 2)), np.full((4, 1, 2), 2.0))
    assert loss == pytest.approx(np.mean(np.array([2.8, 1.8, 3.8]) ** 2), rel=1e-5)


@pytest.mark.row("H02", "G31")
def test_huber_is_linear_beyond_an_error_of_one():
    batch = transitions([0.5, 3.0], terminated=np.array([[True, True]]))
    loss, _, gradients = compute(
        make({"replace_mse_with_huber_loss": True}), batch, np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    )
    assert loss == pytest.approx((0.125 + 2.5) / 2)
    np.testing.assert_allclose(gradients["q/q"][0, :, 0], [-0.25, -0.5])  # -clip(error, -1, 1) / N


def test_importance_weights_multiply_each_items_loss_and_not_its_error():
    batch = transitions(
        [1.0, 2.0], terminated=np.array([[True, True]]), importance_weights=np.array([1.0, 0.25], np.float32)
    )
    loss, metrics, _ = compute(make(), batch, np.zeros((2, 2, 2)), np.zeros((2, 2, 2)))
    assert loss == pytest.approx((1.0 + 0.25 * 4.0) / 2)
    assert metrics["mean_td_error"] == pytest.approx(1.5)


def test_rewards_are_scaled_before_the_bootstrap_is_added():
    batch = transitions([1.0])
    loss, _, _ = compute(make(reward_scale=0.1, discount=0.5), batch, np.zeros((2, 1, 2)), np.full((2, 1, 2), 3.0))
    assert loss == pytest.approx((0.1 + 0.5 * 3.0) ** 2, rel=1e-5)


def test_what_is_not_valid_has_no_loss():
    batch = transitions([1.0, 100.0], terminated=np.ones((1, 2), bool), valid=np.array([[True, False]]))
    loss, metrics, gradients = compute(make(), batch, np.zeros((2, 2, 2)), np.full((2, 2, 2), 3.0))
    assert loss == pytest.approx(1.0)
    assert metrics["mean_td_error"] == pytest.approx(1.0)
    np.testing.assert_array_equal(gradients["q/q"][0, :, 0], [-2.0, 0.0])


@pytest.mark.row("H15", "H02", "T19")
def test_of_several_actions_errors_are_averaged_after_squaring():
    """Both share y = 1 + .5 (3 + 1) / 2 = 2; Q = 1 and 3 are off by +1 and -1: the loss is 1, not 0."""
    batch = transitions([1.0], actions={name: np.zeros((1, 1), np.int32) for name in TWO})
    online = {"q/q/left": [[[1.0, 9.0]], [[0.0, 0.0]]], "q/q/right": [[[3.0, 9.0]], [[0.0, 0.0]]]}
    target = {"q/q/left": [[[0.0, 0.0]], [[3.0, 2.0]]], "q/q/right": [[[0.0, 0.0]], [[0.0, 1.0]]]}
    loss, metrics, gradients = compute(make(discount=0.5), batch, online, target, TWO)
    assert loss == pytest.approx(1.0)
    assert metrics["mean_td_error"] == pytest.approx(1.0)
    assert metrics["mean_q"] == pytest.approx(2.0)
    np.testing.assert_allclose(gradients["q/q/left"][0], [[-1.0, 0.0]])
    np.testing.assert_allclose(gradients["q/q/right"][0], [[1.0, 0.0]])


@pytest.mark.row("G31", "D150", "A19", "D25")
def test_the_defaults_are_the_ancestors():
    parameters = make().parameters
    assert (parameters.batch_size, parameters.target_update_every_updates) == (32, 10_000)
    assert (parameters.target_update_rate, parameters.double, parameters.discount) == (1.0, False, 0.99)
    assert make().context.network.replace_mse_with_huber_loss is False
    assert parameters.replay.samples_per_insert == 32 / 4  # 4 steps per update


@pytest.mark.row("D152", "G15")
def test_dueling_selects_the_head():
    networks = make(dueling=True).build(SPEC)
    assert set(networks["main"].online.outputs) == {"dueling_q/q", "dueling_q/softmax"}
    assert make(dueling=True).update is not None
    plain = make({"heads_parameters": [{"kind": "dueling_q"}]})
    with pytest.raises(ConfigError, match="algorithm dqn has the heads q"):
        plain.build(SPEC)


@pytest.mark.row("G14")
def test_an_update_moves_values_towards_their_targets():
    """Everything terminates: values become the rewards; those of choices that were never made stay different."""
    algorithm = make(target_update_every_updates=1, target_update_rate=0.05)
    networks = algorithm.build(SPEC)
    rewards = np.array([1.0, -1.0, 2.0, 0.5], np.float32)
    actions = {"action": np.array([[0, 1, 0, 1]], np.int32)}
    batch = transitions(rewards, actions, terminated=np.ones((1, 4), bool))
    first = algorithm.td_loss(networks, batch)
    for _ in range(300):
        algorithm.update(networks, batch)
    last = algorithm.td_loss(networks, batch)
    assert first.shape == (4,)
    assert last.max() < 1e-3 < first.max()
    q = networks["main"].online.predict({"observation": batch.observations["observation"][0]}, ["q/q"])
    np.testing.assert_allclose(q[np.arange(4), actions["action"][0]], rewards, atol=0.05)


@pytest.mark.row("G16")
def test_the_loss_of_each_item_without_an_update():
    algorithm = make(double=True)
    networks = algorithm.build(SPEC)
    batch = transitions([1.0, 2.0, 3.0], importance_weights=np.array([1.0, 0.0, 5.0], np.float32))
    before = {name: copy.get_weights() for name, copy in networks["main"].by_name.items()}
    losses = algorithm.td_loss(networks, batch)
    for name, copy in networks["main"].by_name.items():
        for old, new in zip(before[name], copy.get_weights(), strict=True):
            np.testing.assert_array_equal(new, old)
    rows = {"observation": batch.observations["observation"]}
    now, then = (networks["main"].online.predict({"observation": rows["observation"][t]}, ["q/q"]) for t in (0, 1))
    expected = (np.array([1.0, 2.0, 3.0]) + 0.99 * then.max(axis=1) - now[:, 0]) ** 2  # both copies are equal yet
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


@pytest.mark.row("G08")
@pytest.mark.parametrize(("every", "rate"), [(3, 1.0), (1, 0.25), (2, 0.5)])
def test_when_and_how_far_the_target_network_moves(every, rate):
    algorithm = make(target_update_every_updates=every, target_update_rate=rate)
    networks = algorithm.build(SPEC)
    main, batch = networks["main"], transitions([1.0, 2.0])
    for count in range(1, 7):
        before = main.target.get_weights()
        algorithm.update(networks, batch)
        share = rate if count % every == 0 else 0.0
        for old, new, online in zip(before, main.target.get_weights(), main.online.get_weights(), strict=True):
            np.testing.assert_allclose(new, share * online + (1.0 - share) * old, rtol=1e-5, atol=1e-7)


def test_a_resumed_training_goes_on_counting():
    """In a training resumed after two of three updates, the next one moves the target."""
    first = make(target_update_every_updates=3)
    networks, batch = first.build(SPEC), transitions([1.0, 2.0])
    for _ in range(2):
        first.update(networks, batch)
    second = make(target_update_every_updates=3)
    resumed = second.build(SPEC)
    resumed["main"].restore(networks["main"].state_arrays())
    before = resumed["main"].target.get_weights()
    second.update(resumed, batch)
    moved = zip(before, resumed["main"].target.get_weights(), resumed["main"].online.get_weights(), strict=True)
    assert all(np.array_equal(new, online) and not np.array_equal(new, old) for old, new, online in moved)


def test_an_update_that_was_refused_does_not_count():
    algorithm = make(target_update_every_updates=1)
    networks = algorithm.build(SPEC)
    before = networks["main"].target.get_weights()
    assert not algorithm.update(networks, transitions([np.nan])).metrics["finite"]
    for old, new in zip(before, networks["main"].target.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


def test_one_trace_serves_all_updates():
    algorithm = make(target_update_every_updates=2)
    networks = algorithm.build(SPEC)
    traced = []
    loss = algorithm.loss
    algorithm._step = networks["main"].train_step(lambda *given: traced.append(1) or loss(*given))
    for reward in (1.0, 2.0, 3.0):
        algorithm.update(networks, transitions([reward, reward]))
    assert len(traced) == 1


def test_head_settings_count():
    """`loss_weight` scales the gradient, noisy layers draw anew for every update."""
    batch = transitions([1.0, 2.0])
    norms = []
    for weight in (1.0, 0.5):
        algorithm = make({"heads_parameters": [{"kind": "q", "loss_weight": weight}]})
        norms.append(algorithm.update(algorithm.build(SPEC), batch).metrics["gradient_norm"])
    assert norms[1] == pytest.approx(0.5 * norms[0], rel=1e-4)
    noisy = make({"heads_parameters": [{"kind": "q", "dense_layer": "noisy_dense"}], "learning_rate": 1e-9})
    networks = noisy.build(SPEC)
    first, second = (noisy.update(networks, batch).metrics["loss"] for _ in range(2))
    assert abs(first - second) > 1e-4


def test_several_choices_at_once_learn_from_one_network():
    spec = EnvSpec("many", OBSERVATIONS, {"gear": DiscreteSpec(3), "keys": MultiDiscreteSpec((2, 4), (0, 0))})
    algorithm = make(dueling=True, target_update_every_updates=10)
    networks = algorithm.build(spec)
    assert algorithm.choices == {
        "gear": ValuesSpec(3, "dueling_q/q/gear"),
        "keys": MultiValuesSpec((2, 4), "dueling_q/q/keys"),
    }
    rng = np.random.default_rng(1)
    actions = {"gear": rng.integers(0, 3, (1, 6)), "keys": rng.integers(0, 2, (1, 6, 2))}
    batch = transitions(
        [1.0, -1.0, 2.0, 0.0, 0.5, 3.0],
        {name: array.astype(np.int32) for name, array in actions.items()},
        terminated=np.ones((1, 6), bool),
    )
    for _ in range(300):
        algorithm.update(networks, batch)
    assert algorithm.td_loss(networks, batch).max() < 1e-2


def test_real_numbers_are_refused():
    spec = EnvSpec("box", OBSERVATIONS, {"go": DiscreteSpec(2), "steer": BoxSpec((1,), (-1.0,), (1.0,))})
    with pytest.raises(ConfigError, match="head q: needs choices to value; action 'steer' is of real numbers"):
        make().build(spec)


def test_uniform_replay_gets_no_priorities():
    algorithm = make()
    update = algorithm.update(algorithm.build(SPEC), transitions([1.0]))
    assert update.priorities is None
    assert PRIORITIES not in update.metrics


@pytest.mark.row("G16")
def test_apex_is_dqn_with_all_of_it():
    parameters = make(name="apex").parameters
    assert (parameters.double, parameters.dueling, parameters.replay.item.n_step) == (True, True, 3)
    assert parameters.replay.sampler.kind == "prioritized"
    assert parameters.replay.samples_per_insert is None
    assert parameters.unroll_extras == ("priorities",)
    assert not make().parameters.unroll_extras
    for sampler in ({"kind": "uniform"}, {"kind": "prioritized", "new_items_first": True}):
        assert not make(name="apex", replay={"sampler": sampler}).parameters.unroll_extras
    assert parameters.exploration.epsilon.kind == "ladder"
    assert type(make(name="apex")) is type(make())


def test_a_rescaled_target_by_hand():
    """h(3) = 1.003 is the best of the target network: y = 1 + .99 x 3 = 3.97, h(y) = sqrt 4.97 - 1 + .00397."""
    online = [[[0.5, 9.0]], [[0.0, 0.0]]]
    target = [[[7.0, 7.0]], [[1.003, -1.0]]]
    loss, metrics, _ = compute(make(value_rescaling=True), transitions([1.0]), online, target)
    error = np.sqrt(4.97) - 1.0 + 0.00397 - 0.5
    assert loss == pytest.approx(error**2, rel=1e-4)
    assert metrics["mean_td_error"] == pytest.approx(error, rel=1e-4)


def test_r2d2_is_apex_with_memory():
    parameters = make(LSTM, name="r2d2").parameters
    assert (parameters.double, parameters.dueling, parameters.value_rescaling) == (True, True, True)
    assert (parameters.replay.item.kind, parameters.replay.item.n_step) == ("sequence", 5)
    given = make(LSTM, name="r2d2", replay={"item": {"burn_in_steps": 4}}).parameters.replay.item
    assert (given.kind, given.n_step, given.burn_in_steps) == ("sequence", 5, 4)
    assert parameters.replay.sampler.kind == "prioritized"
    assert (parameters.unroll_extras, parameters.rescales_values) == (("priorities",), True)
    assert parameters.exploration.epsilon.kind == "ladder"
    assert type(make(LSTM, name="r2d2")) is type(make())
    with pytest.raises(ValueError, match="fc has no memory, and r2d2 learns what a recurrent network needs; use lstm"):
        make(name="r2d2")


def squashed(value):
    """h of Pohlen et al. 2018, section 3.2."""
    return np.sign(value) * (np.sqrt(abs(value) + 1.0) - 1.0) + 0.001 * value


def stretched(value):
    """The inverse of h by bisection."""
    low, high = -1e6, 1e6
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if squashed(middle) < value else (low, middle)
    return middle


@pytest.mark.parametrize("seed", range(3))
def test_rescaled_targets_of_sequences_are_the_papers(seed):
    """y = h(sum_{i<n} gamma^i r + gamma^n h^-1(Q_target(o_{t+n}, argmax Q))), step by step; n = 2."""
    rng = np.random.default_rng(seed)
    steps, count, gamma = 5, 3, 0.9
    online, target = rng.normal(0.0, 2.0, (2, steps + 1, count, 2)).astype(np.float32)
    rewards = rng.normal(0.0, 3.0, (steps, count)).astype(np.float32)
    terminated = rng.random((steps, count)) < 0.3
    made = rng.integers(0, 2, (steps, count)).astype(np.int32)
    item = {"kind": "sequence", "n_step": 2}
    algorithm = make(double=True, value_rescaling=True, discount=gamma, replay={"item": item})
    batch = transitions(np.zeros(count))._replace(
        actions={"action": made},
        rewards=rewards,
        terminated=terminated,
        truncated=np.zeros_like(terminated),
        valid=np.ones_like(terminated),
        bootstrap_steps=None,
    )
    loss, _, _ = compute(algorithm, batch, online, target)

    errors = []
    for t, n in np.ndindex(steps, count):
        best = [stretched(target[u, n, int(np.argmax(online[u, n]))]) for u in range(steps + 1)]
        reached = min(t + 2, steps)
        y = best[reached]
        for u in reversed(range(t, reached)):
            y = rewards[u, n] + gamma * (not terminated[u, n]) * y
        errors.append(squashed(y) - online[t, n, made[t, n]])
    assert loss == pytest.approx(np.mean(np.square(errors)), rel=1e-3)


def test_r2d2_learns_from_sequences_with_a_burn_in():
    item = {"kind": "sequence", "burn_in_steps": 2, "n_step": 3}
    algorithm = make(LSTM, name="r2d2", replay={"item": item}, target_update_every_updates=1)
    networks = algorithm.build(SPEC)
    batch = sequences(networks)
    losses = [algorithm.update(networks, batch).metrics["td_loss"] for _ in range(300)]
    assert losses[-1] < 0.02 * losses[0]


@pytest.mark.row("O05", "G16")
def test_prioritised_replay_gets_the_size_of_each_items_error():
    """Errors 1.97 and -1, as by hand above; of several choices the mean of their sizes."""
    online = [[[2.0, 9.0], [2.0, 9.0]], [[0.0, 0.0], [0.0, 0.0]]]
    target = [[[7.0, 7.0], [7.0, 7.0]], [[1.0, 3.0], [1.0, 3.0]]]
    batch = transitions([1.0, 1.0], terminated=np.array([[False, True]]))
    prioritized = make(replay={"sampler": {"kind": "prioritized"}})
    _, metrics, _ = compute(prioritized, batch, online, target)
    np.testing.assert_allclose(metrics[PRIORITIES], [1.97, 1.0], rtol=1e-5)
    update = make(name="apex")
    networks = update.build(SPEC)
    told = update.update(networks, batch)
    assert told.priorities.shape == (2,)
    assert PRIORITIES not in told.metrics


LSTM = {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 4}}


def sequences(networks, steps=5, count=3):
    """Each second row ends an episode."""
    rng = np.random.default_rng(0)
    rows = (steps, count)
    states = networks["main"].online.recurrent_state
    return Batch(
        observations={"observation": rng.standard_normal((steps + 1, count, 3)).astype(np.float32)},
        actions={"action": rng.integers(0, 2, rows).astype(np.int32)},
        rewards=rng.standard_normal(rows).astype(np.float32),
        terminated=np.ones(rows, bool),
        truncated=np.zeros(rows, bool),
        valid=np.tile(np.arange(steps)[:, None] % 2 == 0, (1, count)),
        behaviour_log_probabilities=np.zeros(rows, np.float32),
        recurrent_state={name: np.zeros((count, *spec.shape), np.float32) for name, spec in states.items()},
        importance_weights=np.ones(count, np.float32),
    )


def test_a_network_with_memory_learns_from_sequences():
    """DRQN (Hausknecht and Stone 2015): the state that was stored, then the rows in order."""
    algorithm = make(LSTM, replay={"item": {"kind": "sequence"}})
    networks = algorithm.build(SPEC)
    batch = sequences(networks)
    losses = [algorithm.update(networks, batch).metrics["td_loss"] for _ in range(200)]
    assert losses[-1] < 0.02 * losses[0]


@pytest.mark.row("O05")
def test_a_prioritised_sequence_has_the_priority_of_its_steps():
    """Errors of (1, 3) and of (2, not valid): .9 x 3 + .1 x 2 = 2.9, and 2; weights multiply whole sequences."""
    algorithm = make(replay={"item": {"kind": "sequence"}, "sampler": {"kind": "prioritized"}})
    rows = np.zeros((2, 2), bool)
    batch = Batch(
        observations={"observation": np.zeros((3, 2, 3), np.float32)},
        actions={"action": np.zeros((2, 2), np.int32)},
        rewards=np.array([[1.0, 2.0], [-3.0, 7.0]], np.float32),
        terminated=~rows,
        truncated=rows,
        valid=np.array([[True, True], [True, False]]),
        behaviour_log_probabilities=np.zeros((2, 2), np.float32),
        recurrent_state={},
        importance_weights=np.float32([1.0, 0.5]),
    )
    loss, metrics, _ = compute(algorithm, batch, np.zeros((3, 2, 2)), np.zeros((3, 2, 2)))
    np.testing.assert_allclose(metrics[PRIORITIES], [2.9, 2.0], rtol=1e-6)
    assert loss == pytest.approx((1.0 + 9.0 + 0.5 * 4.0) / 3)


def test_the_loss_sees_nothing_of_a_burn_in_but_the_state_that_it_leads_to():
    """An update is the same whatever was done and paid in the first two rows, and another one if they show others."""
    item = {"kind": "sequence", "burn_in_steps": 2}

    def updated(**changes):
        algorithm = make(LSTM, replay={"item": item, "sampler": {"kind": "prioritized"}})
        networks = algorithm.build(SPEC)
        batch = sequences(networks)
        valid = np.ones_like(batch.valid)
        update = algorithm.update(networks, batch._replace(valid=valid, **changes))
        assert update.priorities.shape == (3,)
        return networks["main"].online.get_weights(), update.metrics["td_loss"]

    unchanged = sequences(make(LSTM, replay={"item": item}).build(SPEC))
    rewards, seen = unchanged.rewards.copy(), unchanged.observations["observation"].copy()
    rewards[:2] += 100.0
    seen[:2] += 1.0
    actions = {"action": unchanged.actions["action"].copy()}
    actions["action"][:2] = 1 - actions["action"][:2]
    before, loss = updated()
    for changes, same in (
        ({"rewards": rewards, "actions": actions}, True),
        ({"observations": {"observation": seen}}, False),
    ):
        after, other = updated(**changes)
        assert (other == loss) == same
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(before, after, strict=True)) == same


def rows_of(rewards, made, *, terminated=None, valid=None):
    """Sequences of one environment each, all arrays [T, N]."""
    rewards = np.array(rewards, np.float32)
    none = np.zeros(rewards.shape, bool)
    return transitions(np.zeros(rewards.shape[1]))._replace(
        actions={"action": np.array(made, np.int32)},
        rewards=rewards,
        terminated=none if terminated is None else terminated,
        truncated=none,
        valid=~none if valid is None else valid,
        bootstrap_steps=None,
    )


@pytest.mark.row("D159")
@pytest.mark.parametrize(
    ("learning", "next_gap", "terminated", "target"),
    [
        (None, 0.5, False, 2.0),
        ({"persistent": False}, 0.5, False, 0.2),  # 2 - .9 (3 - 1)
        ({}, 0.5, False, 1.55),  # 2 - .9 min(3 - 1, .5)
        ({}, 9.0, False, 0.2),
        ({"alpha": 0.5}, 0.5, False, 1.75),
        ({}, 0.5, True, 2.0),  # the gap of nothing is 0
    ],
)
def test_advantage_learning_by_hand(learning, next_gap, terminated, target):
    """V(s) 3, Q(s, a) 1 of the target network, whose error is of the online network's 0."""
    best = 4.0  # of the next state, gamma .5
    batch = transitions([2.0 if terminated else 0.0], terminated=np.array([[terminated]]))
    slow = [[[1.0, 3.0]], [[best - next_gap, best]]]
    algorithm = make(discount=0.5, advantage_learning=learning)
    loss, metrics, gradients = compute(algorithm, batch, np.zeros((2, 1, 2)), slow)
    assert metrics["mean_td_error"] == pytest.approx(target, rel=1e-5)
    assert loss == pytest.approx(target**2, rel=1e-5)
    np.testing.assert_allclose(gradients["q/q"][0], [[-2.0 * target, 0.0]], rtol=1e-5)


@pytest.mark.row("D159")
@pytest.mark.parametrize("persistent", [False, True])
def test_advantage_learning_over_sequences_is_the_larger_of_two_targets(persistent):
    """max(T Q - alpha gap, r + gamma V' - alpha gap') of each step, one after another."""
    rng = np.random.default_rng(5)
    steps, count, gamma, alpha = 6, 3, 0.9, 0.7
    online, slow = rng.normal(0.0, 2.0, (2, steps + 1, count, 2)).astype(np.float32)
    rewards = rng.normal(0.0, 1.0, (steps, count)).astype(np.float32)
    made, terminated = rng.integers(0, 2, (steps, count)), rng.random((steps, count)) < 0.3
    given = {"advantage_learning": {"alpha": alpha, "persistent": persistent}, "replay": {"item": {"kind": "sequence"}}}
    loss, _, _ = compute(make(discount=gamma, **given), rows_of(rewards, made, terminated=terminated), online, slow)
    errors = []
    for t, n in np.ndindex(steps, count):
        choice, goes_on = made[t, n], float(not terminated[t, n])
        backed = rewards[t, n] + gamma * goes_on * slow[t + 1, n].max()
        y = backed - alpha * (slow[t, n].max() - slow[t, n, choice])
        if persistent:
            y = max(y, backed - alpha * goes_on * (slow[t + 1, n].max() - slow[t + 1, n, choice]))
        errors.append(y - online[t, n, choice])
    assert loss == pytest.approx(np.mean(np.square(errors)), rel=1e-4)


@pytest.mark.row("D158")
def test_mixed_monte_carlo_by_hand():
    """Gamma 1: rewards 1 and 4 make 5, and the target after one step is 1 + 1 = 2: .9 x 2 + .1 x 5 = 2.3."""
    batch = rows_of([[1.0], [4.0]], [[0], [0]], terminated=np.array([[False], [True]]))
    algorithm = make(discount=1.0, monte_carlo_share=0.1, replay={"item": {"kind": "sequence"}})
    online, slow = np.zeros((3, 1, 2)), np.array([[[9.0, 9.0]], [[1.0, 0.0]], [[7.0, 7.0]]])
    loss, _, _ = compute(algorithm, batch, online, slow)
    assert loss == pytest.approx((2.3**2 + 4.0**2) / 2, rel=1e-5)


@pytest.mark.row("D158")
def test_the_return_of_mixed_monte_carlo_ends_with_its_episode_and_with_the_sequence():
    """Gamma .5, share 1: [1 + .5 x 2, 2], a row between episodes, and 3 + .5 x the last value 8."""
    valid = np.array([[True], [True], [False], [True]])
    batch = rows_of([[1.0], [2.0], [0.0], [3.0]], np.zeros((4, 1)), valid=valid)
    batch = batch._replace(terminated=np.array([[False], [True], [False], [False]]))
    algorithm = make(discount=0.5, monte_carlo_share=1.0, replay={"item": {"kind": "sequence"}})
    loss, _, _ = compute(algorithm, batch, np.zeros((5, 1, 2)), np.full((5, 1, 2), 8.0))
    assert loss == pytest.approx((2.0**2 + 2.0**2 + 7.0**2) / 3, rel=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ({"advantage_learning": {}, "value_rescaling": True}, "set algorithm.value_rescaling to false"),
        ({"advantage_learning": {}, "replay": {"item": {"n_step": 3}}}, "n_step is 3; set n_step to 1, or persistent"),
        (
            {"monte_carlo_share": 0.1},
            "a transition does not hold the rewards that follow it; set algorithm.replay.item",
        ),
    ],
)
def test_targets_that_do_not_go_together_are_refused(algorithm, message):
    with pytest.raises(ValueError, match=message):
        make(**algorithm)


@pytest.mark.row("D158", "D159")
def test_a_network_learns_with_both():
    """One choice pays 1 and the other 0, and the episode ends: alpha .5 doubles the gap."""
    algorithm = make(
        target_update_every_updates=1,
        target_update_rate=0.1,
        advantage_learning={"alpha": 0.5, "persistent": False},
        monte_carlo_share=0.5,
        replay={"item": {"kind": "sequence"}},
    )
    networks = algorithm.build(SPEC)
    ends = np.ones((1, 2), bool)
    batch = rows_of([[1.0, 0.0]], [[0, 1]], terminated=ends)
    one = np.ones((2, 2, 3), np.float32)
    batch = batch._replace(observations={"observation": one})
    for _ in range(600):
        algorithm.update(networks, batch)
    ((better, worse),) = networks["main"].online.predict({"observation": one[0, :1]}, ["q/q"])
    assert (better, worse) == (pytest.approx(1.0, abs=0.05), pytest.approx(-1.0, abs=0.1))  # 0 - .5 (1 - Q) = Q
