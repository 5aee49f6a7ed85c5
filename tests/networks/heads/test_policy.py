import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax, softmax
from scipy.stats import norm

from distrl.config.heads import PolicyHeadParameters, PPOHeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.heads import losses
from distrl.networks.heads.policy import PolicyHead
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((3, 4)).astype(np.float32)
OBSERVATION = {"observation": ArraySpec((4,), "float32")}
EVERY_KIND = EnvSpec(
    "Every-v0",
    OBSERVATION,
    {
        "gear": DiscreteSpec(3),
        "arm/joints": MultiDiscreteSpec((2, 3), (0, 0)),
        "lights": MultiBinarySpec((2,)),
        "wheel": BoxSpec((2,), (-1.0, -1.0), (1.0, 1.0)),
    },
)


def built_with_logits(build, choices, parameters, logits, **network):
    built = build(parameters, choices(len(logits)), **network)
    built.set_constant(policy_head_action=logits)
    return built


@pytest.mark.row("L17")
def test_one_output_per_action_of_its_distribution(build):
    outputs = build(PolicyHeadParameters(), EVERY_KIND).outputs(observation=ROWS)
    assert {name: output.shape for name, output in outputs.items()} == {
        "policy/gear": (3, 3),
        "policy/arm/joints": (3, 5),
        "policy/lights": (3, 2),
        "policy/wheel": (3, 4),
    }
    np.testing.assert_allclose(softmax(outputs["policy/gear"], axis=-1).sum(axis=-1), np.ones(3), rtol=1e-6)


@pytest.mark.parametrize("parameters", [PolicyHeadParameters(), PPOHeadParameters()])
def test_first_policy_is_nearly_uniform(build, choices, parameters):
    built = build(parameters, choices(3))
    kernel = np.asarray(built.model.weights[0])
    np.testing.assert_allclose(kernel.T @ kernel, 1e-4 * np.eye(3), atol=1e-9)
    logits = built.outputs(observation=ROWS)["policy/action"]
    np.testing.assert_allclose(logits, ROWS @ kernel, rtol=1e-4, atol=1e-7)
    assert 0.0 < np.abs(logits).max() < 0.1


@pytest.mark.row("D07.14")
def test_policy_gradient_of_a_coin(build, choices):
    built = built_with_logits(build, choices, PolicyHeadParameters(), [0.0, 0.0])
    targets = {"actions": {"action": np.array([0], np.int32)}, "advantages": np.array([2.0], np.float32)}
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:1]), [1.38629], atol=1e-5)


@pytest.mark.row("D07.14", "L19")
def test_entropy_is_rewarded_and_fetched(build, choices):
    built = built_with_logits(build, choices, PolicyHeadParameters(beta_entropy=0.1), [0.0] * 4)
    targets = {"actions": {"action": np.array([0], np.int32)}, "advantages": np.array([2.0], np.float32)}
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:1]), [1.9 * np.log(4)], rtol=1e-6)
    outputs = built.model({"observation": ROWS})
    assert float(built.head.fetches(outputs, targets)["entropy"]) == pytest.approx(1.3863, abs=1e-4)


@pytest.mark.row("L19")
def test_most_likely_action(build, choices):
    built = built_with_logits(build, choices, PolicyHeadParameters(), np.log([0.2, 0.8]))
    chosen = built.head.distribution.mode(built.model({"observation": ROWS}))
    np.testing.assert_array_equal(np.asarray(chosen["action"]), [1, 1, 1])


@pytest.mark.row("D07.14")
def test_gaussian_policy_gradient(build, box):
    built = build(PolicyHeadParameters(initial_log_sigma=-0.5, beta_entropy=0.1), box([-1.0] * 2, [1.0] * 2))
    mean, log_sigma = np.split(built.outputs(observation=ROWS)["policy/action"], 2, axis=-1)
    np.testing.assert_array_equal(log_sigma, np.full((3, 2), -0.5))
    actions, advantages = RNG.standard_normal((3, 2)).astype(np.float32), np.array([1.0, -2.0, 3.0], np.float32)
    distribution = norm(mean, np.exp(-0.5))
    expected = -advantages * distribution.logpdf(actions).sum(axis=-1) - 0.1 * distribution.entropy().sum(axis=-1)
    targets = {"actions": {"action": actions}, "advantages": advantages}
    np.testing.assert_allclose(built.loss(targets, observation=ROWS), expected, rtol=1e-5)


