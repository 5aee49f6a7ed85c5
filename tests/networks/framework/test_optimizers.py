from typing import get_args

import keras
import numpy as np
import pytest

from distrl.config.network import NetworkParameters
from distrl.config.optimizers import OptimizerType
from distrl.errors import ConfigError
from distrl.networks.framework.optimizers import clip_gradients, create_optimizer, global_norm, learning_rate

BY_GRADIENT = [name for name in get_args(OptimizerType) if name != "LBFGS"]


def make_variables(values):
    return [keras.Variable(value.astype(np.float32), name=f"v{index}") for index, value in enumerate(values)]


def values_of(variables):
    return [np.array(np.asarray(variable)) for variable in variables]


def moved(parameters, gradients, start=None, steps=1):
    """Values of the variables after each step with the same gradients, which are clipped first."""
    variables = make_variables(start or [np.zeros_like(gradient) for gradient in gradients])
    optimizer = create_optimizer(parameters)
    optimizer.build(variables)
    history = []
    for _ in range(steps):
        tensors = [keras.ops.convert_to_tensor(gradient) for gradient in gradients]
        optimizer.apply(clip_gradients(tensors, parameters), variables)
        history.append(values_of(variables))
    return history


def array(*values):
    return np.array(values, np.float32)


def path(steps=2, start=0.0, **parameters):
    """One number's way with gradient 1."""
    history = moved(NetworkParameters(**parameters), [array(1.0)], start=[array(start)], steps=steps)
    return [float(values[0][0]) for values in history]


@pytest.mark.row("A08")
def test_default_learning_rate():
    assert float(create_optimizer(NetworkParameters()).learning_rate) == pytest.approx(2.5e-4)


# The documented steps


@pytest.mark.row("A16", "A17")
def test_adam_takes_its_parameters():
    first, second = path(learning_rate=0.1)
    assert first == pytest.approx(-0.0999000, abs=2e-7)
    assert second == pytest.approx(-0.1998291, abs=2e-7)
    assert abs(path(learning_rate=0.1, adam_optimizer_beta2=0.999)[1] - second) > 1e-5


@pytest.mark.row("A18", "I01.6")
def test_rmsprop_takes_its_parameters():
    assert path(1, optimizer_type="RMSProp", learning_rate=0.1) == [pytest.approx(-0.3160698, abs=2e-7)]
    slower = path(1, optimizer_type="RMSProp", learning_rate=0.1, rms_prop_optimizer_decay=0.99)
    assert slower == [pytest.approx(-0.1 / np.sqrt(0.01 + 1e-4), abs=1e-6)]


@pytest.mark.row("A18")
def test_rmsprop_can_start_as_tensorflow_1_did():
    # The mean of squares stays 1 with gradients of 1: every step is 0.1 / sqrt(1 + 1e-4).
    steps = path(optimizer_type="RMSProp", learning_rate=0.1, rms_prop_initial_accumulator=1.0)
    assert steps == [pytest.approx(-0.0999950, abs=1e-7), pytest.approx(-0.1999900, abs=2e-7)]


def test_rmsprop_with_momentum():
    # 0.1 / sqrt(0.1001) = 0.3160698; 0.9 * 0.3160698 + 0.1 / sqrt(0.1901) = 0.5138176
    steps = path(optimizer_type="RMSProp", learning_rate=0.1, momentum=0.9)
    assert steps == [pytest.approx(-0.3160698, abs=1e-6), pytest.approx(-0.8298874, abs=2e-6)]


