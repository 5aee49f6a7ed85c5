import numpy as np
import pytest
from keras import ops

from distrl.config.algorithms import RewardNormalizationParameters
from distrl.config.heads import PPOHeadParameters, ValueHeadParameters
from distrl.errors import CheckpointError
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec
from tests.traces import traces

VALUE = (ValueHeadParameters(),)
SGD = {"optimizer_type": "SGD", "learning_rate": 0.1, "middleware_parameters": {"scheme": "Empty"}}
ADAM = {"optimizer_type": "Adam", "learning_rate": 0.1, "middleware_parameters": {"scheme": "Empty"}}
BATCHNORM = {"middleware_parameters": {"scheme": [3], "batchnorm": True}}
NORMALIZED = {"input_embedders_parameters": {"observation": {"normalize": True}}}
ROWS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
X = {"observation": ROWS}
ONES = np.ones(3, np.float32)
BIAS = "main/value_head/bias"


def fill(copy, value):
    copy.set_weights([np.full_like(array, value) for array in copy.get_weights()])


def value(copy):
    """The one value that all weights of a copy have."""
    values = np.unique(np.concatenate([array.ravel() for array in copy.get_weights()]))
    assert values.size == 1
    return float(values[0])


def loss(outputs, batch):
    error = outputs["value"][:-1] - batch.rewards
    terms = {"value": ops.mean(error * error), "policy": ops.mean(outputs["policy/action"] ** 2)}
    return terms, {"error": ops.mean(error)}


