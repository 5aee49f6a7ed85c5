import numpy as np
import pytest
import tensorflow as tf

from distrl.config.heads import (
    CategoricalQHeadParameters,
    ConstrainedQHeadParameters,
    DuelingQHeadParameters,
    EnsembleQHeadParameters,
    QHeadParameters,
    QuantileQHeadParameters,
    RainbowQHeadParameters,
)
from distrl.errors import ConfigError
from distrl.networks.actions.values import MultiValuesSpec
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

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


def test_an_unlikely_choice_is_lowered_by_hand(build, choices):
    """The last of .6, .3 and .1 is below .4 of the first: the best is choice 1, although choice 2 has more value."""
    built = build(ConstrainedQHeadParameters(threshold=0.4), choices(3))
    built.set_constant(constrained_q_head=[1.0, 2.0, 3.0], constrained_q_head_imitation=np.log([0.6, 0.3, 0.1]))
    outputs = built.outputs(observation=ROWS[:1])
    np.testing.assert_array_equal(outputs["constrained_q/values"], [[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(outputs["constrained_q/q"][0, :2], [1.0, 2.0])
    assert outputs["constrained_q/q"][0, 2] < -1e8
    np.testing.assert_allclose(outputs["constrained_q/softmax"], [[0.2689, 0.7311, 0.0]], atol=1e-4)
    targets = {"actions": np.array([0], np.int32), "targets": np.array([2.0], np.float32)}
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:1]), [0.5 - np.log(0.6)], rtol=1e-5)


def test_other_actions_are_refused(build, box):
    with pytest.raises(ConfigError, match="head q: needs choices to value; action 'action' is of real numbers"):
        build(QHeadParameters(), box([-1.0], [1.0]))


def several(**actions):
    return EnvSpec("Several-v0", {"observation": ArraySpec((4,), "float32")}, actions)


def test_one_action_with_several_choices_has_their_values_in_turn(build):
    built = build(QHeadParameters(), several(action=MultiDiscreteSpec((2, 3), (0, 0))))
    built.set_constant(q_head=[1.0, 2.0, 3.0, 4.0, 5.0])
    outputs = built.outputs(observation=ROWS[:1])
    assert outputs.keys() == {"q/q"}
    np.testing.assert_array_equal(outputs["q/q"], [[1.0, 2.0, 3.0, 4.0, 5.0]])
    assert built.head.action_values == {"action": MultiValuesSpec((2, 3), "q/q")}


def test_every_action_has_an_output_and_every_choice_the_state_value(build):
    """V = 1; of each choice Q = V + A - mean A, the mean over that choice alone."""
    spec = several(gear=DiscreteSpec(3), lights=MultiBinarySpec((1,)))
    built = build(DuelingQHeadParameters(units=(5,)), spec)
    built.set_constant(dueling_q_head_value=1.0, dueling_q_head_advantage=[1.0, 2.0, 3.0, 10.0, 20.0])
    outputs = built.outputs(observation=ROWS[:1])
    np.testing.assert_allclose(outputs["dueling_q/q/gear"], [[0.0, 1.0, 2.0]])
    np.testing.assert_allclose(outputs["dueling_q/q/lights"], [[-4.0, 6.0]])
    # Coach's targets, of all choices in turn: only the second of the gears is wrong, by 2
    np.testing.assert_allclose(
        built.loss(np.array([[0.0, 3.0, 2.0, -4.0, 6.0]], np.float32), observation=ROWS[:1]), [2.0]
    )
    with pytest.raises(ValueError, match=r"several choices at once take targets \[batch, 5\]"):
        built.loss({"actions": np.array([1], np.int32), "targets": np.ones(1, np.float32)}, observation=ROWS[:1])


def test_a_distribution_of_returns_is_of_one_choice(build):
    with pytest.raises(ConfigError, match="head categorical_q: needs one discrete action"):
        build(CategoricalQHeadParameters(), several(gear=DiscreteSpec(3), lights=DiscreteSpec(2)))


@pytest.mark.parametrize("parameters", [QHeadParameters(), DuelingQHeadParameters()], ids=["q", "dueling_q"])
def test_a_temperature_without_an_effect_is_refused(build, parameters):
    with pytest.raises(ConfigError, match=r"softmax_temperature: 0\.5 needs one discrete action"):
        build(parameters, several(gear=DiscreteSpec(3), lights=DiscreteSpec(2)), softmax_temperature=0.5)


HEADS = [
    QHeadParameters(action_mask="allowed"),
    DuelingQHeadParameters(action_mask="allowed", units=(4,)),
    CategoricalQHeadParameters(action_mask="allowed"),
    RainbowQHeadParameters(action_mask="allowed", units=(4,)),
    QuantileQHeadParameters(action_mask="allowed", quantiles=3),
]


@pytest.mark.parametrize("parameters", HEADS, ids=lambda parameters: parameters.kind)
def test_values_of_forbidden_choices_are_the_lowest(build, choices, parameters):
    """Where nothing is allowed, as after an episode's end, all values are as they are."""
    spec = choices(3, observation=ArraySpec((4,), "float32"), allowed=ArraySpec((3,), "int8"))
    built = build(parameters, spec)
    kind = parameters.kind
    rows = np.repeat(ROWS[:1], 3, axis=0)
    masks = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 0]], np.int8)
    (action,) = built.head.actions().values()
    assert action.may_be_masked
    free, masked, none = built.outputs(observation=rows, allowed=masks)[f"{kind}/q"]
    assert np.abs(free).max() < 100.0
    assert masked[1] < -0.9e9
    assert (np.abs(masked[[0, 2]]) < 100.0).all()  # the mask is a feature, too
    assert np.abs(none).max() < 100.0


