import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.beta import BetaSpec
from distrl.networks.actions.bounded_gaussian import BoundedGaussianSpec
from distrl.networks.actions.categorical import (
    Categorical,
    CategoricalSpec,
    MultiCategoricalSpec,
    greedy,
    sample_categorical,
)
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.joint import ActionSelector, JointDistribution
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.networks.actions.values import MultiValuesSpec

LOGITS = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(-100, 100, width=32))


@pytest.mark.row("D83")
@pytest.mark.parametrize("p", [[0.2, 0.8], [0.5, 0.1, 0.4], [0.05, 0.15, 0.3, 0.5]])
def test_frequencies_are_the_probabilities(p):
    logits = np.tile(np.log(np.array(p, np.float32)), (100_000, 1))
    actions, _ = sample_categorical(logits, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(actions, minlength=len(p)) / 1e5, p, atol=0.01)


def test_rows_are_drawn_independently():
    logits = np.zeros((50_000, 2), np.float32)
    actions, _ = sample_categorical(logits, np.random.default_rng(0))
    assert abs(np.corrcoef(actions[:-1], actions[1:])[0, 1]) < 0.02


def test_dtypes_shapes_and_seed():
    logits = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    actions, log_probabilities = sample_categorical(logits, np.random.default_rng(2))
    assert (actions.dtype, actions.shape) == (np.int32, (5,))
    assert (log_probabilities.dtype, log_probabilities.shape) == (np.float32, (5,))
    again, _ = sample_categorical(logits, np.random.default_rng(2))
    np.testing.assert_array_equal(actions, again)


@given(LOGITS, st.integers(0, 2**32 - 1))
def test_log_probabilities_are_the_learners(logits, seed):
    actions, log_probabilities = sample_categorical(logits, np.random.default_rng(seed))
    learners = np.asarray(Categorical().log_probability(logits, actions))
    np.testing.assert_allclose(log_probabilities, learners, rtol=1e-6, atol=1e-6)
    assert ((actions >= 0) & (actions < logits.shape[1])).all()


@given(LOGITS, st.integers(0, 2**32 - 1))
def test_logits_stay_as_they_are(logits, seed):
    before = logits.copy()
    sample_categorical(logits, np.random.default_rng(seed))
    np.testing.assert_array_equal(logits, before)


class Edge:
    """A generator at the edges of [0, 1)."""

    def __init__(self, number):
        self._number = np.float32(number)

    def random(self, size, dtype):
        return np.full(size, self._number, dtype)


@pytest.mark.parametrize("number", [0.0, 1.0 - 2.0**-24])
@pytest.mark.parametrize("logits", [[-1e4, 0.0, -1e4], [-1e4, 1e4, -1e4], [-200.0, 3.7, -200.0]])
def test_an_impossible_action_is_never_drawn(number, logits):
    actions, log_probabilities = sample_categorical(np.array([logits], np.float32), Edge(number))
    assert actions.tolist() == [1]
    assert log_probabilities.tolist() == [0.0]


def test_edges_of_the_generator_reach_the_first_and_the_last_action():
    logits = np.zeros((1, 4), np.float32)
    assert sample_categorical(logits, Edge(1.0 - 2.0**-24))[0].tolist() == [0]
    assert sample_categorical(logits, Edge(0.0))[0].tolist() == [3]


@pytest.mark.row("D83", "D86")
def test_greedy_takes_the_first_of_the_best():
    actions = greedy(np.array([[1.0, 3.0, 2.0], [5.0, 0.0, 5.0], np.log([0.2, 0.5, 0.3])], np.float32))
    assert actions.tolist() == [1, 0, 1]
    assert actions.dtype == np.int32


LOW, HIGH = (-2.0, 0.5), (2.0, 3.5)
SPECS = {
    "turn": CategoricalSpec(3),
    "gears": MultiCategoricalSpec((2, 4)),
    "switches": BernoulliSpec(3),
    "force": GaussianSpec(2),
    "arm": SquashedGaussianSpec(LOW, HIGH),
    "valve": BetaSpec(LOW, HIGH),
    "leg": BoundedGaussianSpec(LOW, HIGH),
}


def outputs_of(seed, rows, bound, head="policy"):
    rng = np.random.default_rng(seed)
    return {
        f"{head}/{name}": rng.uniform(-bound, bound, (rows, spec.parameters_size)).astype(np.float32)
        for name, spec in SPECS.items()
    }


