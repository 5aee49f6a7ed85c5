import keras
import numpy as np
from keras import ops

from distrl.networks.framework.differentiation import PureLoss


def variable(value, name, trainable=True):
    return keras.Variable(np.float32(value), name=name, trainable=trainable)


def test_nothing_is_changed_and_what_was_assigned_comes_out():
    slope, average = variable(2.0, "slope"), variable(7.0, "average", trainable=False)

    def function(x):
        average.assign(average + x)
        return slope.value * x, {"seen": average.value * 10.0}

    loss = PureLoss(function, [slope], [average])
    total, (named, others) = loss([ops.convert_to_tensor(5.0)], [ops.convert_to_tensor(1.0)], 3.0)
    assert (float(total), float(named["seen"]), [float(other) for other in others]) == (15.0, 40.0, [4.0])
    assert (float(slope.value), float(average.value)) == (2.0, 7.0)


def test_random_numbers_follow_from_the_state_that_is_passed():
    generator = keras.random.SeedGenerator(1, name="noise")
    loss = PureLoss(lambda _: (keras.random.normal((), seed=generator), {}), [], [generator.state])
    before = np.array(np.asarray(generator.state))
    first, (_, (state,)) = loss([], [generator.state.value], None)
    again, _ = loss([], [generator.state.value], None)
    then, _ = loss([], [state], None)
    assert float(first) == float(again) != float(then)
    np.testing.assert_array_equal(np.asarray(generator.state), before)


def test_losses_that_layers_add_are_there_to_be_read():
    layer = keras.layers.ActivityRegularization(l1=0.5, name="activity")
    inputs = keras.Input((2,))
    model = keras.Model(inputs, layer(inputs))

    def function(x):
        model(x)
        return sum(model.losses), {}

    loss = PureLoss(function, [], [])
    for factor in (1.0, 2.0):  # each call has its own, and none is left of the one before
        total, _ = loss([], [], ops.convert_to_tensor(factor * np.float32([[1.0, -3.0]])))
        assert float(total) == 2.0 * factor
