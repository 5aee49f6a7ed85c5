import numpy as np
import pytest

from distrl.config.heads import DuelingQHeadParameters, QHeadParameters
from distrl.errors import ConfigError

ROWS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.mark.row("D07.1")
def test_only_the_action_whose_target_differs_is_moved(build, choices):
    built = build(QHeadParameters(), choices(2))
    built.set_constant(q_head=[1.0, 2.0])
    target = np.array([[1.0, 3.0]], np.float32)
    np.testing.assert_allclose(built.loss(target, observation=ROWS[:1]), [0.5])
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, target), observation=ROWS[:1])
    np.testing.assert_array_equal(gradients["q/q"], [[0.0, -1.0]])
    np.testing.assert_array_equal(gradients["main/q_head/bias"], [0.0, -1.0])


@pytest.mark.row("D07.1")
def test_only_the_chosen_action_is_moved(build, choices):
    built = build(QHeadParameters(), choices(2))
    built.set_constant(q_head=[1.0, 2.0])
    targets = {"actions": np.array([1, 0], np.int32), "targets": np.array([3.0, 4.0], np.float32)}
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:2]), [0.5, 4.5])
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, targets), observation=ROWS[:2])
    np.testing.assert_array_equal(gradients["q/q"], [[0.0, -1.0], [-3.0, 0.0]])


@pytest.mark.row("A20", "D07.1")
def test_huber_in_place_of_the_square(build, choices):
    built = build(QHeadParameters(), choices(2), replace_mse_with_huber_loss=True)
    built.set_constant(q_head=[1.0, 2.0])
    targets = {"actions": np.array([1, 0], np.int32), "targets": np.array([2.5, -2.0], np.float32)}
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:2]), [0.125, 2.5])


@pytest.mark.row("A23", "D07.1")
def test_softmax_of_the_values(build, choices):
    built = build(QHeadParameters(), choices(2), softmax_temperature=0.5)
    built.set_constant(q_head=[1.0, 2.0])
    outputs = built.outputs(observation=ROWS[:1])
    np.testing.assert_allclose(outputs["q/softmax"], [[0.1192, 0.8808]], atol=1e-4)
    np.testing.assert_array_equal(outputs["q/q"], [[1.0, 2.0]])


@pytest.mark.row("D152", "D07.2", "L18")
def test_dueling_head(build, choices):
    built = build(DuelingQHeadParameters(units=(5,)), choices(3))
    built.set_constant(dueling_q_head_value=1.0, dueling_q_head_advantage=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(built.outputs(observation=ROWS[:1])["dueling_q/q"], [[0.0, 1.0, 2.0]])
    targets = {"actions": np.array([2], np.int32), "targets": np.array([5.0], np.float32)}
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:1]), [4.5])


def test_both_streams_have_layers_of_their_own(build, choices):
    built = build(DuelingQHeadParameters(units=(5,)), choices(3))
    names = {weight.path.split("/")[-2] for weight in built.model.weights}
    streams = ("value_hidden_0", "value", "advantage_hidden_0", "advantage")
    assert names == {f"dueling_q_head_{part}" for part in streams}
    # the state value moves all values alike, advantages never move their mean
    before = built.outputs(observation=ROWS)["dueling_q/q"]
    (bias,) = (weight for weight in built.model.weights if weight.path.endswith("head_value/bias"))
    bias.assign(bias + 2.0)
    np.testing.assert_allclose(built.outputs(observation=ROWS)["dueling_q/q"], before + 2.0, rtol=1e-5)


def test_other_actions_are_refused(build, box):
    with pytest.raises(ConfigError, match="head q: needs a discrete action; Box-v0 has one of kind box"):
        build(QHeadParameters(), box([-1.0], [1.0]))
