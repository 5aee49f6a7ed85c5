import numpy as np
import pytest

from distrl.coach.architecture import Architecture, over_rows
from distrl.config.heads import (
    PPOHeadParameters,
    QHeadParameters,
    ValueHeadParameters,
)
from distrl.networks.network import Network
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec
from tests.traces import traces

VALUE = (ValueHeadParameters(),)
LINE = {"middleware_parameters": {"scheme": "Empty"}, "optimizer_type": "SGD", "learning_rate": 0.1}
ROWS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
X = {"observation": ROWS}
ONES = np.ones(3, np.float32)
TARGETS = [{"actions": {"action": np.array([0, 1, 1], np.int32)}, "advantages": np.float32([1.0, -2.0, 0.5])}, ONES]
ONE_NUMBER = EnvSpec("Line-v0", {"observation": ArraySpec((1,), "float32")}, {"action": DiscreteSpec(2)})
KERNEL = "main/value_head/kernel"


@pytest.fixture
def line(build):
    """value = kernel . observation + bias, plain gradient descent at 0.1; kernel and bias start at 0."""

    def make(spec=None, **parameters):
        network = build(*([spec] if spec else []), heads=VALUE, **(LINE | parameters))
        fill(network, 0.0)
        return network

    return make


def fill(network, value):
    network.set_weights([np.full_like(array, value) for array in network.get_weights()])


def assert_equal(left, right):
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.row("B01")
@pytest.mark.parametrize("device", ["/cpu:0", "cpu:0"])
def test_a_network_is_constructed_on_its_device(build, device):
    plain = build().network
    network = Architecture.construct("acting", [device], plain.parameters, plain.spec, plain.head_parameters, 1).network
    assert all(path.startswith("acting/") for path in network.variables)
    assert all(variable.value.device.endswith("CPU:0") for variable in network.model.variables)
    assert_equal(network.get_weights(), plain.get_weights())


@pytest.mark.row("B01")
@pytest.mark.parametrize("devices", [["/cpu:0", "/cpu:1"], []])
def test_several_devices_are_an_error_and_not_a_silent_drop(build, devices):
    network = build().network
    with pytest.raises(ValueError, match=r"a network lives on one device, not \[.*\]; learner.replicas spreads"):
        Architecture.construct("main", devices, network.parameters, network.spec, network.head_parameters, 1)


@pytest.mark.row("B17")
def test_parallel_predict_keeps_the_order(build):
    first, second = build(seed=1), build(seed=2)
    other = {"observation": -ROWS}
    pair = Architecture.parallel_predict([(second, X), (first, other)])
    for found, expected in ((pair[0], second.predict(X)), (pair[1], first.predict(other))):
        for array, separate in zip(found, expected, strict=True):
            np.testing.assert_allclose(array, separate, rtol=1e-6, atol=1e-7)
    assert Architecture.parallel_predict([]) == []


@pytest.mark.row("B17")
def test_parallel_predict_is_one_call_that_is_traced_once_and_sees_new_weights(build):
    first, second = build(seed=1), build(seed=2)
    for _ in range(3):
        Architecture.parallel_predict([(second, X), (first, X)])
    (together,) = second._together.values()
    assert (traces(together), first._together) == (1, {})
    second.set_weights(first.get_weights())
    pair = Architecture.parallel_predict([(second, X), (first, X)])
    for array, same in zip(*pair, strict=True):
        np.testing.assert_array_equal(array, same)
    assert traces(together) == 1


@pytest.mark.row("B04")
def test_gradients_are_added_up_and_weights_stay(build):
    network = build()
    before = network.get_weights()
    network.accumulate_gradients(X, TARGETS)
    single = network.accumulated_gradients
    assert [gradient.shape for gradient in single] == [weight.shape for weight in before]
    assert all(np.abs(gradient).max() > 1e-4 for gradient in single)
    network.accumulate_gradients(X, TARGETS)
    for twice, once in zip(network.accumulated_gradients, single, strict=True):
        np.testing.assert_allclose(twice, 2.0 * once, rtol=1e-6)
    network.accumulate_gradients(X, TARGETS, no_accumulation=True)
    assert_equal(network.accumulated_gradients, single)
    assert_equal(network.get_weights(), before)


