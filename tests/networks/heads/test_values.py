import numpy as np
import pytest

from distrl.config.heads import ValueHeadParameters

ROWS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def test_value_is_one_number_per_row(build, choices):
    built = build(ValueHeadParameters(), choices(2))
    kernel, bias = (np.asarray(weight) for weight in built.model.weights)
    outputs = built.outputs(observation=ROWS)
    assert list(outputs) == ["value"]
    assert outputs["value"].shape == (3,)
    np.testing.assert_allclose(outputs["value"], (ROWS @ kernel + bias)[:, 0], rtol=1e-5)


@pytest.mark.row("A20", "D07.8")
@pytest.mark.parametrize(("huber", "expected"), [(True, [0.125, 1.5, 2.5]), (False, [0.125, 2.0, 4.5])])
def test_loss_is_half_the_squared_error_or_hubers(build, choices, huber, expected):
    built = build(ValueHeadParameters(), choices(2), replace_mse_with_huber_loss=huber)
    built.set_constant(value_head=1.0)
    targets = np.array([1.5, 3.0, -2.0], np.float32)
    np.testing.assert_allclose(built.loss(targets, observation=ROWS), expected, rtol=1e-6)


@pytest.mark.row("D07.11")
def test_clipping_around_the_old_value(build, choices):
    built = build(ValueHeadParameters(clip_range=0.2), choices(2))
    built.set_constant(value_head=2.0)
    targets = {"targets": np.array([3.0], np.float32), "old_values": np.array([1.0], np.float32)}
    (loss,) = built.loss(targets, observation=ROWS[:1])
    assert 2.0 * loss == pytest.approx(3.24)  # the row's number is without the half


def test_targets_must_fit_the_configuration(build, choices):
    old = {"targets": np.zeros(3, np.float32), "old_values": np.zeros(3, np.float32)}
    with pytest.raises(ValueError, match="one tensor, not a mapping of targets, old_values"):
        build(ValueHeadParameters(), choices(2)).loss(old, observation=ROWS)
    clipped = build(ValueHeadParameters(clip_range=0.2), choices(2))
    with pytest.raises(ValueError, match="by name: targets, old_values"):
        clipped.loss(np.zeros(3, np.float32), observation=ROWS)
    with pytest.raises(ValueError, match="'old_values' is missing"):
        clipped.loss({"targets": np.zeros(3, np.float32)}, observation=ROWS)
    with pytest.raises(ValueError, match="unknown target 'odd'"):
        clipped.loss({**old, "odd": 1.0}, observation=ROWS)


def test_no_gradient_flows_into_targets(build, choices):
    built = build(ValueHeadParameters(), choices(2))
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, 2.0 * outputs["value"]), observation=ROWS)
    values = built.outputs(observation=ROWS)["value"]
    np.testing.assert_allclose(gradients["value"], values - 2.0 * values, rtol=1e-5)


@pytest.mark.row("D07.8")
def test_a_column_of_targets_is_a_row_and_other_shapes_are_refused(build, choices):
    built = build(ValueHeadParameters(), choices(2))
    built.set_constant(value_head=1.0)
    row = built.loss(np.float32([2.0, 1.0, 5.0]), observation=ROWS)
    column = built.loss(np.float32([[2.0], [1.0], [5.0]]), observation=ROWS)
    np.testing.assert_allclose(row, [0.5, 0.0, 8.0], rtol=1e-6)
    np.testing.assert_array_equal(column, row)
    for wrong in (np.zeros((3, 3), np.float32), np.zeros(2, np.float32), np.zeros((), np.float32)):
        with pytest.raises(ValueError, match=r"^a target of shape .* does not fit the head's output \[3\]$"):
            built.loss(wrong, observation=ROWS)