def assert_equal(left, right):
    for one, other in zip(left.get_weights(), right.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.row("C01")
@pytest.mark.parametrize(
    ("has_target", "has_global", "expected"),
    [
        (False, False, ["online"]),
        (True, False, ["online", "target"]),
        (False, True, ["global", "online"]),
        (True, True, ["global", "online", "target"]),
    ],
)
def test_copies_exist_as_asked_and_start_equal(wrap, has_target, has_global, expected):
    network = wrap(has_target, has_global)
    assert list(network.by_name) == expected
    for copy in network.by_name.values():
        assert_equal(copy, network.online)


@pytest.mark.row("C01")
def test_all_copies_start_as_a_shared_global_copy_is_by_now(wrap):
    first = wrap(has_global=True)
    fill(first.global_, 3.0)
    second = wrap(has_target=True, shared=first.global_)
    assert second.global_ is first.global_
    assert [value(copy) for copy in second.by_name.values()] == [3.0, 3.0, 3.0]


@pytest.mark.row("A21")
def test_the_configuration_may_ask_for_a_target(wrap):
    assert list(wrap(create_target_network=True).by_name) == ["online", "target"]


@pytest.mark.row("C03")
def test_sync_goes_from_global_through_online_to_target(wrap):
    network = wrap(has_target=True, has_global=True)
    for copy, number in ((network.global_, 3.0), (network.online, 1.0), (network.target, 0.0)):
        fill(copy, number)
    network.sync()
    assert [value(copy) for copy in network.by_name.values()] == [3.0, 3.0, 3.0]


@pytest.mark.row("C04")
def test_update_target_network_mixes_from_online(wrap):
    network = wrap(has_target=True)
    fill(network.online, 1.0)
    fill(network.target, 0.0)
    for expected in (0.1, 0.19):
        network.update_target_network(0.1)
        assert value(network.target) == pytest.approx(expected)
    assert value(network.online) == 1.0


@pytest.mark.row("C05")
def test_update_online_network_mixes_from_global(wrap):
    network = wrap(has_global=True)
    fill(network.global_, 4.0)
    fill(network.online, 0.0)
    network.update_online_network(0.25)
    assert (value(network.online), value(network.global_)) == (1.0, 4.0)


@pytest.mark.row("C04", "C05")
def test_updates_without_the_copy_do_nothing(wrap):
    network = wrap()
    fill(network.online, 2.0)
    network.update_online_network(0.5)
    network.update_target_network(0.5)
    network.sync()
    assert value(network.online) == 2.0


def test_weights_that_are_taken_go_to_every_copy_and_leave_the_optimizer(wrap):
    network = wrap(has_target=True, has_global=True)
    given = {name: np.full_like(array, 3.0) for name, array in network.online.named_weights().items()}
    before = network.state_arrays()["optimizer"]
    assert network.take({**given, "other/weight": np.ones(2)}, lambda key: 1.0) == network.online.weight_names
    assert [value(copy) for copy in network.by_name.values()] == [3.0, 3.0, 3.0]
    np.testing.assert_equal(network.state_arrays()["optimizer"], before)
    assert network.take({BIAS: np.full(1, 5.0)}, lambda key: 1.0) == [BIAS]
    assert [set(copy.named_weights()[BIAS]) for copy in network.by_name.values()] == [{5.0}] * 3
    with pytest.raises(CheckpointError, match=r"main: weight main/value_head/bias has shape \(1,\), given \(2,\)"):
        network.take({**given, BIAS: np.ones(2)}, lambda key: 1.0)
    assert set(network.online.named_weights()[BIAS]) == {5.0}


@pytest.mark.row("A21", "F07")
def test_target_stays_until_it_is_updated(wrap, batch_for):
    network = wrap(has_target=True)
    start = network.target.get_weights()
    network.train_step(loss)(batch_for(network.online))
    for before, online, target in zip(start, network.online.get_weights(), network.target.get_weights(), strict=True):
        np.testing.assert_array_equal(target, before)
        assert not np.array_equal(online, before)
    network.update_target_network()
    assert_equal(network.target, network.online)


@pytest.mark.row("A03")
def test_a_workers_moments_are_fed_by_its_own_gradients(wrap):
    """Worker 1 sends 1, worker 2 sends -1. Shared moments all but cancel; one's own go the whole way back."""
    moved = {}
    for shared in (True, False):
        first = wrap(has_global=True, heads=VALUE, shared_optimizer=shared, **ADAM)
        second = wrap(shared=first.global_, heads=VALUE, shared_optimizer=shared, **ADAM)
        fill(first.global_, 0.0)
        for network, sign in ((first, 1.0), (second, -1.0)):
            network.apply_gradients([np.full_like(w, sign) for w in network.online.get_weights()])
        moved[shared] = value(first.global_)
    assert moved[False] == pytest.approx(0.0, abs=1e-6)
    # m = 0.9 * 0.1 - 0.1 = -0.01, bias corrected by 0.19; v by its own is 1: -0.1 + 0.1 * 0.01 / 0.19
    assert moved[True] == pytest.approx(-0.1 + 0.1 * 0.01 / 0.19, rel=2e-3)


def test_no_retracing_after_warm_up(wrap, batch_for):
    network = wrap(has_target=True)
    step = network.train_step(loss)
    for seed in range(5):
        metrics = step(batch_for(network.online, seed=seed))
        network.update_target_network(0.5)
    network.restore(network.state_arrays())
    step(batch_for(network.online, seed=9))
    assert traces(step) == 1
    assert set(metrics) == {"error", "loss", "gradient_norm", "learning_rate", "finite"}


OPTIMIZERS = ["Adam", "RMSProp", "Nadam", "Muon"]
NOISY = {"middleware_parameters": {"scheme": [6, {"kind": "noisy_dense", "units": 5}], "dropout_rate": 0.3}}
KERAS_NOISE = {"kind": "custom", "layer": "keras.layers:GaussianNoise", "arguments": {"stddev": 0.5}}
KINDS = {
    **{name: {"optimizer_type": name} for name in OPTIMIZERS},
    "momentum": {"optimizer_type": "momentum"},
    "LBFGS": {"optimizer_type": "LBFGS", "lbfgs_max_iterations": 3},
    "schedule": {"learning_rate": 0.05, "learning_rate_decay_rate": 0.5, "learning_rate_decay_steps": 2},
    "noise": NOISY,
    "noise of Keras": {"middleware_parameters": {"scheme": [6, KERAS_NOISE]}},
    "batch normalisation": BATCHNORM,
    "normalisation": NORMALIZED,
    "memory": {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 3}},
    "bfloat16": {"compute_dtype": "bfloat16"},
}