@pytest.mark.row("D169", "D07.13")
def test_squashed_gaussian_with_its_jacobian(build, box):
    built = build(PolicyHeadParameters(distribution="squashed_gaussian"), box([-1.0], [1.0]))
    built.set_constant()  # mean 0, log sigma 0
    targets = {"actions": {"action": np.array([[0.3]], np.float32)}, "advantages": np.array([-1.0], np.float32)}
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:1]), [-0.87253], atol=1e-5)


@pytest.mark.parametrize(
    ("distribution", "log_sigma", "dependent"),
    [
        ("gaussian", "auto", False),
        ("bounded_gaussian", "auto", False),
        ("squashed_gaussian", "auto", True),
        ("gaussian", "state_dependent", True),
        ("squashed_gaussian", "state_independent", False),
    ],
)
def test_whether_sigma_depends_on_the_state(build, box, distribution, log_sigma, dependent):
    parameters = PolicyHeadParameters(distribution=distribution, log_sigma=log_sigma, initial_log_sigma=-1.0)
    built = build(parameters, box([-1.0] * 2, [1.0] * 2))
    names = [weight.path for weight in built.model.weights if "log_sigma" in weight.path]
    kinds = ["kernel", "bias"] if dependent else ["numbers"]
    assert names == [f"main/policy_head_action_log_sigma/{kind}" for kind in kinds]
    computed = built.outputs(observation=ROWS)["policy/action"][:, 2:]
    np.testing.assert_allclose(computed, np.full((3, 2), -1.0), atol=0.1)
    assert (np.ptp(computed, axis=0).max() > 1e-3) == dependent
    gradients = built.gradients(lambda outputs: outputs["policy/action"][:, 3:], observation=ROWS)
    if not dependent:
        np.testing.assert_array_equal(gradients[names[0]], [0.0, 3.0])


def test_a_beta_distribution_has_no_sigma(build, box):
    built = build(PolicyHeadParameters(distribution="beta"), box([-1.0] * 2, [1.0] * 2))
    assert built.outputs(observation=ROWS)["policy/action"].shape == (3, 4)


@pytest.mark.row("A23")
def test_temperature_of_choices(build, choices):
    built = built_with_logits(build, choices, PolicyHeadParameters(), [1.0, 2.0], softmax_temperature=0.5)
    logits = built.outputs(observation=ROWS[:1])["policy/action"]
    np.testing.assert_allclose(softmax(logits, axis=-1), [[0.1192, 0.8808]], atol=1e-4)


def test_temperature_leaves_all_but_choices_alone(build):
    outputs = build(PolicyHeadParameters(), EVERY_KIND).outputs(observation=ROWS)
    heated = build(PolicyHeadParameters(), EVERY_KIND, softmax_temperature=2.0).outputs(observation=ROWS)
    for name in ("policy/gear", "policy/arm/joints"):
        np.testing.assert_allclose(heated[name], outputs[name] / 2.0, rtol=1e-6)
    for name in ("policy/lights", "policy/wheel"):
        np.testing.assert_array_equal(heated[name], outputs[name])


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bool"])
def test_masked_choices_have_no_probability(build, choices, dtype):
    spec = choices(3, observation=OBSERVATION["observation"], allowed=ArraySpec((3,), dtype))
    built = build(PolicyHeadParameters(action_mask="allowed", beta_entropy=1.0), spec)
    built.set_constant(policy_head_action=[0.1, 0.2, 0.3])  # the mask is a feature, too
    inputs = {"observation": ROWS[:1], "allowed": np.array([[1, 0, 1]]).astype(dtype)}
    logits = built.outputs(**inputs)["policy/action"]
    free = built.outputs(**{**inputs, "allowed": np.ones((1, 3), dtype)})["policy/action"]
    probabilities = softmax(logits, axis=-1)
    assert probabilities[0, 1] == 0.0
    np.testing.assert_allclose(probabilities[0, [0, 2]], softmax(free[0, [0, 2]]), rtol=1e-6)
    targets = {"actions": {"action": np.array([2], np.int32)}, "advantages": np.array([2.0], np.float32)}
    two = softmax(free[0, [0, 2]])
    np.testing.assert_allclose(
        built.loss(targets, **inputs), [-2.0 * np.log(two[1]) + (two * np.log(two)).sum()], rtol=1e-5
    )
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, targets), **inputs)
    assert gradients["policy/action"][0, 1] == 0.0
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.parametrize(
    ("action", "size"), [(MultiDiscreteSpec((2, 3), (0, 0)), 5), (MultiBinarySpec((2,)), 2), (DiscreteSpec(3), 3)]
)
def test_masks_of_every_kind_of_choice(build, action, size):
    spec = EnvSpec("Masked-v0", {**OBSERVATION, "allowed": ArraySpec((size,), "int8")}, {"action": action})
    mask = np.array([[1] * (size - 1) + [0]], np.int8)
    built = build(PolicyHeadParameters(action_mask="allowed"), spec)
    logits = built.outputs(observation=ROWS[:1], allowed=mask)["policy/action"]
    assert np.abs(logits[0, :-1]).max() < 1.0
    assert logits[0, -1] == pytest.approx(-1e9)


