import numpy as np
import pytest
from keras import ops

from distrl.config.network import MiddlewareParameters, NetworkParameters
from distrl.errors import CheckpointError
from distrl.networks.network_wrapper import NetworkWrapper
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, DiscreteSpec(2))
T, N = 3, 4


def wrap(has_target=True, has_global=True, **parameters):
    small = {"middleware_parameters": MiddlewareParameters(units=(8,)), "learning_rate": 0.05} | parameters
    return NetworkWrapper(
        NetworkParameters(**small),
        SPEC,
        ("policy", "value"),
        has_target=has_target,
        has_global=has_global,
        name="main",
        seed=1,
    )


def fill(copy, value):
    copy.set_weights([np.full_like(array, value) for array in copy.get_weights()])


def value(copy):
    """The one value that all weights of a copy have."""
    values = np.unique(np.concatenate([array.ravel() for array in copy.get_weights()]))
    assert values.size == 1
    return float(values[0])


def loss(outputs, batch):
    error = outputs["value"][:-1] - batch.rewards
    return ops.mean(error * error) + ops.mean(outputs["logits"] ** 2), {"error": ops.mean(error)}


def batches(count, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield Batch(
            observations={"observation": rng.standard_normal((T + 1, N, 4)).astype(np.float32)},
            actions=np.zeros((T, N), np.int32),
            rewards=rng.standard_normal((T, N)).astype(np.float32),
            terminated=np.zeros((T, N), bool),
            truncated=np.zeros((T, N), bool),
            valid=np.ones((T, N), bool),
            behaviour_log_probabilities=np.zeros((T, N), np.float32),
            recurrent_state={},
        )


def assert_same(left, right):
    assert left.keys() == right.keys()
    for group in left:
        assert left[group].keys() == right[group].keys()
        for path in left[group]:
            np.testing.assert_array_equal(left[group][path], right[group][path], err_msg=f"{group} {path}")


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
def test_copies_exist_as_asked_and_start_equal(has_target, has_global, expected):
    network = wrap(has_target, has_global)
    assert list(network.copies) == expected
    for copy in network.copies.values():
        for array, online in zip(copy.get_weights(), network.online.get_weights(), strict=True):
            np.testing.assert_array_equal(array, online)


@pytest.mark.row("C03")
def test_sync_goes_from_global_through_online_to_target():
    network = wrap()
    for copy, number in ((network.global_, 3.0), (network.online, 1.0), (network.target, 0.0)):
        fill(copy, number)
    network.sync()
    assert [value(copy) for copy in network.copies.values()] == [3.0, 3.0, 3.0]


@pytest.mark.row("C04")
def test_update_target_network_mixes_from_online():
    network = wrap(has_global=False)
    fill(network.online, 1.0)
    fill(network.target, 0.0)
    network.update_target_network(0.1)
    assert value(network.target) == pytest.approx(0.1)
    network.update_target_network(0.1)
    assert value(network.target) == pytest.approx(0.19)
    assert value(network.online) == 1.0


@pytest.mark.row("C05")
def test_update_online_network_mixes_from_global():
    network = wrap()
    fill(network.global_, 4.0)
    fill(network.online, 0.0)
    network.update_online_network(0.25)
    assert value(network.online) == 1.0


@pytest.mark.row("C04", "C05")
def test_updates_without_the_copy_do_nothing():
    network = wrap(has_target=False, has_global=False)
    fill(network.online, 2.0)
    network.update_online_network(0.5)
    network.update_target_network(0.5)
    network.sync()
    assert value(network.online) == 2.0


def test_set_weights_goes_to_online_alone():
    network = wrap()
    for copy in network.copies.values():
        fill(copy, 0.0)
    network.set_weights([np.full_like(array, 4.0) for array in network.online.get_weights()], 0.25)
    assert [value(copy) for copy in network.copies.values()] == [0.0, 1.0, 0.0]


@pytest.mark.row("A21")
def test_target_stays_until_it_is_updated():
    network = wrap(has_global=False)
    start = network.target.get_weights()
    step = network.train_step(loss)
    (batch,) = batches(1)
    step(batch)
    assert not np.array_equal(network.online.get_weights()[0], start[0])
    np.testing.assert_array_equal(network.target.get_weights()[0], start[0])
    network.update_target_network()
    for target, online in zip(network.target.get_weights(), network.online.get_weights(), strict=True):
        np.testing.assert_array_equal(target, online)


def test_training_with_a_global_copy_is_the_same_training():
    alone, shared = wrap(has_global=False), wrap(has_global=True)
    steps = alone.train_step(loss), shared.train_step(loss)
    for batch in batches(3):
        for step in steps:
            step(batch)
    for name in ("online", "global"):
        for left, right in zip(alone.online.get_weights(), shared.copies[name].get_weights(), strict=True):
            np.testing.assert_array_equal(left, right)


def test_no_retracing_after_warm_up():
    network = wrap()
    step = network.train_step(loss)
    for batch in batches(5):
        metrics = step(batch)
        network.update_target_network(0.5)
    network.restore(network.state_arrays())
    for batch in batches(2):
        step(batch)
    assert step.traces == 1
    assert set(metrics) == {"error", "loss", "gradient_norm", "learning_rate", "finite"}


@pytest.mark.parametrize("optimizer", ["Adam", "RMSProp", "SGD"])
def test_restored_training_goes_on_bit_by_bit(optimizer):
    decay = {"learning_rate_decay_rate": 0.5, "learning_rate_decay_steps": 2}
    network = wrap(optimizer_type=optimizer, **decay)
    step = network.train_step(loss)
    first, second = list(batches(3, seed=1)), list(batches(3, seed=2))
    for batch in first:
        step(batch)
    network.update_target_network(0.3)
    saved = network.state_arrays()
    metrics = [step(batch) for batch in second]
    other = wrap(optimizer_type=optimizer, **decay)
    other.restore(saved)
    assert_same(other.state_arrays(), saved)
    other_step = other.train_step(loss)
    assert [other_step(batch) for batch in second] == metrics
    assert_same(other.state_arrays(), network.state_arrays())
    assert metrics[-1]["learning_rate"] == pytest.approx(0.05 * 0.25)


def test_state_arrays_are_copies_and_leave_the_learning_rate_to_the_configuration():
    network = wrap()
    state = network.state_arrays()
    assert list(state) == ["global", "online", "target", "optimizer"]
    assert "optimizer/iteration" in state["optimizer"]
    assert "optimizer/learning_rate" not in state["optimizer"]
    assert len(state["optimizer"]) == 1 + 2 * len(state["online"])
    state["online"]["main/value_head/bias"][...] = 5.0
    assert network.online.named_weights()["main/value_head/bias"] == 0.0


def without(state, group, path=None):
    if path is None:
        return {name: arrays for name, arrays in state.items() if name != group}
    return state | {group: {name: array for name, array in state[group].items() if name != path}}


BIAS = "main/value_head/bias"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: without(state, "target"), "the checkpoint has"),
        (lambda state: without(state, "online", BIAS), f"main/online: {BIAS}: the checkpoint does not have it"),
        (lambda state: state | {"target": state["target"] | {"x": np.ones(1)}}, "x: only the checkpoint has it"),
        (lambda state: state | {"target": state["target"] | {BIAS: np.ones(2)}}, r"shape \(1,\), given \(2,\)"),
        (lambda state: state | {"target": state["target"] | {BIAS: np.full(1, np.nan)}}, "not finite"),
    ],
)
def test_restore_refuses_and_changes_nothing(spoil, message):
    network, other = wrap(), wrap()
    fill(other.online, 3.0)
    before = network.state_arrays()
    with pytest.raises(CheckpointError, match=message):
        network.restore(spoil(other.state_arrays()))
    assert_same(network.state_arrays(), before)


@pytest.mark.row("C15")
def test_str_names_the_copies():
    lines = str(wrap()).splitlines()
    assert lines[0] == "Network: main, Copies: 3 (global network | online network | target network)"
    assert lines[2] == "online network: observation[4] -> logits[2], value[]; 67 weights in 6 arrays"
    assert str(wrap(False, False)).splitlines()[0] == "Network: main, Copies: 1 (online network)"