@pytest.mark.row("A15")
@pytest.mark.parametrize(
    "kind",
    [
        kind
        if kind in ("Adam", "noise", "memory", "batch normalisation")
        else pytest.param(kind, marks=pytest.mark.long)
        for kind in KINDS
    ],
)
def test_restored_training_goes_on_bit_by_bit(wrap, batch_for, same_state, kind):
    network = wrap(has_target=True, **KINDS[kind])
    step = network.train_step(loss)
    for seed in range(2):
        batch = batch_for(network.online, seed=seed)
        step(batch)
        network.statistics.observe(batch)
    network.update_target_network(0.3)
    saved = network.state_arrays()
    other = wrap(has_target=True, seed=2, **KINDS[kind])
    other.restore(saved)
    same_state(other.state_arrays(), saved)
    later = [batch_for(network.online, seed=seed) for seed in (5, 6)]
    told = []
    for one in (network, other):
        step = one.train_step(loss) if one is other else step
        told.append([step(batch) for batch in later])
        one.statistics.observe(later[0])
    assert told[0] == told[1]
    assert all(metrics["finite"] for metrics in told[0])
    same_state(other.state_arrays(), network.state_arrays())
    changed = [
        not np.array_equal(saved["online"][name], array) for name, array in other.state_arrays()["online"].items()
    ]
    assert any(changed)


def test_noise_moves_on_with_every_update(wrap, batch_for):
    network = wrap(**NOISY)
    before = {name: array for name, array in network.state_arrays()["online"].items() if "seed_generator" in name}
    assert len(before) == 3  # dropout after each of the two layers, and the noisy layer's own
    network.train_step(loss)(batch_for(network.online))
    after = network.state_arrays()["online"]
    assert all(not np.array_equal(array, after[name]) for name, array in before.items())


def test_numbers_of_heads_are_kept(wrap):
    heads = (PPOHeadParameters(initial_kl_coefficient=0.2),)
    network, other = (wrap(heads=heads) for _ in range(2))
    network.online.number("policy/kl_coefficient").assign(0.45)
    other.restore(network.state_arrays())
    assert np.asarray(other.online.number("policy/kl_coefficient")) == np.float32(0.45)


def test_state_arrays_are_copies_and_leave_the_learning_rate_to_the_configuration(wrap):
    network = wrap(has_target=True, has_global=True)
    state = network.state_arrays()
    assert list(state) == ["global", "online", "target", "optimizer", "statistics"]
    assert "optimizer/iteration" in state["optimizer"]
    assert "optimizer/learning_rate" not in state["optimizer"]
    assert len(state["optimizer"]) == 1 + 2 * len(state["online"])
    state["online"][BIAS][...] = 5.0
    assert network.online.named_weights()[BIAS] == 0.0


def without(state, group, path=None):
    if path is None:
        return {name: arrays for name, arrays in state.items() if name != group}
    return state | {group: {name: array for name, array in state[group].items() if name != path}}


def changed(state, group, path, array):
    return state | {group: state[group] | {path: array}}


