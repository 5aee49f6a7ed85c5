"""All actions together, and what every distribution promises. Runs on every Keras backend."""

import keras
import numpy as np
import pytest
from keras import ops, random
from scipy import stats
from scipy.special import expit, log_softmax

from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.beta import BetaSpec
from distrl.networks.actions.categorical import Categorical, CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.joint import ActionSelector, JointDistribution
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec

LOW, HIGH = (-2.0, 0.5), (2.0, 3.5)
SPECS = {
    "turn": CategoricalSpec(3),
    "gears": MultiCategoricalSpec((2, 4)),
    "switches": BernoulliSpec(3),
    "force": GaussianSpec(2),
    "arm": SquashedGaussianSpec(LOW, HIGH),
    "valve": BetaSpec(LOW, HIGH),
}
JOINT = JointDistribution(SPECS)
ROWS = 200


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def outputs_of(seed, rows=ROWS, head="policy"):
    rng = np.random.default_rng(seed)
    return {
        f"{head}/{name}": rng.uniform(-2, 2, (rows, spec.parameters_size)).astype(np.float32)
        for name, spec in SPECS.items()
    }


def reference(name, parameters, actions):
    """Log-probability of one action by its definition, float64."""
    parameters, actions = parameters.astype(np.float64), actions.astype(np.float64)
    rows = np.arange(len(parameters))
    first, second = np.split(parameters, 2, axis=-1) if parameters.shape[-1] % 2 == 0 else (None, None)
    width = np.subtract(HIGH, LOW)
    match name:
        case "turn":
            return log_softmax(parameters, axis=-1)[rows, actions.astype(int)]
        case "gears":
            parts = (log_softmax(parameters[:, :2], axis=-1), log_softmax(parameters[:, 2:], axis=-1))
            return sum(part[rows, column] for part, column in zip(parts, actions.astype(int).T, strict=True))
        case "switches":
            return stats.bernoulli.logpmf(actions, expit(parameters)).sum(axis=-1)
        case "force":
            return stats.norm.logpdf(actions, first, np.exp(second)).sum(axis=-1)
        case "arm":
            t = 2 * (actions - LOW) / width - 1
            densities = stats.norm.logpdf(np.arctanh(t), first, np.exp(second)) - np.log(width / 2 * (1 - t**2))
            return densities.sum(axis=-1)
        case "valve":
            shapes = (1 + np.logaddexp(0, each) for each in (first, second))
            return stats.beta.logpdf(actions, *shapes, LOW, width).sum(axis=-1)


