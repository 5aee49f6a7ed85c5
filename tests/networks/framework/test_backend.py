"""The compiled step, gradients and application of gradients. Runs on TensorFlow and JAX."""

import keras
import numpy as np
import pytest
from keras import ops

from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.copies import Copies
from distrl.networks.framework.backend import (
    NAME,
    Gradients,
    Outputs,
    accelerator,
    compiled_apply,
    compiled_mix,
    compiled_read,
    compiled_write,
    hessian_product,
    value_and_gradients,
)
from distrl.networks.framework.differentiation import Part, Prelude
from distrl.networks.framework.differentiation import Prepared as Made
from distrl.networks.steps import Minibatches, Step
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec
from tests.traces import traces

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
T, N = 3, 4


def batch(value=1.0, rows=3, sequences=2):
    """Observations hold `value`; everything else is empty of meaning."""
    shape = (rows, sequences)
    return Batch(
        observations={"x": np.full((rows + 1, sequences), value, np.float32)},
        actions={"action": np.zeros(shape, np.int32)},
        rewards=np.zeros(shape, np.float32),
        terminated=np.zeros(shape, bool),
        truncated=np.zeros(shape, bool),
        valid=np.ones(shape, bool),
        behaviour_log_probabilities=np.zeros(shape, np.float32),
        recurrent_state={},
    )


class Line:
    """loss = mean(slope * x), so the gradient of slope is mean(x); `unused` has none, `seen` counts the calls."""

    def __init__(self, optimizer=None, function=None, clip=list):
        self.slope = keras.Variable(np.float32(2.0), name="slope")
        self.unused = keras.Variable(np.float32(7.0), name="unused")
        self.seen = keras.Variable(np.float32(0.0), name="seen", trainable=False)
        self.optimizer = optimizer or keras.optimizers.SGD(0.5)
        self.optimizer.build([self.slope, self.unused])
        self.step = Step(function or self.loss, [Part([self.slope, self.unused], self.optimizer, clip)], [self.seen])

    def loss(self, batch):
        self.seen.assign(self.seen + 1.0)
        y = self.slope * batch.observations["x"]
        return ops.mean(y), {"top": ops.max(y), "bottom": ops.min(y)}

    @property
    def values(self):
        return [np.array(variable) for variable in (self.slope, self.unused, self.seen, *self.optimizer.variables)]


def test_one_step_by_hand():
    line = Line()
    metrics = line.step(batch(value=3.0))
    known = {"top": 6.0, "bottom": 6.0, "loss": 6.0, "gradient_norm": 3.0, "learning_rate": 0.5, "finite": True}
    assert metrics == known
    assert list(metrics) == list(known)
    assert float(line.slope) == 0.5  # 2 - 0.5 * 3
    assert float(line.unused) == 7.0
    assert float(line.seen) == 1.0
    assert int(line.optimizer.iterations) == 1


def test_the_loss_sees_the_whole_batch():
    line = Line()

    def loss(batch):
        weights = ops.cast(batch.valid, "float32") * (batch.rewards + ops.cast(batch.actions["action"], "float32"))
        return ops.sum(line.slope * batch.observations["x"][:-1] * weights), {}

    step = Step(loss, [Part([line.slope, line.unused], line.optimizer)], [])
    given = batch()._replace(
        rewards=np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        actions={"action": np.ones((3, 2), np.int32)},
        valid=np.array([[1, 0], [0, 0], [0, 1]], bool),
    )
    assert step(given)["loss"] == 2.0 * ((1 + 1) + (6 + 1))


def test_the_norm_is_reported_before_clipping():
    line = Line(keras.optimizers.SGD(1.0), clip=lambda gradients: [0.2 * gradient for gradient in gradients])
    assert line.step(batch(value=5.0))["gradient_norm"] == 5.0
    assert float(line.slope) == pytest.approx(1.0)


class TwoParts:
    """loss = mean(a * x) + mean(b * k * x): two optimizers, and a constant that others set between updates."""

    def __init__(self):
        self.a, self.b = (keras.Variable(np.float32(value), name=name) for value, name in ((1.0, "a"), (2.0, "b")))
        self.k = keras.Variable(np.float32(10.0), name="k", trainable=False)
        fast, slow = keras.optimizers.SGD(0.5), keras.optimizers.SGD(0.25)
        fast.build([self.a])
        slow.build([self.b])
        halved = Part([self.b], slow, clip=lambda gradients: [0.5 * gradient for gradient in gradients])
        self.step = Step(self.loss, [Part([self.a], fast), halved], [], [self.k])

    def loss(self, batch):
        x = batch.observations["x"][0]
        return ops.mean(self.a * x) + ops.mean(self.b * self.k * x), {"rows": x * self.k}