@pytest.mark.parametrize(
    ("action", "mask", "forbidden"),
    [
        (MultiDiscreteSpec((2, 3), (0, 0)), [1, 0, 1, 1, 0], [1, 4]),
        (MultiDiscreteSpec((2, 3), (0, 0)), [1, 0, 0, 0, 0], [1]),  # of the second choice nothing, so all
        (MultiBinarySpec((2,)), [1, 0], [3]),  # the second switch may not be on: [off, on, off, on]
        (MultiBinarySpec((2,)), [0, 0], [1, 3]),
    ],
)
def test_masks_of_several_choices_at_once(build, action, mask, forbidden):
    observations = {"observation": ArraySpec((4,), "float32"), "allowed": ArraySpec((len(mask),), "int8")}
    built = build(QHeadParameters(action_mask="allowed"), EnvSpec("Masked-v0", observations, {"action": action}))
    values = built.outputs(observation=ROWS[:1], allowed=np.int8([mask]))["q/q"][0]
    assert np.flatnonzero(values < -0.9e9).tolist() == forbidden


def test_a_mask_that_is_no_observation_is_refused(build, choices):
    with pytest.raises(ConfigError, match="action_mask: no observation 'odd'; there are"):
        build(QHeadParameters(action_mask="odd"), choices(3))


@pytest.mark.row("D156")
def test_the_losses_of_an_ensembles_members_are_summed(build, choices):
    """Two members value the choices at 1, 2 and 3, 4; the second choice has the targets 5 and 3: (9 + 1) / 2."""
    built = build(EnsembleQHeadParameters(members=2), choices(2))
    built.set_constant(ensemble_q_head_0=[1.0, 2.0], ensemble_q_head_1=[3.0, 4.0])
    targets = {"actions": np.array([1], np.int32), "targets": np.array([[5.0, 3.0]], np.float32)}
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:1]), [5.0])
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, targets), observation=ROWS[:1])
    np.testing.assert_array_equal(gradients["ensemble_q/q"], [[0.0, -3.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match="does not fit the head's output"):
        built.loss({**targets, "targets": np.zeros((1, 3), np.float32)}, observation=ROWS[:1])


def test_an_ensemble_has_no_softmax(build, choices):
    with pytest.raises(ConfigError, match="softmax_temperature: 2 is of one value for each choice"):
        build(EnsembleQHeadParameters(), choices(2), softmax_temperature=2.0)


@pytest.mark.row("D156")
def test_a_prior_adds_a_random_function_that_never_learns(build, choices):
    """Q_k = f_k + 3 p_k, as a twin in NumPy has it; training moves f_k alone."""
    built = build(EnsembleQHeadParameters(members=2, prior_scale=3.0, units=(4,)), choices(2))
    weights = {path.path.removeprefix("main/"): np.asarray(path) for path in built.model.weights}

    rows = np.random.default_rng(0).standard_normal((5, ROWS.shape[1])).astype(np.float32)
    expected, priors = np.zeros((5, 4)), np.zeros((5, 4))
    for member, part in enumerate((slice(0, 2), slice(2, 4))):
        hidden = rows @ weights[f"ensemble_q_head_{member}_hidden_0/kernel"]
        own = np.maximum(hidden, 0.0) @ weights[f"ensemble_q_head_{member}/kernel"]
        hidden = rows @ weights[f"ensemble_q_head_{member}_prior_hidden_0/kernel"]
        priors[:, part] = np.maximum(hidden, 0.0) @ weights[f"ensemble_q_head_{member}_prior/kernel"]
        expected[:, part] = own + 3.0 * priors[:, part]
    np.testing.assert_allclose(built.outputs(observation=rows)["ensemble_q/q"], expected, rtol=1e-5, atol=1e-6)
    assert np.abs(priors[:, :2] - priors[:, 2:]).max() > 0.1
    targets = {"actions": np.zeros(5, np.int32), "targets": np.zeros((5, 2), np.float32)}
    built.train(targets, steps=300, rate=0.05, observation=rows)
    for weight in built.model.weights:
        kept = np.array_equal(weights[weight.path.removeprefix("main/")], np.asarray(weight))
        assert kept == ("prior" in weight.path)
    learned = np.asarray(built.outputs(observation=rows)["ensemble_q/q"])[:, [0, 2]]
    assert np.abs(learned).max() < 0.5 * np.abs(expected[:, [0, 2]]).max()


def test_a_prior_sends_nothing_into_the_trunk(build, choices):
    built = build(EnsembleQHeadParameters(members=2, prior_scale=3.0), choices(2))
    observation = tf.constant(ROWS[:1])
    for weight in built.model.weights:
        if "prior" not in weight.path:
            weight.assign(0.0 * weight)
    with tf.GradientTape() as tape:
        tape.watch(observation)
        values = built.model({"observation": observation})["ensemble_q/q"]
    assert np.abs(values).max() > 0.0
    np.testing.assert_array_equal(tape.gradient(values, observation, unconnected_gradients="zero"), 0.0)


def test_priors_with_noise_are_refused():
    with pytest.raises(ValueError, match="never change, and dense_layer is noisy_dense; use dense"):
        EnsembleQHeadParameters(prior_scale=1.0, dense_layer="noisy_dense")