@pytest.mark.row("B05", "A07", "A13")
def test_losses_come_in_the_order_of_heads_and_then_regularisation(line):
    """Values 0, targets 2 and 3 / 2: half the squares are 2 and 9 / 8, weighted 1 and 2, and 0.1 / 2 (1 + 2²) of l2."""
    network = line(
        l2_regularization=0.1, middleware_parameters={"scheme": [{"units": 1, "activation": "none", "l2": 0.4}]}
    )
    heads = (ValueHeadParameters(num_output_head_copies=1), QHeadParameters(loss_weight=2.0))
    network = Architecture(Network(network.network.parameters, network.network.spec, heads, "main", 1))
    fill(network, 0.0)
    names = network.network.weight_names
    weights = network.get_weights()
    weights[names.index("main/middleware_dense_0/kernel")][:2, 0] = [1.0, 2.0]
    network.set_weights(weights)
    targets = [np.float32([2.0]), {"actions": np.int32([1]), "targets": np.float32([1.5])}]
    told = network.accumulate_gradients({"observation": np.zeros((1, 4), np.float32)}, targets)
    assert told.losses == pytest.approx([2.0, 2.25, 0.25, 1.0])
    assert told.total_loss == pytest.approx(sum(told.losses), abs=1e-6)


@pytest.mark.row("A13")
def test_heads_are_weighted_and_summed(line):
    """Losses 2 and 3, weights 1 and 0.5: 3.5."""
    network = line()
    heads = (ValueHeadParameters(), QHeadParameters(loss_weight=0.5))
    network = Architecture(Network(network.network.parameters, network.network.spec, heads, "main", 1))
    fill(network, 0.0)
    targets = [np.float32([2.0]), {"actions": np.int32([0]), "targets": np.float32([np.sqrt(6.0)])}]
    told = network.accumulate_gradients({"observation": np.ones((1, 4), np.float32)}, targets)
    assert told.losses == pytest.approx([2.0, 1.5])
    assert told.total_loss == pytest.approx(3.5)


@pytest.mark.row("A07")
def test_regularisation_is_half_the_sum_of_squares_of_all_weights(line):
    network = line(ONE_NUMBER, l2_regularization=0.1)
    network.set_weights([np.float32([[1.0]]), np.float32([2.0])])
    told = network.accumulate_gradients({"observation": np.zeros((1, 1), np.float32)}, [np.float32([2.0])])
    assert told.losses == pytest.approx([0.0, 0.25])
    np.testing.assert_allclose(network.accumulated_gradients[0], [[0.1]], rtol=1e-6)
    np.testing.assert_allclose(network.accumulated_gradients[1], [0.2], rtol=1e-6)


def test_losses_that_layers_add_themselves_count(build):
    layer = {"kind": "custom", "layer": "keras.layers:ActivityRegularization", "arguments": {"l2": 0.5}}
    network = build(heads=VALUE, middleware_parameters={"scheme": [layer]})
    told = network.accumulate_gradients(X, [ONES])
    assert told.losses[1:] == pytest.approx([0.5 * np.square(ROWS).sum() / 3], rel=1e-5)  # Keras: per row


@pytest.mark.row("B06")
def test_the_norm_is_that_before_clipping(line):
    """Gradients [3] of the kernel and [4] of the bias are 0.6 and 0.8 after clipping at 1."""
    network = line(ONE_NUMBER, clip_gradients=1.0)
    told = network.accumulate_gradients({"observation": np.float32([[0.75]])}, [np.float32([-4.0])])
    assert told.norm_unclipped_grads == pytest.approx(5.0, rel=1e-6)
    kernel, bias = network.accumulated_gradients
    assert (kernel.item(), bias.item()) == (pytest.approx(0.6), pytest.approx(0.8))


@pytest.mark.row("B07")
def test_importance_weights_multiply_each_rows_loss(build):
    """Weights [1, 0]: what row 0 alone gives, halved by the mean over two."""
    network = build(heads=VALUE)
    both = network.accumulate_gradients(
        {"observation": ROWS[:2]}, [np.float32([1.0, 5.0])], importance_weights=np.array([1.0, 0.0])
    )
    weighted = network.accumulated_gradients
    alone = network.accumulate_gradients({"observation": ROWS[:1]}, [np.float32([1.0])], no_accumulation=True)
    assert both.total_loss == pytest.approx(alone.total_loss / 2, rel=1e-6)
    for one, other in zip(weighted, network.accumulated_gradients, strict=True):
        np.testing.assert_allclose(one, other / 2, rtol=1e-5, atol=1e-8)