@pytest.mark.parametrize(
    ("parameters", "expected", "tolerance"),
    [
        pytest.param(
            {"optimizer_type": "Adadelta", "learning_rate": 1.0}, -0.001414, 5e-7, marks=pytest.mark.row("I01.1")
        ),
        pytest.param(
            {"optimizer_type": "Adagrad", "learning_rate": 0.1}, -0.09535, 5e-6, marks=pytest.mark.row("I01.2")
        ),
        pytest.param(
            {"learning_rate": 0.1, "optimizer_epsilon": 1e-7, "adam_optimizer_beta2": 0.999},
            -0.1,
            1e-6,
            marks=pytest.mark.row("I01.3"),
        ),
        pytest.param(
            {"optimizer_type": "GradientDescent", "learning_rate": 0.1}, -0.1, 1e-8, marks=pytest.mark.row("I01.4")
        ),
        pytest.param({"optimizer_type": "Nadam", "learning_rate": 0.1}, -0.10628, 5e-6, marks=pytest.mark.row("I01.5")),
    ],
)
def test_first_steps_of_rlgraphs_optimizers(parameters, expected, tolerance):
    assert path(1, **parameters) == [pytest.approx(expected, abs=tolerance)]


def test_adadelta_and_adagrad_take_their_parameters():
    # sqrt(1e-4) / sqrt(0.5 + 1e-4)
    steps = path(1, optimizer_type="Adadelta", learning_rate=1.0, adadelta_rho=0.5, optimizer_epsilon=1e-4)
    assert steps == [pytest.approx(-0.0141407, abs=1e-7)]
    # 0.1 / sqrt(0.1 + 1 + 0.1)
    steps = path(1, optimizer_type="Adagrad", learning_rate=0.1, optimizer_epsilon=0.1)
    assert steps == [pytest.approx(-0.0912871, abs=1e-7)]


@pytest.mark.row("I01.7")
def test_sgd():
    momentum = {"optimizer_type": "SGD", "learning_rate": 0.1, "momentum": 0.9}
    assert path(optimizer_type="SGD", learning_rate=0.1) == pytest.approx([-0.1, -0.2])
    assert path(**momentum) == pytest.approx([-0.1, -0.29])
    assert path(optimizer_type="momentum", learning_rate=0.1) == pytest.approx([-0.1, -0.29])
    # Looking ahead: 0.9 * -0.1 - 0.1, then 0.9 * -0.19 - 0.1 more.
    assert path(**momentum, nesterov=True) == pytest.approx([-0.19, -0.461])


@pytest.mark.row("A15")
def test_adamw_shrinks_weights_beside_adams_step():
    # (1 - 0.1 * 0.004) - 0.0999000, and once more
    steps = path(optimizer_type="AdamW", learning_rate=0.1, start=1.0)
    assert steps[0] == pytest.approx(0.8997000, abs=2e-7)
    assert steps[1] == pytest.approx(0.8997 * 0.9996 - 0.0999291, abs=4e-7)
    assert path(optimizer_type="AdamW", learning_rate=0.1, weight_decay=0.5, start=1.0)[0] == pytest.approx(0.8501)
    plain = path(optimizer_type="AdamW", learning_rate=0.1, weight_decay=0.0, start=1.0)
    assert plain == path(learning_rate=0.1, start=1.0)


# Muon