def compiled(function):
    """As a learner would run it: TensorFlow without knowing the batch's size, JAX for one size after the other."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        shapes = {name: tf.TensorSpec((None, x.shape[1]), "float32") for name, x in outputs_of(0, 1).items()}
        return tf.function(function, input_signature=[shapes])
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    return function


@pytest.mark.row("L22")
@pytest.mark.parametrize("name", SPECS)
class TestEveryDistribution:
    def test_log_probability_is_the_definition(self, name):
        distribution, parameters = SPECS[name].distribution(), outputs_of(1)[f"policy/{name}"]
        actions = numpy(distribution.sample(parameters, 2))
        computed = numpy(distribution.log_probability(parameters, actions))
        # What an action near its bounds loses in float32 is as visible as the density is steep there.
        np.testing.assert_allclose(computed, reference(name, parameters, actions), rtol=1e-3, atol=1e-3)
        assert np.median(np.abs(computed - reference(name, parameters, actions))) < 1e-6

    def test_kl_of_itself_is_0_and_of_others_positive(self, name):
        distribution, p, q = SPECS[name].distribution(), *(outputs_of(s)[f"policy/{name}"] for s in (1, 2))
        np.testing.assert_allclose(numpy(distribution.kl(p, p)), np.zeros(ROWS), atol=1e-6)
        assert (numpy(distribution.kl(p, q)) > 0).all()

    def test_kl_is_the_mean_log_ratio(self, name):
        distribution, p, q = SPECS[name].distribution(), *(outputs_of(s, 1)[f"policy/{name}"] for s in (1, 2))
        p, q = p / 2, q / 2
        actions = distribution.sample(np.tile(p, (200_000, 1)), 3)
        ratios = [numpy(distribution.log_probability(np.tile(x, (200_000, 1)), actions)) for x in (p, q)]
        assert (ratios[0] - ratios[1]).mean() == pytest.approx(numpy(distribution.kl(p, q))[0], abs=0.02)

    def test_entropy_is_minus_the_mean_log_probability(self, name):
        distribution, parameters = SPECS[name].distribution(), outputs_of(1, 1)[f"policy/{name}"] / 2
        _, log_probabilities = distribution.sample_with_log_probability(np.tile(parameters, (200_000, 1)), 3)
        assert -numpy(log_probabilities).mean() == pytest.approx(numpy(distribution.entropy(parameters))[0], abs=0.01)

    def test_leading_axes_do_not_matter(self, name):
        distribution, parameters = SPECS[name].distribution(), outputs_of(1)[f"policy/{name}"]
        actions = numpy(distribution.mode(parameters))
        grid, grid_actions = parameters.reshape(2, 100, -1), actions.reshape(2, 100, *actions.shape[1:])
        pairs = [
            (distribution.log_probability(parameters, actions), distribution.log_probability(grid, grid_actions)),
            (distribution.entropy(parameters), distribution.entropy(grid)),
            (distribution.kl(parameters, -parameters), distribution.kl(grid, -grid)),
        ]
        for flat, shaped in pairs:
            assert tuple(flat.shape) == (ROWS,)
            np.testing.assert_allclose(numpy(shaped), numpy(flat).reshape(2, 100), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(numpy(distribution.mode(grid)), grid_actions)
        assert tuple(distribution.sample(grid, 1).shape) == grid_actions.shape


class TestJointDistribution:
    def test_sums_are_of_the_parts(self):
        p, q = outputs_of(1), outputs_of(2)
        actions = JOINT.sample(p, 4)
        parts = {name: spec.distribution() for name, spec in SPECS.items()}
        of = {name: (p[f"policy/{name}"], q[f"policy/{name}"]) for name in SPECS}
        expected = sum(numpy(part.log_probability(of[name][0], actions[name])) for name, part in parts.items())
        np.testing.assert_allclose(numpy(JOINT.log_probability(p, actions)), expected, rtol=1e-5, atol=1e-5)
        expected = sum(numpy(part.entropy(of[name][0])) for name, part in parts.items())
        np.testing.assert_allclose(numpy(JOINT.entropy(p)), expected, rtol=1e-5, atol=1e-5)
        expected = sum(numpy(part.kl(*of[name])) for name, part in parts.items())
        np.testing.assert_allclose(numpy(JOINT.kl(p, q)), expected, rtol=1e-5, atol=1e-5)

    def test_modes_are_of_the_parts(self):
        outputs = outputs_of(1)
        modes = JOINT.mode(outputs)
        assert list(modes) == list(SPECS)
        for name, spec in SPECS.items():
            expected = numpy(spec.distribution().mode(outputs[f"policy/{name}"]))
            np.testing.assert_array_equal(numpy(modes[name]), expected)

    def test_samples_and_their_log_probability(self):
        outputs = outputs_of(1)
        actions, log_probabilities = JOINT.sample_with_log_probability(outputs, 5)
        assert list(actions) == list(SPECS)
        for name, drawn in JOINT.sample(outputs, 5).items():
            np.testing.assert_array_equal(numpy(drawn), numpy(actions[name]))
        # The arm's is exact, unlike what can be told from a saturated action; of all others both are the same.
        arm = SPECS["arm"].distribution()
        others = JointDistribution({name: spec for name, spec in SPECS.items() if name != "arm"})
        exact = numpy(log_probabilities) - numpy(others.log_probability(outputs, actions))
        seen = numpy(arm.log_probability(outputs["policy/arm"], actions["arm"]))
        assert np.median(np.abs(exact - seen)) < 1e-4
        assert np.abs(exact - seen).max() > 1.0

    def test_exact_log_probability_of_a_sample(self):
        outputs, generators = outputs_of(1), [random.SeedGenerator(5) for _ in range(2)]
        joint, arm = JointDistribution({"arm": SPECS["arm"]}), SPECS["arm"].distribution()
        actions, log_probabilities = joint.sample_with_log_probability(outputs, generators[0])
        expected = arm.sample_with_log_probability(outputs["policy/arm"], generators[1])
        np.testing.assert_array_equal(numpy(actions["arm"]), numpy(expected[0]))
        np.testing.assert_array_equal(numpy(log_probabilities), numpy(expected[1]))

    @pytest.mark.parametrize("seed", [7, random.SeedGenerator(7)], ids=["int", "generator"])
    def test_actions_do_not_share_their_noise(self, seed):
        joint = JointDistribution({"left": GaussianSpec(1), "right": GaussianSpec(1)})
        drawn = joint.sample(dict.fromkeys(("policy/left", "policy/right"), np.zeros((10_000, 2), np.float32)), seed)
        correlation = np.corrcoef(numpy(drawn["left"])[:, 0], numpy(drawn["right"])[:, 0])[0, 1]
        assert abs(correlation) < 0.05

    def test_reads_the_outputs_of_its_head(self):
        outputs = {**outputs_of(1), **outputs_of(2, head="behaviour")}
        computed = numpy(JointDistribution(SPECS, head="behaviour").entropy(outputs))
        np.testing.assert_array_equal(computed, numpy(JOINT.entropy(outputs_of(2))))

    def test_refuses_parameters_of_another_size(self):
        outputs = {**outputs_of(1), "policy/force": np.zeros((ROWS, 6), np.float32)}
        with pytest.raises(ValueError, match=r"output policy/force must be \[..., 4\], not \(200, 6\)"):
            JOINT.entropy(outputs)

    def test_compiled_for_any_batch(self):
        def everything(outputs):
            actions, log_probabilities = JOINT.sample_with_log_probability(outputs, 5)
            return actions, (log_probabilities, JOINT.entropy(outputs), JOINT.log_probability(outputs, actions))

        function = compiled(everything)
        for rows in (ROWS, 7):
            # Far from saturation, where one rounding of an action would show in its log-probability.
            outputs = {name: x / 4 for name, x in outputs_of(1, rows).items()}
            (actions, numbers), (eager, expected) = function(outputs), everything(outputs)
            for name, drawn in actions.items():
                np.testing.assert_allclose(numpy(drawn), numpy(eager[name]), rtol=1e-5, atol=1e-5)
            for computed, each in zip(numbers, expected, strict=True):
                np.testing.assert_allclose(numpy(computed), numpy(each), rtol=1e-4, atol=1e-4)


def test_softmax_of_twice_the_logits():
    # Temperature .5, as the head applies it: softmax([1, 2] / .5).
    log_p = Categorical().log_probability(np.tile(np.float32([2, 4]), (2, 1)), np.array([0, 1], np.int32))
    np.testing.assert_allclose(np.exp(numpy(log_p)), [0.1192, 0.8808], atol=5e-5)


@pytest.mark.row("H06")
def test_softmax_of_huge_logits_is_stable():
    log_p = Categorical().log_probability(np.full((2, 2), 1000, np.float32), np.array([0, 1], np.int32))
    np.testing.assert_allclose(np.exp(numpy(log_p)), [0.5, 0.5], rtol=1e-6)


def test_the_selector_gives_drawn_actions_the_log_probability_they_were_drawn_with():
    selector, outputs = ActionSelector(SPECS), outputs_of(5)
    actions, log_probabilities = selector.sample(outputs, np.random.default_rng(0))
    np.testing.assert_allclose(selector.log_probability(outputs, actions), log_probabilities, rtol=1e-3, atol=1e-3)