@pytest.mark.row("B08")
def test_fetches_come_in_their_order(build):
    network = build(heads=(PPOHeadParameters(initial_kl_coefficient=0.2), ValueHeadParameters()))
    weights = network.get_weights()
    weights[2][...] = 0.0  # logits are 0 whatever the observation
    network.set_weights(weights)
    old = np.log(np.float32([[0.5, 0.5], [0.25, 0.75], [0.75, 0.25]]))
    policy = TARGETS[0] | {
        "old_log_probabilities": np.float32([old[0, 0], old[1, 1], old[2, 1]]),
        "old_outputs": {"policy/action": old},
    }
    told = network.accumulate_gradients(X, [policy, ONES], ["policy/kl", "policy/entropy"])
    kl = 2 * (0.25 * np.log(0.5) + 0.75 * np.log(1.5)) / 3
    assert [float(value) for value in told.fetched] == pytest.approx([kl, np.log(2.0)], rel=1e-5)
    with pytest.raises(ValueError, match="unknown fetch 'policy/foo'; choose from policy/entropy"):
        network.accumulate_gradients(X, [policy, ONES], ["policy/foo"])


@pytest.mark.parametrize(
    ("targets", "weights", "message"),
    [
        ([ONES], None, "1 targets given, network main has 2 heads"),
        ([*TARGETS, ONES], None, "3 targets given, network main has 2 heads"),
        (TARGETS, np.ones(1), r"importance_weights must be \[3\], one for each row, not \[1\]"),
        (TARGETS, np.ones((3, 1)), r"importance_weights must be \[3\], one for each row, not \[3, 1\]"),
    ],
)
def test_what_does_not_belong_to_the_batch_is_refused(build, targets, weights, message):
    network = build()
    with pytest.raises(ValueError, match=message):
        network.accumulate_gradients(X, targets, importance_weights=weights)
    assert not any(gradient.any() for gradient in network.accumulated_gradients)


@pytest.mark.row("B09")
def test_accumulated_gradients_are_copies(build):
    network = build(heads=VALUE)
    network.accumulate_gradients(X, [ONES])
    before = network.accumulated_gradients
    for gradient in network.accumulated_gradients:
        gradient[...] = 7.0
    assert_equal(network.accumulated_gradients, before)
    given = [gradient + 1.0 for gradient in before]
    network.set_accumulated_gradients(given)
    for gradient in given:
        gradient[...] = 7.0
    for gradient, one in zip(network.accumulated_gradients, before, strict=True):
        np.testing.assert_array_equal(gradient, one + 1.0)
    with pytest.raises(ValueError, match="1 gradients given, network main has"):
        network.set_accumulated_gradients(given[:1])


@pytest.mark.row("B12")
def test_apply_and_reset(line):
    network = line()
    network.accumulate_gradients(X, [ONES])
    gradients = network.accumulated_gradients
    network.apply_and_reset_gradients(gradients)
    for weight, gradient in zip(network.get_weights(), gradients, strict=True):
        np.testing.assert_allclose(weight, -0.1 * gradient, rtol=1e-6)
    assert not any(gradient.any() for gradient in network.accumulated_gradients)


@pytest.mark.row("B13")
def test_the_accumulator_can_be_read_before_and_after(build):
    network = build()
    shapes = [weight.shape for weight in network.get_weights()]
    for _ in range(2):
        network.reset_accumulated_gradients()
        zeros = network.accumulated_gradients
        assert [gradient.shape for gradient in zeros] == shapes
        assert not any(gradient.any() for gradient in zeros)
        network.accumulate_gradients(X, TARGETS)


@pytest.mark.row("B16")
def test_train_on_batch_fits_a_line(line):
    network = line(ONE_NUMBER)
    x = np.linspace(-1.0, 1.0, 16, dtype=np.float32)[:, None]
    first = network.train_on_batch({"observation": x}, [2.0 * x[:, 0]])
    assert first.total_loss == pytest.approx(0.5 * np.mean(4.0 * x**2), rel=1e-5)
    assert (len(first), first.losses) == (4, [pytest.approx(first.total_loss)])
    for _ in range(500):
        last = network.train_on_batch({"observation": x}, [2.0 * x[:, 0]])
    assert last.total_loss < 1e-3
    assert network.get_weights()[0].item() == pytest.approx(2.0, abs=0.05)
    assert not any(gradient.any() for gradient in network.accumulated_gradients)


@pytest.mark.row("B16")
def test_train_on_batch_applies_what_was_there_before_as_well(line):
    network = line()
    network.accumulate_gradients(X, [ONES])
    once = network.accumulated_gradients
    network.train_on_batch(X, [ONES], scaler=0.5)
    for weight, gradient in zip(network.get_weights(), once, strict=True):
        np.testing.assert_allclose(weight, -0.1 * 0.5 * 2.0 * gradient, rtol=1e-5)