def sample(name, parameters, rows=100_000, seed=0):
    """Actions of one kind, all rows from the same parameters."""
    outputs = {f"policy/{name}": np.tile(np.array(parameters, np.float32), (rows, 1))}
    return ActionSelector({name: SPECS[name]}).sample(outputs, np.random.default_rng(seed))[0][name]


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("turn", np.int32, (5,)),
        ("gears", np.int32, (5, 2)),
        ("switches", np.int32, (5, 3)),
        ("force", np.float32, (5, 2)),
        ("arm", np.float32, (5, 2)),
        ("valve", np.float32, (5, 2)),
        ("leg", np.float32, (5, 2)),
    ],
)
def test_actions_have_the_dtype_and_shape_of_their_spec(name, dtype, shape):
    selector, outputs = ActionSelector(SPECS), outputs_of(1, 5, 2)
    actions, log_probabilities = selector.sample(outputs, np.random.default_rng(0))
    assert list(actions) == list(SPECS)
    for chosen in (actions, selector.mode(outputs)):
        assert (chosen[name].dtype, chosen[name].shape) == (dtype, shape)
    assert (log_probabilities.dtype, log_probabilities.shape) == (np.float32, (5,))


# Where a log-density is steep, float32 shows: the narrowest squashed Gaussian has slopes of some (u - mean) / sigma^2,
# and the terms of a Beta's log-density are as large as alpha + beta.
@pytest.mark.row("L22")
@pytest.mark.parametrize(
    ("bound", "tolerance"), [(1, 1e-5), (3, 1e-4), (12, 3e-3), (50, 3e-3), (1000, 3e-3)], ids=lambda number: str(number)
)
@pytest.mark.parametrize("name", SPECS)
def test_log_probabilities_are_the_learners_for_every_kind(name, bound, tolerance):
    specs, outputs = {name: SPECS[name]}, outputs_of(bound, 500, bound)
    before = {key: parameters.copy() for key, parameters in outputs.items()}
    actions, log_probabilities = ActionSelector(specs).sample(outputs, np.random.default_rng(3))
    learners = np.asarray(JointDistribution(specs).log_probability(outputs, actions))
    np.testing.assert_allclose(log_probabilities, learners, rtol=1e-5, atol=tolerance)
    for key, parameters in before.items():
        np.testing.assert_array_equal(outputs[key], parameters)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.floats(0, 5))
def test_joint_log_probabilities_are_the_learners(seed, rows, bound):
    outputs = outputs_of(seed, rows, bound, head="behaviour")
    actions, log_probabilities = ActionSelector(SPECS, head="behaviour").sample(outputs, np.random.default_rng(seed))
    learners = np.asarray(JointDistribution(SPECS, head="behaviour").log_probability(outputs, actions))
    np.testing.assert_allclose(log_probabilities, learners, rtol=1e-5, atol=1e-3)


@pytest.mark.row("D83", "D86")
@pytest.mark.parametrize("bound", [2, 50, 1000])
def test_modes_are_the_learners(bound):
    outputs = outputs_of(1, 500, bound)
    modes = ActionSelector(SPECS).mode(outputs)
    for name, learners in JointDistribution(SPECS).mode(outputs).items():
        np.testing.assert_allclose(modes[name], np.asarray(learners), rtol=1e-6, atol=1e-6)


def test_modes_of_known_parameters():
    outputs = {
        "policy/turn": [[1, 3, 2]],
        "policy/gears": [[1, 0, 0, 2, 9, 9]],
        "policy/switches": [[-0.1, 0.0, 0.1]],
        "policy/force": [[0.5, -7, 3, 3]],
        "policy/arm": [[0, np.arctanh(0.5), 1, 1]],
        "policy/valve": [[2, -50, 2, 50]],
        "policy/leg": [[np.arctanh(-0.25), 50, 3, -3]],
    }
    modes = ActionSelector(SPECS).mode({name: np.array(rows, np.float32) for name, rows in outputs.items()})
    expected = {
        "turn": [1],
        "gears": [[0, 2]],
        "switches": [[0, 1, 1]],
        "force": [[0.5, -7]],
        "arm": [[0, 0.5 + 0.75 * 3]],
        "valve": [[0, 0.5 + 3 / 52]],
        "leg": [[-0.5, 3.5]],
    }
    for name, actions in expected.items():
        np.testing.assert_allclose(modes[name], actions, rtol=1e-6, atol=1e-6)


@pytest.mark.row("L23.5")
def test_frequencies_of_several_choices():
    drawn = sample("gears", np.log([0.2, 0.8, 0.1, 0.2, 0.3, 0.4]))
    table = np.histogram2d(*drawn.T, bins=[range(3), range(5)])[0] / 1e5
    np.testing.assert_allclose(table, np.outer([0.2, 0.8], [0.1, 0.2, 0.3, 0.4]), atol=0.01)


@pytest.mark.row("L23.5")
def test_a_masked_choice_is_never_drawn():
    drawn = sample("turn", [1.0, 2.0 - 1e9, 3.0])
    assert set(drawn) == {0, 2}


@pytest.mark.row("L23.2")
def test_frequencies_of_switches():
    drawn = sample("switches", [np.log(3 / 7), 0.0, -1e4])
    np.testing.assert_allclose(drawn.mean(axis=0), [0.3, 0.5, 0.0], atol=0.01)
    assert drawn[:, 2].max() == 0
    assert abs(np.corrcoef(drawn[:, :2].T)[0, 1]) < 0.02