def newton_schulz(matrix, steps=5):
    """The quintic iteration of https://kellerjordan.github.io/posts/muon, in float64."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


@pytest.mark.row("A15")
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_muon_moves_matrices_by_the_newton_schulz_iteration(shape):
    random = np.random.default_rng(1)
    start, gradient = (random.normal(size=shape).astype(np.float32) for _ in range(2))
    parameters = NetworkParameters(optimizer_type="Muon", learning_rate=0.1, weight_decay=0.5)
    first, second = moved(parameters, [gradient], start=[start], steps=2)
    expected, momentum = start.astype(np.float64), 0.0
    for computed in (first[0], second[0]):
        momentum = 0.95 * momentum + gradient
        ahead = gradient + 0.95 * momentum
        expected = expected * (1 - 0.1 * 0.5) - 0.1 * 0.2 * np.sqrt(6) * newton_schulz(ahead)
        np.testing.assert_allclose(computed, expected, atol=2e-5)


@pytest.mark.row("A15")
def test_muons_step_is_nearly_orthogonal():
    gradient = np.random.default_rng(2).normal(size=(8, 5)).astype(np.float32)
    parameters = NetworkParameters(optimizer_type="Muon", learning_rate=1.0, weight_decay=0.0)
    step = -moved(parameters, [gradient])[0][0] / (0.2 * np.sqrt(8))
    # The iteration brings all singular values near 1, from wherever they were, and leaves their directions.
    singular = np.linalg.svd(step)[1]
    assert np.ptp(np.linalg.svd(gradient)[1]) > 2.0
    assert singular.min() > 0.6
    assert singular.max() < 1.3
    u, _, v = np.linalg.svd(gradient, full_matrices=False)
    np.testing.assert_allclose(u.T @ step @ v.T, np.diag(np.diag(u.T @ step @ v.T)), atol=1e-4)


@pytest.mark.row("A15")
def test_muon_leaves_vectors_and_heads_to_adamw():
    gradient = np.random.default_rng(3).normal(size=(3, 2)).astype(np.float32)
    shared = {"learning_rate": 0.1, "optimizer_epsilon": 1e-6, "adam_optimizer_beta2": 0.9, "weight_decay": 0.1}
    stepped = {}
    for kind in ("Muon", "AdamW"):
        variables = [keras.Variable(np.ones(2, np.float32), name="bias")]
        for scope in ("policy_head", "q_head_1", "left_headlight"):
            with keras.name_scope(scope):
                variables.append(keras.Variable(np.ones((3, 2), np.float32), name="kernel"))
        assert variables[1].path == "policy_head/kernel"
        optimizer = create_optimizer(NetworkParameters(optimizer_type=kind, **shared))
        optimizer.build(variables)
        for _ in range(2):
            optimizer.apply([keras.ops.convert_to_tensor(value) for value in (gradient[0], *[gradient] * 3)], variables)
        stepped[kind] = values_of(variables)
    for muon, adamw in list(zip(stepped["Muon"], stepped["AdamW"], strict=True))[:3]:
        np.testing.assert_allclose(muon, adamw, rtol=1e-6)
    assert np.abs(stepped["Muon"][3] - stepped["AdamW"][3]).max() > 0.01


# All of them


def test_lbfgs_is_not_an_optimizer_of_gradients():
    with pytest.raises(ConfigError, match="LBFGS minimises each batch by itself"):
        create_optimizer(NetworkParameters(optimizer_type="LBFGS"))


@pytest.mark.parametrize("kind", BY_GRADIENT)
def test_variables_have_the_same_paths_in_every_optimizer(kind):
    paths = []
    for _ in range(2):
        optimizer = create_optimizer(NetworkParameters(optimizer_type=kind))
        optimizer.build(make_variables([np.zeros((2, 3)), np.zeros(3)]))
        paths.append([variable.path for variable in optimizer.variables])
    assert paths[0] == paths[1]
    assert len({*paths[0]}) == len(paths[0])
    assert all(path.startswith("optimizer/") for path in paths[0])


@pytest.mark.row("I02")
@pytest.mark.parametrize("kind", [*BY_GRADIENT, "momentum"])
def test_restored_optimizers_go_on_bit_by_bit(kind):
    parameters = NetworkParameters(
        optimizer_type=kind,
        learning_rate=0.1,
        learning_rate_schedule="cosine",
        learning_rate_schedule_updates=20,
        learning_rate_warm_up_updates=4,
    )
    random = np.random.default_rng(0)
    steps = [[random.normal(size=shape).astype(np.float32) for shape in ((4, 3), (3,))] for _ in range(8)]

    def go_on(optimizer, variables, gradients):
        for step in gradients:
            optimizer.apply([keras.ops.convert_to_tensor(gradient) for gradient in step], variables)

    def restored(weights, state):
        variables = make_variables(weights)
        optimizer = create_optimizer(parameters)
        optimizer.build(variables)
        for variable in optimizer.variables:
            variable.assign(state.get(variable.path, variable))
        return optimizer, variables

    optimizer, variables = restored([np.ones((4, 3)), np.ones(3)], {})
    go_on(optimizer, variables, steps[:5])
    weights = values_of(variables)
    state = {variable.path: np.array(np.asarray(variable)) for variable in optimizer.variables}
    assert state["optimizer/iteration"] == 5
    go_on(optimizer, variables, steps[5:])
    other, others = restored(weights, state)
    go_on(other, others, steps[5:])
    for left, right in zip(values_of(variables), values_of(others), strict=True):
        np.testing.assert_array_equal(left, right)
    fresh, forgetful = restored(weights, {})
    go_on(fresh, forgetful, steps[5:])
    assert np.abs(values_of(forgetful)[0] - values_of(variables)[0]).max() > 1e-6


# Learning rates

LINEAR = {"learning_rate_schedule": "linear", "learning_rate_schedule_updates": 10}
COSINE = {"learning_rate_schedule": "cosine", "learning_rate_schedule_updates": 10}
STAIRCASE = {"learning_rate_decay_rate": 0.5, "learning_rate_decay_steps": 10}
WARM_UP = {"learning_rate_warm_up_updates": 4}


@pytest.mark.parametrize(
    ("parameters", "rates"),
    [
        pytest.param({}, {0: 0.1, 1000: 0.1}, id="constant"),
        pytest.param(STAIRCASE, {0: 0.1, 9: 0.1, 10: 0.05, 25: 0.025}, id="staircase", marks=pytest.mark.row("A09")),
        pytest.param(LINEAR, {0: 0.1, 1: 0.09, 5: 0.05, 9: 0.01, 10: 0.0, 11: 0.0}, id="linear"),
        pytest.param({**LINEAR, "learning_rate_final": 0.02}, {0: 0.1, 5: 0.06, 10: 0.02, 99: 0.02}, id="linear to"),
        # (1 + cos(pi / 5)) / 2 = 0.9045085
        pytest.param(COSINE, {0: 0.1, 2: 0.09045085, 5: 0.05, 8: 0.00954915, 10: 0.0, 11: 0.0}, id="cosine"),
        pytest.param(
            {**COSINE, "learning_rate_final": 0.02},
            {0: 0.1, 2: 0.09236068, 5: 0.06, 10: 0.02, 99: 0.02},
            id="cosine to",
        ),
        pytest.param(WARM_UP, {0: 0.0, 1: 0.025, 3: 0.075, 4: 0.1, 99: 0.1}, id="warm-up"),
        pytest.param(
            {**WARM_UP, **STAIRCASE}, {0: 0.0, 2: 0.05, 4: 0.1, 13: 0.1, 14: 0.05, 24: 0.025}, id="warm-up, staircase"
        ),
        pytest.param(
            {**WARM_UP, **LINEAR}, {0: 0.0, 2: 0.05, 4: 0.1, 5: 0.09, 9: 0.05, 14: 0.0, 20: 0.0}, id="warm-up, linear"
        ),
        pytest.param(
            {**WARM_UP, **COSINE}, {0: 0.0, 3: 0.075, 4: 0.1, 6: 0.09045085, 9: 0.05, 14: 0.0}, id="warm-up, cosine"
        ),
    ],
)
def test_learning_rates_by_hand(parameters, rates):
    optimizer = create_optimizer(NetworkParameters(optimizer_type="SGD", learning_rate=0.1, **parameters))
    for updates, rate in rates.items():
        optimizer.iterations.assign(updates)
        assert float(optimizer.learning_rate) == pytest.approx(rate, abs=1e-8)


@pytest.mark.row("A09")
def test_the_staircase_is_what_moves_the_weights():
    parameters = NetworkParameters(optimizer_type="SGD", learning_rate=0.1, **STAIRCASE)
    history = [value[0][0] for value in moved(parameters, [array(1.0)], steps=26)]
    steps = np.diff([0.0, *history])
    np.testing.assert_allclose(-steps[[0, 9, 10, 19, 20, 25]], [0.1, 0.1, 0.05, 0.05, 0.025, 0.025], rtol=1e-4)


def test_the_first_update_of_a_warm_up_moves_nothing():
    steps = path(3, optimizer_type="SGD", learning_rate=0.1, learning_rate_warm_up_updates=2)
    assert steps == pytest.approx([0.0, -0.05, -0.15])


def test_warm_up_agrees_with_keras_where_keras_has_it():
    ours = learning_rate(NetworkParameters(learning_rate=0.1, learning_rate_final=0.03, **COSINE, **WARM_UP))
    theirs = keras.optimizers.schedules.CosineDecay(0.0, 10, alpha=0.3, warmup_target=0.1, warmup_steps=4)
    steps = range(18)
    np.testing.assert_allclose(
        [float(ours(step)) for step in steps], [float(theirs(step)) for step in steps], rtol=1e-6
    )


# Clipping


def clipped(method, gradients, threshold=1.0):
    """SGD with learning rate 1 moves by the clipped gradient."""
    parameters = NetworkParameters(
        optimizer_type="SGD", learning_rate=1.0, clip_gradients=threshold, gradients_clipping_method=method
    )
    return [-value for value in moved(parameters, gradients)[0]]


@pytest.mark.row("A05")
def test_no_clipping_unless_asked():
    parameters = NetworkParameters(optimizer_type="SGD", learning_rate=1.0)
    np.testing.assert_array_equal(moved(parameters, [array(300.0, -400.0)])[0][0], [-300.0, 400.0])
    with pytest.raises(ValueError, match="greater than 0"):
        NetworkParameters(clip_gradients=0.0)


@pytest.mark.row("A06")
@pytest.mark.parametrize(
    ("method", "gradients", "expected"),
    [
        ("ClipByGlobalNorm", [[3.0], [4.0]], [[0.6], [0.8]]),
        ("ClipByGlobalNorm", [[0.3], [0.4]], [[0.3], [0.4]]),
        ("ClipByGlobalNorm", [[0.0], [0.0]], [[0.0], [0.0]]),
        ("ClipByNorm", [[3.0], [4.0]], [[1.0], [1.0]]),
        ("ClipByNorm", [[3.0, 4.0]], [[0.6, 0.8]]),
        ("ClipByNorm", [[0.0], [0.5]], [[0.0], [0.5]]),
        ("ClipByValue", [[3.0], [4.0]], [[1.0], [1.0]]),
        ("ClipByValue", [[-3.0, 0.5]], [[-1.0, 0.5]]),
    ],
)
def test_clipping(method, gradients, expected):
    for computed, wanted in zip(clipped(method, [array(*values) for values in gradients]), expected, strict=True):
        np.testing.assert_allclose(computed, wanted, rtol=1e-6)


@pytest.mark.row("A06")
def test_clipping_by_global_norm_of_many_shapes():
    random = np.random.default_rng(4)
    gradients = [random.normal(size=shape).astype(np.float32) for shape in ((3, 4), (4,), (2, 2, 5))]
    flat = np.concatenate([gradient.ravel() for gradient in gradients]).astype(np.float64)
    norm = np.sqrt(np.sum(flat**2))
    assert float(global_norm([keras.ops.convert_to_tensor(gradient) for gradient in gradients])) == pytest.approx(norm)
    for threshold in (0.5, 2 * norm):
        computed = clipped("ClipByGlobalNorm", gradients, threshold)
        expected = flat * min(threshold / norm, 1.0)
        np.testing.assert_allclose(np.concatenate([part.ravel() for part in computed]), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.row("B06")
def test_clipping_is_a_function_so_that_clipped_gradients_can_be_accumulated():
    gradients = [keras.ops.convert_to_tensor(array(3.0)), keras.ops.convert_to_tensor(array(4.0))]
    accumulated = clip_gradients(gradients, NetworkParameters(clip_gradients=1.0))
    assert float(global_norm(gradients)) == pytest.approx(5.0)
    assert float(global_norm(accumulated)) == pytest.approx(1.0)
    assert [float(gradient[0]) for gradient in gradients] == [3.0, 4.0]


@pytest.mark.row("A06")
def test_the_optimizer_itself_does_not_clip():
    optimizer = create_optimizer(NetworkParameters(optimizer_type="SGD", learning_rate=1.0, clip_gradients=1.0))
    variables = make_variables([array(0.0)])
    optimizer.build(variables)
    optimizer.apply([keras.ops.convert_to_tensor(array(5.0))], variables)
    assert values_of(variables)[0][0] == -5.0