@pytest.mark.row("B18", "B19")
def test_a_heads_number_is_read_and_written_and_the_next_loss_uses_it(build):
    network = build(heads=(PPOHeadParameters(initial_kl_coefficient=0.2),))
    assert network.get_variable_value("policy/kl_coefficient") == pytest.approx(0.2)
    old = np.float32([[0.0, 1.0]] * 3)
    log_probabilities = np.log(1 / (1 + np.exp([1.0, -1.0, -1.0]))).astype(np.float32)
    targets = {
        "actions": TARGETS[0]["actions"],
        "advantages": np.zeros(3, np.float32),
        "old_log_probabilities": log_probabilities,
        "old_outputs": {"policy/action": old},
    }
    first = network.accumulate_gradients(X, [targets], ["policy/kl"])
    assert first.total_loss == pytest.approx(0.2 * float(first.fetched[0]), rel=1e-5)
    network.set_variable_value("policy/kl_coefficient", 0.3)
    assert network.get_variable_value("policy/kl_coefficient") == pytest.approx(0.3)
    second = network.accumulate_gradients(X, [targets])
    assert second.total_loss == pytest.approx(1.5 * first.total_loss, rel=1e-5)
    with pytest.raises(ValueError, match="network main has no number 'kl'; it has policy/kl_coefficient"):
        network.get_variable_value("kl")
    with pytest.raises(ValueError, match="no number 'policy/kl'; it has none"):
        build().set_variable_value("policy/kl", 1.0)


@pytest.mark.row("B22")
def test_noise_is_drawn_in_training_alone(build):
    network = build(heads=VALUE, middleware_parameters={"scheme": [64], "dropout_rate": 0.5})
    quiet = network.predict(X)
    np.testing.assert_array_equal(network.predict(X), quiet)
    network.set_is_training(True)
    drawn = [network.predict(X) for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-3
    network.set_is_training(False)
    np.testing.assert_array_equal(network.predict(X), quiet)


@pytest.mark.parametrize("noisy", [{"dropout_rate": 0.5}, {"dense_layer": "noisy_dense"}])
def test_every_batch_gets_noise_of_its_own(build, noisy):
    network = build(heads=VALUE, middleware_parameters={"scheme": [64], **noisy})
    losses = [network.accumulate_gradients(X, [ONES]).total_loss for _ in range(3)]
    assert len(set(losses)) == 3
    twin = build(heads=VALUE, middleware_parameters={"scheme": [64], **noisy})
    assert [twin.accumulate_gradients(X, [ONES]).total_loss for _ in range(3)] == losses


@pytest.mark.row("C08", "T04")
def test_averages_move_only_when_inputs_are_passed(build):
    network = build(heads=VALUE, middleware_parameters={"scheme": [3], "batchnorm": True})
    weights = network.network.named_weights
    name = next(name for name in weights() if name.endswith("moving_mean"))
    kernel, bias = (weights()[f"main/middleware_dense_0/{part}"] for part in ("kernel", "bias"))
    network.set_is_training(True)
    network.predict(X)
    network.accumulate_gradients(X, [ONES])
    zeros = [np.zeros_like(gradient) for gradient in network.accumulated_gradients]
    network.apply_gradients(zeros)
    assert not weights()[name].any()
    network.apply_gradients(zeros, additional_inputs=X)
    expected = 0.01 * (ROWS @ kernel + bias).mean(axis=0)  # momentum 0.99
    np.testing.assert_allclose(weights()[name], expected, rtol=1e-5, atol=1e-8)


def test_str_tells_inputs_outputs_and_size(build):
    assert str(build()) == "observation[4] -> policy/action[2], value[]; 67 weights in 6 arrays"


def test_rows_are_weighted_by_importance_and_heads_by_their_weight(build):
    network = build(heads=(ValueHeadParameters(loss_weight=3.0), QHeadParameters(loss_weight=0.5))).network
    inputs = {"observation": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
    weights = np.float32([1.0, 0.0, 2.0, 0.5])
    targets = {0: np.zeros(4, np.float32), 1: {"actions": np.zeros(4, np.int32), "targets": np.zeros(4, np.float32)}}
    data = {"inputs": inputs, "targets": targets, "weights": weights}
    total, named = over_rows(network, ())(data)
    value, q, _ = network.predict(inputs)
    expected = [3.0 * np.mean(weights * value**2 / 2), 0.5 * np.mean(weights * q[:, 0] ** 2 / 2)]
    np.testing.assert_allclose(np.asarray(named["losses"]), expected, rtol=1e-5)
    assert float(total) == pytest.approx(sum(expected), rel=1e-5)
    assert list(named) == ["losses"]