@pytest.mark.row("L23.1")
def test_moments_of_a_gaussian():
    drawn = sample("force", [1, -3, np.log(2), np.log(0.5)])
    np.testing.assert_allclose(drawn.mean(axis=0), [1, -3], atol=0.03)
    np.testing.assert_allclose(drawn.std(axis=0), [2, 0.5], rtol=0.01)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.02


def test_moments_of_a_bounded_gaussian():
    """The mean is within the bounds, actions are not; deviations are in halves of the width, from e^-5 to e^2."""
    drawn = sample("leg", [0.5, -50, np.log(0.5), -9]).astype(np.float64)
    np.testing.assert_allclose(drawn.mean(axis=0), [2 * np.tanh(0.5), 0.5], atol=0.02)
    np.testing.assert_allclose(drawn.std(axis=0), [2 * 0.5, 1.5 * np.exp(-5)], rtol=0.01)
    assert (drawn < LOW).any()
    assert (drawn > HIGH).any()


@pytest.mark.row("L23.5", "D07.13")
def test_moments_of_a_squashed_gaussian():
    drawn = sample("arm", [0.5, -0.3, -0.5, 0.2]).astype(np.float64)
    assert ((drawn > LOW) & (drawn < HIGH)).all()
    u = np.arctanh(2 * (drawn - LOW) / np.subtract(HIGH, LOW) - 1)
    np.testing.assert_allclose(u.mean(axis=0), [0.5, -0.3], atol=0.02)
    np.testing.assert_allclose(u.std(axis=0), np.exp([-0.5, 0.2]), rtol=0.01)


@pytest.mark.row("L23.4")
def test_moments_of_a_beta():
    drawn = sample("valve", [1, 4, -1, 2])
    alpha, beta = np.split(1 + np.logaddexp(0, [1, 4, -1, 2]), 2)
    mean = alpha / (alpha + beta)
    deviation = np.sqrt(mean * (1 - mean) / (alpha + beta + 1))
    width = np.subtract(HIGH, LOW)
    np.testing.assert_allclose(drawn.mean(axis=0), LOW + mean * width, atol=0.02)
    np.testing.assert_allclose(drawn.std(axis=0), deviation * width, rtol=0.01)


@pytest.mark.row("L23.4")
@given(
    st.floats(-1e6, 1e6, width=32),
    st.floats(2**-10, 1e6, width=32),
    arrays(np.float32, (7, 2), elements=st.floats(-1e4, 1e4, width=32)),
    st.integers(0, 2**32 - 1),
)
def test_bounded_actions_are_inside_their_bounds(low, width, parameters, seed):
    high = float(np.float32(low + width))
    assume(high > low)
    for spec in (SquashedGaussianSpec((low,), (high,)), BetaSpec((low,), (high,))):
        selector, outputs = ActionSelector({"a": spec}), {"policy/a": parameters}
        actions, log_probabilities = selector.sample(outputs, np.random.default_rng(seed))
        for chosen in (actions["a"], selector.mode(outputs)["a"]):
            assert ((chosen >= low) & (chosen <= high)).all()
        assert np.isfinite(log_probabilities).all()
        learners = np.asarray(JointDistribution({"a": spec}).log_probability(outputs, actions))
        np.testing.assert_allclose(log_probabilities, learners, rtol=1e-4, atol=1e-2)


def test_equal_generators_draw_equal_actions():
    outputs = outputs_of(1, 9, 2)
    drawn = [ActionSelector(SPECS).sample(outputs, np.random.default_rng(seed)) for seed in (4, 4, 5)]
    for name in SPECS:
        np.testing.assert_array_equal(drawn[0][0][name], drawn[1][0][name])
    np.testing.assert_array_equal(drawn[0][1], drawn[1][1])
    assert (drawn[0][1] != drawn[2][1]).any()


def test_the_mode_is_not_a_view_of_the_output():
    outputs = {"policy/force": np.zeros((2, 4), np.float32)}
    ActionSelector({"force": SPECS["force"]}).mode(outputs)["force"][:] = 1
    assert outputs["policy/force"].max() == 0


VALUES = np.float32([[1.0, 3.0, 0.0, 5.0, 5.0], [2.0, 1.0, 7.0, 0.0, 1.0]])


@pytest.mark.row("H15")
def test_of_values_of_several_choices_the_best_of_each_is_taken():
    selector = ActionSelector({"keys": MultiValuesSpec((2, 3), "q/q")})
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    actions, log_probabilities = selector.sample({"q/q": VALUES}, rng)
    np.testing.assert_array_equal(actions["keys"], np.int32([[1, 1], [0, 0]]), strict=True)
    np.testing.assert_array_equal(log_probabilities, np.zeros(2, np.float32), strict=True)
    np.testing.assert_array_equal(selector.mode({"q/q": VALUES})["keys"], actions["keys"])
    assert rng.bit_generator.state == state  # nothing is drawn
    known = MultiValuesSpec((2, 3), "q/q").sampler().log_probability(VALUES, np.int32([[1, 1], [0, 1]]))
    np.testing.assert_array_equal(known, np.float32([0.0, -np.inf]))