@pytest.mark.parametrize(
    ("mask", "shape", "action", "message"),
    [
        ("odd", (3,), DiscreteSpec(3), "no observation 'odd'; there are observation, allowed"),
        ("allowed", (2,), DiscreteSpec(3), r"'allowed' must be \[3\], one for each choice, not \[2\]"),
        ("allowed", (2,), BoxSpec((1,), (None,), (None,)), "needs one action of choices or switches; .* has box"),
    ],
)
def test_masks_that_do_not_fit_are_refused(build, mask, shape, action, message):
    spec = EnvSpec("Masked-v0", {**OBSERVATION, "allowed": ArraySpec(shape, "int8")}, {"action": action})
    with pytest.raises(ConfigError, match=message):
        build(PolicyHeadParameters(action_mask=mask), spec)


def ppo_targets(actions, advantages, old_logits):
    old = log_softmax(np.asarray(old_logits, np.float32), axis=-1)
    return {
        "actions": {"action": np.asarray(actions, np.int32)},
        "advantages": np.asarray(advantages, np.float32),
        "old_log_probabilities": old[np.arange(len(old)), actions].astype(np.float32),
        "old_outputs": {"policy/action": old.astype(np.float32)},
    }


OLD = np.log([[0.5, 0.5], [0.5, 0.5], [0.3, 0.7]])
NEW = np.log([0.75, 0.25])


@pytest.mark.row("D166", "D07.15")
def test_clipped_ratios(build, choices):
    # ratios 1.5 and .5, as the row has them, and one that is not clipped: .25 / .7 with a negative advantage is
    built = built_with_logits(build, choices, PPOHeadParameters(), NEW)
    targets = ppo_targets([0, 1, 0], [1.0, -1.0, 2.0], np.log([[0.5, 0.5], [0.5, 0.5], [0.7, 0.3]]))
    np.testing.assert_allclose(built.loss(targets, observation=ROWS), [-1.2, 0.8, -2.0 * 0.75 / 0.7], rtol=1e-5)


@pytest.mark.row("D166", "D07.15")
def test_beyond_the_clip_there_is_no_gradient(build, choices):
    built = built_with_logits(build, choices, PPOHeadParameters(), NEW)
    targets = ppo_targets([0, 1, 0], [1.0, -1.0, 2.0], np.log([[0.5, 0.5], [0.5, 0.5], [0.7, 0.3]]))
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, targets), observation=ROWS)
    ratio = 0.75 / 0.7
    expected = [[0.0, 0.0], [0.0, 0.0], [-2.0 * ratio * 0.25, 2.0 * ratio * 0.25]]
    np.testing.assert_allclose(gradients["policy/action"], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("parameters", [{}, {"clip_range": None, "initial_kl_coefficient": 0.5}])
def test_a_ratio_beyond_float32_leaves_the_gradient_finite(build, choices, advantage, parameters):
    """exp overflows float32 from 88 on: the smaller, clipped ratio then had a gradient beside 0 times infinity."""
    built = built_with_logits(build, choices, PPOHeadParameters(**parameters), NEW)
    targets = ppo_targets([0, 1, 0], [advantage] * 3, OLD)
    targets["old_log_probabilities"] = np.full(3, -200.0, np.float32)
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, targets), observation=ROWS)
    assert np.isfinite(built.loss(targets, observation=ROWS)).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.row("D165", "D07.15")
def test_kl_penalty_and_entropy(build, choices):
    parameters = PPOHeadParameters(clip_range=None, initial_kl_coefficient=2.0, beta_entropy=0.1)
    built = built_with_logits(build, choices, parameters, NEW)
    targets = ppo_targets([0, 1, 0], [1.0, -1.0, 2.0], OLD)
    new, old = np.exp(NEW), np.exp(OLD)
    kl = (old * (OLD - NEW)).sum(axis=-1)
    gain = np.array([0.75 / 0.5, -0.25 / 0.5, 2.0 * 0.75 / 0.3])
    entropy = -(new * NEW).sum()
    np.testing.assert_allclose(built.loss(targets, observation=ROWS), -gain + 2.0 * kl - 0.1 * entropy, rtol=1e-5)
    coefficient = built.head.scalars["kl_coefficient"]
    coefficient.assign(losses.adapted_kl_coefficient(coefficient, np.float32(0.02), 0.01, 2.0))
    assert float(coefficient) == 3.0
    np.testing.assert_allclose(built.loss(targets, observation=ROWS), -gain + 3.0 * kl - 0.1 * entropy, rtol=1e-5)
    assert not coefficient.trainable