MEAN = "observation/mean"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: without(state, "target"), "the checkpoint has"),
        (lambda state: without(state, "optimizer"), "the checkpoint has"),
        (lambda state: without(state, "online", BIAS), f"main/online: {BIAS}: the checkpoint does not have it"),
        (lambda state: changed(state, "target", "x", np.ones(1)), "main/target: x: only the checkpoint has it"),
        (lambda state: changed(state, "target", BIAS, np.ones(2)), r"shape \(1,\), given \(2,\)"),
        (lambda state: changed(state, "target", BIAS, np.full(1, np.nan)), "not finite"),
        (lambda state: changed(state, "optimizer", "optimizer/iteration", np.float64("nan")), "not finite"),
        (lambda state: without(state, "statistics", MEAN), f"main/statistics: {MEAN}: the checkpoint normalises other"),
        (lambda state: changed(state, "statistics", MEAN, np.ones(3)), rf"{MEAN} must be finite and of shape \(4,\)"),
        (lambda state: changed(state, "statistics", MEAN, np.full(4, np.inf)), f"{MEAN} must be finite"),
    ],
)
def test_restore_refuses_and_changes_nothing(wrap, same_state, spoil, message):
    network, other = (wrap(has_target=True, **NORMALIZED) for _ in range(2))
    fill(other.online, 3.0)
    before = network.state_arrays()
    with pytest.raises(CheckpointError, match=message) as raised:
        network.restore(spoil(other.state_arrays()))
    assert "\n" not in str(raised.value)
    same_state(network.state_arrays(), before)


def statistics(copy):
    names = ("main/normalization_observation/mean", "main/normalization_observation/variance")
    return [copy.named_weights()[name] for name in names]