def test_every_part_has_an_optimizer_and_clipping_of_its_own():
    parts = TwoParts()
    metrics = parts.step(batch(value=2.0))
    assert (metrics["loss"], metrics["learning_rate"]) == (1.0 * 2.0 + 2.0 * 10.0 * 2.0, 0.5)
    assert metrics["gradient_norm"] == pytest.approx(np.hypot(2.0, 20.0))
    assert float(parts.a) == 1.0 - 0.5 * 2.0
    assert float(parts.b) == 2.0 - 0.25 * 0.5 * 20.0


def test_constants_are_read_anew_at_every_update_and_never_written():
    parts = TwoParts()
    np.testing.assert_array_equal(parts.step(batch(value=2.0))["rows"], [20.0, 20.0])  # of every item, as an array
    parts.k.assign(np.float32(0.0))
    before = float(parts.b)
    np.testing.assert_array_equal(parts.step(batch(value=2.0))["rows"], [0.0, 0.0])
    assert (float(parts.b), float(parts.k), traces(parts.step)) == (before, 0.0, 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_an_update_that_is_not_finite_changes_nothing(bad):
    line = Line(keras.optimizers.Adam(0.1))
    line.step(batch())
    before = line.values
    metrics = line.step(batch(value=bad))
    assert metrics["finite"] is False
    for old, new in zip(before, line.values, strict=True):
        np.testing.assert_array_equal(old, new)
    assert line.step(batch())["finite"] is True
    assert float(line.slope) != before[0]
    assert float(line.seen) == 2.0


def test_traced_once_per_shape():
    line = Line()
    assert traces(line.step) == 0
    for value in range(5):
        line.step(batch(value=float(value)))
    assert traces(line.step) == 1
    line.step(batch(rows=4))
    line.step(batch())
    assert traces(line.step) == 2


def test_the_learning_rate_is_that_of_the_update():
    schedule = keras.optimizers.schedules.ExponentialDecay(1.0, decay_steps=1, decay_rate=0.5, staircase=True)
    line = Line(keras.optimizers.SGD(schedule))
    assert [line.step(batch())["learning_rate"] for _ in range(3)] == [1.0, 0.5, 0.25]


class Rows(Line):
    """The line over minibatches of data {"x": [rows]}; each minibatch's metric "mean" is that of its x."""

    def __init__(self, stop=None, optimizer=None):
        super().__init__(optimizer)
        part = Part([self.slope, self.unused], self.optimizer)
        minibatches = Minibatches(self.take, lambda data: ORDER, stop)
        self.epochs = Step(self.rows_loss, [part], [self.seen], minibatches=minibatches)

    def take(self, data, items):
        return {"x": ops.take(data["x"], items, axis=0)}

    def rows_loss(self, data):
        self.seen.assign(self.seen + 1.0)
        return ops.mean(self.slope * self.through(data["x"])), {"mean": ops.mean(data["x"])}

    @staticmethod
    def through(x):
        return x


ORDER = np.int32([[0, 1], [2, 3], [3, 0]])
DATA = {"x": np.float32([1.0, 3.0, 4.0, 6.0])}  # means of the minibatches: 2, 5, 3.5


def convolved(x):
    return ops.conv(x[:, None, None], np.ones((1, 1, 1), np.float32))[:, 0, 0]


@pytest.fixture(params=["plain", "with a convolution"])
def _each_way(request, monkeypatch):
    """Minibatches with convolutions are programs of their own for JAX on a CPU."""
    if request.param != "plain":
        monkeypatch.setattr(Rows, "through", staticmethod(convolved))


each_way = pytest.mark.usefixtures("_each_way")


@each_way
def test_epochs_by_hand():
    line = Rows()
    metrics = line.epochs(DATA)
    # slope: 2 - .5 x 2 = 1, 1 - .5 x 5 = -1.5, -1.5 - .5 x 3.5 = -3.25; losses 2 x 2, 1 x 5, -1.5 x 3.5
    expected = {"mean": 3.5, "loss": 3.75 / 3, "gradient_norm": 3.5, "learning_rate": 0.5}
    assert metrics == pytest.approx({**expected, "optimizer_steps": 3, "finite": True})
    assert [float(line.slope), float(line.unused), float(line.seen)] == [-3.25, 7.0, 3.0]
    assert int(line.optimizer.iterations) == 3


@each_way
def test_epochs_tell_the_rate_of_the_first_step_and_use_each_ones_own():
    schedule = keras.optimizers.schedules.ExponentialDecay(1.0, decay_steps=1, decay_rate=0.5, staircase=True)
    line = Rows(optimizer=keras.optimizers.SGD(schedule))
    assert line.epochs(DATA)["learning_rate"] == 1.0
    assert float(line.slope) == 2.0 - 2.0 - 0.5 * 5.0 - 0.25 * 3.5
    assert line.epochs(DATA)["learning_rate"] == 0.125


@each_way
@pytest.mark.parametrize(("bound", "steps", "slope"), [(1.0, 0, 2.0), (4.0, 1, 1.0), (5.0, 3, -3.25)])
def test_epochs_stop_before_the_first_minibatch_beyond_the_bound(bound, steps, slope):
    line = Rows(stop=("mean", bound))
    metrics = line.epochs(DATA)
    assert (metrics["optimizer_steps"], metrics["finite"]) == (steps, True)
    assert float(line.slope) == slope
    assert float(line.seen) == steps
    assert metrics["mean"] == pytest.approx({0: 2.0, 1: 3.5, 3: 3.5}[steps])  # of those looked at


@each_way
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_epochs_with_one_step_that_is_not_finite_change_nothing(bad):
    line = Rows(optimizer=keras.optimizers.Adam(0.1))
    line.epochs(DATA)
    before = line.values
    metrics = line.epochs({"x": np.float32([1.0, 3.0, bad, 6.0])})  # in the second of three
    assert (metrics["finite"], metrics["optimizer_steps"]) == (False, 0)
    for old, new in zip(before, line.values, strict=True):
        np.testing.assert_array_equal(old, new)
    assert line.epochs(DATA)["finite"] is True
    assert float(line.slope) != before[0]


@each_way
def test_epochs_are_traced_once_per_shape():
    line = Rows()
    for _ in range(3):
        line.epochs(DATA)
    assert traces(line.epochs) == 1
    if NAME == "jax":
        assert line.epochs._compiled._is_scan == (accelerator() is not None or Rows.through is not convolved)


class Prepared(Rows):
    """Before the minibatches `scale` becomes 1 + slope, and x is multiplied by it; the loss has it as a factor."""

    def __init__(self, optimizer=None):
        super().__init__(optimizer=optimizer)
        self.scale = keras.Variable(np.float32(10.0), name="scale", trainable=False)
        part = Part([self.slope, self.unused], self.optimizer)
        minibatches = Minibatches(self.take, lambda data: ORDER, prelude=Prelude(self.prepare, [self.scale]))
        self.epochs = Step(self.scaled_loss, [part], [self.seen], [self.scale], minibatches=minibatches)

    def prepare(self, data):
        scale = 1.0 + self.slope.value
        told = {"before": self.scale.value, "after": scale, "all": ops.sum(data["x"])}
        return Made([scale], {"x": scale * data["x"]}, told)

    def scaled_loss(self, data):
        loss, metrics = self.rows_loss(data)
        return self.scale.value * loss, metrics

    @property
    def values(self):
        return [*super().values, np.array(self.scale)]


@each_way
def test_a_prelude_moves_variables_and_makes_the_data_of_all_minibatches():
    """Scale becomes 1 + 2 and x is trebled, so slope becomes 2 - .5 x 9 x (2 + 5 + 3.5), and scale then 1 + that."""
    line = Prepared()
    metrics = line.epochs(DATA)
    assert float(line.slope) == 2.0 - 0.5 * 9.0 * 10.5
    assert (metrics["before"], metrics["after"], metrics["all"], metrics["mean"]) == (10.0, 3.0, 14.0, 10.5)
    assert list(metrics)[-4:] == ["finite", "before", "after", "all"]
    scale = 1.0 + float(line.slope)
    again = line.epochs(DATA)
    assert (again["before"], again["after"], float(line.scale)) == (3.0, scale, scale)
    assert traces(line.epochs) == 1


@each_way
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_prelude_that_is_not_finite_or_minibatches_that_are_not_move_nothing(bad):
    line = Prepared(keras.optimizers.Adam(0.1))
    line.epochs(DATA)
    before = line.values
    for rows in ([1.0, bad, 4.0, 6.0], [1.0, 3.0, 4.0, bad]):
        metrics = line.epochs({"x": np.float32(rows)})
        assert (metrics["finite"], metrics["optimizer_steps"]) == (False, 0)
        for old, new in zip(before, line.values, strict=True):
            np.testing.assert_array_equal(old, new)
    assert line.epochs(DATA)["finite"] is True
    assert float(line.scale) == pytest.approx(1.0 + float(before[0]))


@each_way
def test_a_prelude_alone_refuses_an_update():
    """No minibatch has the fifth row."""
    line = Prepared()
    before = line.values
    metrics = line.epochs({"x": np.float32([1.0, 3.0, 4.0, 6.0, np.nan])})
    assert np.isfinite([metrics["loss"], metrics["gradient_norm"]]).all()
    assert (metrics["finite"], metrics["optimizer_steps"]) == (False, 0)
    for old, new in zip(before, line.values, strict=True):
        np.testing.assert_array_equal(old, new)


def cubic(values):
    """f(u, v) = sum(u)^3 + sum(u) v^2, with u of two elements; the third value has no part in it."""
    u, v, _ = values
    return ops.sum(u) ** 3 + ops.sum(u) * v**2


AT = [np.float32([1.0, 2.0]), np.float32(5.0), np.float32(7.0)]


def test_value_and_gradients():
    """f = 27 + 75; df/du = 3 x 9 + 25 for both, df/dv = 2 x 3 x 5."""

    def function(data):
        value, gradients = value_and_gradients(cubic, [ops.convert_to_tensor(each) for each in data["at"]])
        return value, {"value": value, **dict(zip("uvw", gradients, strict=True))}

    found = Outputs(function, [])({"at": AT})
    assert [found[name].tolist() for name in ("value", *"uvw")] == [102.0, [52.0, 52.0], 30.0, 0.0]


@pytest.mark.parametrize("within", ["alone", "in a loop"])
def test_products_with_the_hessian(within):
    """Second derivatives: 6 x 3 between all of u, 2 x 5 between u and v, 2 x 3 of v."""

    def function(data):
        product = hessian_product(cubic, [ops.convert_to_tensor(each) for each in data["at"]])
        along = [ops.convert_to_tensor(each) for each in data["along"]]
        if within == "alone":
            result = product(along)
        else:  # 2 products one after the other, as conjugate gradients take them
            result = ops.while_loop(lambda i, *_: i < 2, lambda i, *each: (i + 1, *product([*each])), (0, *along))[1:]
        return ops.zeros(()), dict(zip("uvw", result, strict=True))

    hessian = np.zeros((4, 4))
    hessian[:2, :2], hessian[:2, 2], hessian[2, :2], hessian[2, 2] = 18.0, 10.0, 10.0, 6.0
    expected = (hessian if within == "alone" else hessian @ hessian) @ [1.0, -3.0, 2.0, 9.0]
    found = Outputs(function, [])({"at": AT, "along": [np.float32([1.0, -3.0]), np.float32(2.0), np.float32(9.0)]})
    np.testing.assert_allclose(np.concatenate([found[name].ravel() for name in "uvw"]), expected, rtol=1e-6)


def test_gradients_change_nothing():
    line = Line()
    gradients = Gradients(line.loss, [line.slope, line.unused], [line.seen])
    before = line.values
    for value in (3.0, 5.0):
        loss, named, found = gradients(batch(value=value))
        assert (loss, float(named["top"])) == (2.0 * value, 2.0 * value)
        assert [float(gradient) for gradient in found] == [value, 0.0]
        assert float(gradients.after([line.seen])[0]) == 1.0
    assert traces(gradients) == 1
    assert all(np.array_equal(old, new) for old, new in zip(before, line.values, strict=True))


def test_gradients_are_clipped_where_they_are_computed():
    line, seen = Line(), []

    def clip(gradients):
        seen.append(len(gradients))
        return [0.5 * gradient for gradient in gradients]

    gradients = Gradients(line.loss, [line.slope, line.unused], [line.seen], clip)
    for value in (3.0, 5.0):
        assert [float(gradient) for gradient in gradients(batch(value=value))[2]] == [0.5 * value, 0.0]
    assert seen == [2]  # while tracing, and never again


def test_given_gradients_are_scaled_and_applied():
    line = Line()
    given = [np.float32(4.0), np.float32(-2.0)]
    apply = compiled_apply(line.optimizer, [line.slope, line.unused])
    apply(given)
    assert [float(line.slope), float(line.unused)] == [0.0, 8.0]
    apply(given, 0.5)
    assert [float(line.slope), float(line.unused)] == [-1.0, 8.5]
    assert given == [4.0, -2.0]
    assert int(line.optimizer.iterations) == 2


def wrap(seed=1, **parameters):
    small = {"middleware_parameters": {"scheme": [8]}, "learning_rate": 0.05} | parameters
    heads = (PolicyHeadParameters(), ValueHeadParameters())
    return Copies(
        NetworkParameters.model_validate(small), SPEC, heads, has_target=True, has_global=False, name="main", seed=seed
    )


def loss(outputs, batch):
    error = outputs["value"][:-1] - batch.rewards
    terms = {"policy": ops.mean(outputs["policy/action"] ** 2), "value": ops.mean(error * error)}
    return terms, {"error": ops.mean(error)}


def batches(network, count, seed=0):
    rng = np.random.default_rng(seed)
    state = network.online.recurrent_state
    for _ in range(count):
        yield Batch(
            observations={"observation": rng.standard_normal((T + 1, N, 4)).astype(np.float32)},
            actions={"action": np.zeros((T, N), np.int32)},
            rewards=rng.standard_normal((T, N)).astype(np.float32),
            terminated=np.zeros((T, N), bool),
            truncated=np.zeros((T, N), bool),
            valid=rng.random((T, N)) < 0.8,
            behaviour_log_probabilities=np.zeros((T, N), np.float32),
            recurrent_state={name: np.zeros((N, *spec.shape), np.float32) for name, spec in state.items()},
        )


def assert_same(left, right):
    assert left.keys() == right.keys()
    for group in left:
        assert left[group].keys() == right[group].keys()
        for path in left[group]:
            np.testing.assert_array_equal(left[group][path], right[group][path], err_msg=f"{group} {path}")


RANDOM = {
    "input_embedders_parameters": {"observation": {"scheme": [6], "normalize": True, "batchnorm": True}},
    "middleware_parameters": {"scheme": [8], "dense_layer": "noisy_dense", "dropout_rate": 0.2},
}
NETWORKS = {
    "random": RANDOM,
    "lstm": {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 5}},
    "schedule": {"learning_rate_decay_rate": 0.5, "learning_rate_decay_steps": 2, "optimizer_type": "RMSProp"},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_restored_training_goes_on_bit_by_bit_and_is_traced_once(name):
    network, other = wrap(**NETWORKS[name]), wrap(seed=2, **NETWORKS[name])
    step, other_step = network.train_step(loss), other.train_step(loss)
    for given in batches(network, 2, seed=1):
        step(given)
        network.statistics.observe(given)
        network.update_target_network(0.3)
    saved = network.state_arrays()
    expected = [step(given) for given in batches(network, 3, seed=2)]
    for given in batches(other, 1, seed=3):
        other_step(given)  # somewhere else entirely
    other.restore(saved)
    assert_same(other.state_arrays(), saved)
    assert [other_step(given) for given in batches(other, 3, seed=2)] == expected
    assert_same(other.state_arrays(), network.state_arrays())
    assert (traces(step), traces(other_step)) == (1, 1)


def test_states_of_layers_come_out_of_the_step():
    network = wrap(**RANDOM)
    step = network.train_step(loss)
    seen = []
    for given in batches(network, 3):
        step(given)
        state = network.state_arrays()["online"]
        seen.append({name: array for name, array in state.items() if "moving" in name or "noise" in name})
    kinds = {name.rpartition("/")[2] for name in seen[0]}
    assert {"moving_mean", "moving_variance"} < kinds
    assert any("dropout_noise" in name for name in seen[0])
    for name in seen[0]:
        assert not np.array_equal(seen[0][name], seen[1][name]), name
        assert not np.array_equal(seen[1][name], seen[2][name]), name


def test_a_network_is_left_as_it_was_by_a_batch_that_is_not_finite():
    network = wrap(**RANDOM)
    step = network.train_step(loss)
    good, bad = batches(network, 2)
    step(good)
    before = network.state_arrays()
    bad.rewards[1, 2] = np.nan
    assert step(bad)["finite"] is False
    assert_same(network.state_arrays(), before)


def test_arrays_that_become_weights_are_copied():
    network = wrap()
    arrays = [np.array(array) for array in network.online.get_weights()]
    network.online.set_weights(arrays)
    for array in arrays:
        array[...] = 9.0
    assert not any((array == 9.0).any() for array in network.online.get_weights())


def test_the_framework_is_the_one_that_keras_runs_on():
    assert keras.backend.backend() == NAME


def test_mix_moves_targets_towards_their_sources():
    targets = [keras.Variable(np.array(values, "float32")) for values in ([1.0, 2.0], [[3.0]])]
    sources = [keras.Variable(np.array(values, "float32")) for values in ([2.0, 4.0], [[-1.0]])]
    mix = compiled_mix(list(zip(targets, sources, strict=True)), [])
    for rate, expected in ((0.25, ([1.25, 2.5], [[2.0]])), (0.5, ([1.625, 3.25], [[0.5]]))):
        mix(rate)
        for target, values in zip(targets, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(target.value), np.array(values, "float32"))
    sources[1].assign([[1.5]])  # what they are when asked, not when made
    mix(0.5)
    np.testing.assert_array_equal(np.asarray(targets[1].value), [[1.0]])
    np.testing.assert_array_equal(np.asarray(sources[0].value), [2.0, 4.0])


def test_mix_copies_what_is_not_mixed_whatever_the_rate():
    mixed = [keras.Variable(np.float32([value])) for value in (1.0, 3.0)]
    counts = [keras.Variable(np.int32([value]), dtype="int32") for value in (5, 7)]
    mix = compiled_mix([(mixed[0], mixed[1])], [(counts[0], counts[1])])
    mix(0.25)
    assert ([float(one.value[0]) for one in mixed], int(counts[0].value[0])) == ([1.5, 3.0], 7)
    only_copied = compiled_mix([], [(mixed[0], mixed[1])])
    only_copied(1.0)
    assert float(mixed[0].value[0]) == 3.0


def test_copies_stay_when_what_they_were_made_of_is_trained():
    line = Line(keras.optimizers.Adam(0.5))
    kept = keras.Variable(np.float32(0.0))
    read, copy = compiled_read([line.slope, line.unused]), compiled_mix([], [(kept, line.slope)])
    copy(1.0)
    before = read()
    line.step(batch())
    assert [float(array) for array in before] == [2.0, 7.0]
    assert (float(kept), float(line.slope)) == (2.0, pytest.approx(1.5, rel=1e-4))
    assert [float(array) for array in read()] == pytest.approx([1.5, 7.0], rel=1e-4)


def test_variables_of_any_dtype_and_shape_are_read_as_arrays_of_ones_own():
    given = [np.float32([[1.5, 2.5]]), np.int32(3), np.array([True, False]), np.zeros((0, 2), np.float32)]
    variables = [keras.Variable(array, dtype=str(array.dtype)) for array in given]
    read = compiled_read(variables)
    for array, expected in zip(read(), given, strict=True):
        np.testing.assert_array_equal(array, expected)
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
        array[...] = 0
    for array, expected in zip(read(), given, strict=True):
        np.testing.assert_array_equal(array, expected)
    assert compiled_read([])() == []


def test_write_sets_every_variable_of_a_group():
    means, variances = ([keras.Variable(np.zeros(2, np.float32)) for _ in range(count)] for count in (2, 1))
    write, mean = compiled_write([means, variances]), np.float32([1.0, 2.0])
    write([mean, np.float32([3.0, 4.0])])
    mean[:] = 9.0  # the caller's, to write into again
    assert [np.array(one).tolist() for one in (*means, *variances)] == [[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]
    means[0].assign([5.0, 5.0])
    assert np.array(means[1]).tolist() == [1.0, 2.0]