def test_without_penalty_there_is_nothing_to_adjust(build, choices):
    assert build(PPOHeadParameters(), choices(2)).head.scalars == {}


@pytest.mark.row("D07.15")
def test_ppo_fetches(build, choices):
    built = built_with_logits(build, choices, PPOHeadParameters(), NEW)
    targets = ppo_targets([0, 1, 0], [1.0, -1.0, 2.0], np.log([[0.5, 0.5], [0.5, 0.5], [0.7, 0.3]]))
    outputs = built.model({"observation": ROWS})
    fetched = {name: float(value) for name, value in built.head.fetches(outputs, targets).items()}
    old = np.array([[0.5, 0.5], [0.5, 0.5], [0.7, 0.3]])
    expected = {
        "entropy": -(np.exp(NEW) * NEW).sum(),
        "kl": (old * (np.log(old) - NEW)).sum(axis=-1).mean(),
        "clip_fraction": 2 / 3,
    }
    assert fetched == pytest.approx(expected, rel=1e-5)


@pytest.mark.row("D07.15")
def test_kl_without_the_old_outputs_is_estimated_without_bias(build, choices):
    built = built_with_logits(build, choices, PPOHeadParameters(clip_range=None), NEW)
    # the old policy took action 0 three times of ten
    targets = ppo_targets([0] * 3 + [1] * 7, [1.0] * 10, [np.log([0.3, 0.7])] * 10)
    outputs = built.model({"observation": np.tile(ROWS[:1], (10, 1))})
    exact = built.head.fetches(outputs, targets)
    del targets["old_outputs"]
    estimated = built.head.fetches(outputs, targets)
    assert estimated.keys() == {"entropy", "kl"}
    assert float(estimated["kl"]) == pytest.approx(float(exact["kl"]), rel=1e-5)


def test_penalty_needs_the_old_outputs(build, choices):
    built = build(PPOHeadParameters(initial_kl_coefficient=1.0), choices(2))
    targets = ppo_targets([0, 1, 0], [1.0, -1.0, 2.0], OLD)
    del targets["old_outputs"]
    with pytest.raises(ValueError, match="target 'old_outputs' is missing"):
        built.loss(targets, observation=ROWS)


def test_no_gradient_flows_into_the_old_policy(build, choices):
    built = build(PPOHeadParameters(clip_range=None, initial_kl_coefficient=1.0), choices(2))

    def loss(outputs):
        targets = ppo_targets([0, 1, 0], [0.0, 0.0, 0.0], OLD) | {"old_outputs": dict(outputs)}
        return built.head.loss(outputs, targets)

    # KL(p || p) is smallest at p: what is left is a difference of equal probabilities
    gradients = built.gradients(loss, observation=ROWS)
    np.testing.assert_allclose(gradients["policy/action"], np.zeros((3, 2)), atol=1e-7)
    assert float(tf.reduce_sum(loss(built.model({"observation": ROWS})))) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"distribution": "beta"}, "head policy: distribution needs continuous actions; Toy has none"),
        ({"log_sigma": "state_dependent"}, "head policy: log_sigma needs continuous actions; Toy has none"),
        ({"initial_log_sigma": -1.0}, "head policy: initial_log_sigma needs continuous actions; Toy has none"),
    ],
)
def test_settings_of_continuous_actions_are_refused_where_there_are_none(setting, line):
    spec = EnvSpec("Toy", {"observation": ArraySpec((2,), "float32")}, {"action": DiscreteSpec(3)})
    with pytest.raises(ConfigError) as caught:
        PolicyHead(PolicyHeadParameters(**setting), spec, NetworkParameters(), name="policy", seed=1)
    assert str(caught.value) == line


def test_a_temperature_is_refused_where_nothing_is_chosen():
    spec = EnvSpec("Toy", {"observation": ArraySpec((2,), "float32")}, {"action": BoxSpec((1,), (-1.0,), (1.0,))})
    with pytest.raises(ConfigError, match=r"^softmax_temperature needs discrete actions; Toy has none$"):
        PolicyHead(PolicyHeadParameters(), spec, NetworkParameters(softmax_temperature=2.0), name="policy", seed=1)