def test_valid_rows_alone_are_observed_and_every_copy_gets_them(wrap, batch_for):
    """The last row T is the first of the next unroll; rows after an episode's end do not count as observations."""
    network = wrap(True, True, **NORMALIZED)
    batch = batch_for(network.online, 5, 4)
    poisoned = {"observation": batch.observations["observation"].copy()}
    poisoned["observation"][-1] = 1e6
    poisoned["observation"][:-1][~batch.valid] = -1e6
    rows = batch.observations["observation"][:-1][batch.valid].astype(np.float64)
    assert 0 < len(rows) < 20
    network.statistics.observe(batch._replace(observations=poisoned))
    for copy in network.by_name.values():
        mean, variance = statistics(copy)
        np.testing.assert_allclose(mean, rows.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(variance, rows.var(axis=0), rtol=1e-6)
    assert network.statistics.moments["observation"].mean.dtype == np.float64


def test_the_order_of_batches_does_not_matter(wrap, batch_for):
    first, second = wrap(**NORMALIZED), wrap(**NORMALIZED)
    batches = [batch_for(first.online, 7, 3, seed) for seed in range(6)]
    joined = [
        batches[0]._replace(
            observations={
                "observation": np.concatenate(
                    [pair[0].observations["observation"], pair[1].observations["observation"]], 1
                )
            },
            valid=np.concatenate([pair[0].valid, pair[1].valid], axis=1),
        )
        for pair in ((batches[5], batches[2]), (batches[0], batches[3]), (batches[4], batches[1]))
    ]
    for network, given in ((first, batches), (second, joined)):
        for batch in given:
            network.statistics.observe(batch)
    assert first.statistics.moments["observation"].count == second.statistics.moments["observation"].count
    for one, other in zip(statistics(first.online), statistics(second.online), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    one, other = (network.online.predict(X) for network in (first, second))
    for left, right in zip(one, other, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)


def test_images_are_normalised_place_by_place(wrap, batch_for):
    spec = EnvSpec("Image-v0", {"camera": ArraySpec((3, 2, 1), "uint8", 0, 255)}, {"action": DiscreteSpec(2)})
    network = wrap(
        spec=spec,
        input_embedders_parameters={"camera": {"normalize": True, "scheme": "Empty"}},
        middleware_parameters={"scheme": "Empty"},
        heads=VALUE,
    )
    batch = batch_for(network.online, 6, 4)
    network.statistics.observe(batch)
    rows = batch.observations["camera"][:-1][batch.valid].astype(np.float64)
    weights = network.online.named_weights()
    image = batch.observations["camera"][0]
    scaled = (image - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0))
    expected = scaled.reshape(4, 6) @ weights["main/value_head/kernel"][:, 0] + weights[BIAS]
    np.testing.assert_allclose(network.online.predict({"camera": image}), expected, atol=1e-4)


def test_separate_networks_have_the_same_statistics(wrap, batch_for):
    network = wrap(use_separate_networks_per_head=True, **NORMALIZED)
    network.statistics.observe(batch_for(network.online, 5, 4))
    weights = network.online.named_weights()
    for what in ("mean", "variance"):
        policy, value = (weights[f"main/{head}_normalization_observation/{what}"] for head in ("policy", "value"))
        np.testing.assert_array_equal(policy, value)
        assert np.abs(policy - (what == "variance")).max() > 1e-3


def test_a_refused_restore_adds_no_optimizer_and_an_earlier_state_takes_later_ones_away(wrap, same_state):
    network = wrap(has_global=True, heads=VALUE, shared_optimizer=False, **ADAM)
    gradients = [np.ones_like(weight) for weight in network.online.get_weights()]
    network.apply_gradients(gradients, worker=1)
    early = network.state_arrays()
    foreign = {**early, "optimizer_7": {"nothing": np.zeros(1)}}
    with pytest.raises(CheckpointError, match="main/optimizer_7"):
        network.restore(foreign)
    same_state(network.state_arrays(), early)
    network.apply_gradients(gradients, worker=2)
    assert "optimizer_2" in network.state_arrays()
    network.restore(early)
    same_state(network.state_arrays(), early)


def test_gradients_that_are_not_finite_are_refused(wrap, same_state):
    network = wrap(has_global=True, heads=VALUE, **ADAM)
    before = network.state_arrays()
    gradients = [np.full_like(weight, np.nan) for weight in network.online.get_weights()]
    for apply in (network.apply_gradients, network.online.apply_gradients):
        with pytest.raises(ValueError, match=r"^gradient of main/.*: the given values are not finite$"):
            apply(gradients)
    same_state(network.state_arrays(), before)


REWARDS = RewardNormalizationParameters(kind="reward")
SEEN = {"count": np.array([2.0, 0.0, 1.0]), "mean": np.array([1.0, 0.0, 4.0]), "squares": np.array([2.0, 0.0, 0.0])}


def test_moments_of_rewards_are_kept_restored_and_published(wrap, batch_for, same_state):
    network, other = wrap(has_target=True, rewards=REWARDS), wrap(has_target=True, rewards=REWARDS)
    network.statistics.observe(batch_for(network.online)._replace(reward_moments=SEEN))  # rewards of 0, 2 and 4
    assert (network.rewards.mean, network.rewards.deviation) == pytest.approx((2.0, np.sqrt(8 / 3)))
    state = network.state_arrays()
    assert sorted(state["rewards"]) == ["count", "mean", "squares"]
    other.restore(state)
    same_state(other.state_arrays(), state)
    assert (other.rewards.mean, other.rewards.deviation) == (network.rewards.mean, network.rewards.deviation)
    published = network.published_weights()
    assert published.keys() - network.online.named_weights().keys() == set(network.rewards.published())


def test_rewards_that_are_not_normalised_are_let_alone(wrap, batch_for):
    network = wrap()
    batch = batch_for(network.online)
    network.statistics.observe(batch)
    assert network.statistics.with_normal_rewards(batch) is batch
    assert network.published_weights().keys() == network.online.named_weights().keys()
    assert "rewards" not in network.state_arrays()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: without(state, "rewards"), "has .*'rewards'.*, the checkpoint has"),
        (lambda state: without(state, "rewards", "mean"), "main/rewards: mean"),
        (lambda state: changed(state, "rewards", "squares", np.array(np.inf)), "squares must be finite"),
        (lambda state: changed(state, "rewards", "count", np.ones(2)), r"count must be finite and of shape \(\)"),
    ],
)
def test_moments_of_rewards_that_do_not_fit_are_refused(wrap, same_state, spoil, message):
    network, other = (wrap(rewards=REWARDS) for _ in range(2))
    other.statistics.observe_rewards(SEEN)
    before = network.state_arrays()
    with pytest.raises(CheckpointError, match=message):
        network.restore(spoil(other.state_arrays()))
    same_state(network.state_arrays(), before)
    assert (network.rewards.mean, network.rewards.deviation) == (0.0, 1.0)
