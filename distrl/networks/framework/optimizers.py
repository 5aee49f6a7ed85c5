"""Optimizers, learning rates and clipping from `OptimizerParameters`, by Keras' formulas where it has them.

A rate depends only on the optimizer's count of updates, which is one of its variables: a resumed run continues it.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from distrl.config.optimizers import OptimizerParameters
from distrl.errors import ConfigError

_HEADS = r"_head(?![a-z])"
"""Pattern of paths of the heads' weights: policy_head/kernel, q_head_1/hidden_0/kernel, …"""


def create_optimizer(parameters: OptimizerParameters) -> Any:
    """Create the Keras optimizer that `parameters` describes, without clipping (see `clip_gradients`).

    The optimizer's name is fixed, so that its variables have the same paths in every process and checkpoint.

    Muon (https://kellerjordan.github.io/posts/muon, scaled as in arXiv:2502.16982) moves matrices; AdamW moves vectors
    and all weights of the heads, as Muon's authors advise for last layers.

    Raises:
        ConfigError: LBFGS, which searches on a whole batch instead of taking gradients; see `lbfgs.minimise`.
    """
    kind = parameters.optimizer_type
    if kind == "LBFGS":
        raise ConfigError("optimizer_type LBFGS minimises each batch by itself and cannot take single gradients")
    epsilon = {"epsilon": parameters.epsilon}
    beta_1, beta_2 = parameters.adam_optimizer_beta1, parameters.adam_optimizer_beta2
    adam = {"beta_1": beta_1, "beta_2": beta_2, **epsilon}
    decay = {"weight_decay": parameters.weight_decay}
    muon = {"adam_beta_1": beta_1, "adam_beta_2": beta_2, "adam_weight_decay": parameters.weight_decay}
    momentum = {"momentum": parameters.momentum}
    makers: dict[str, tuple[Any, dict[str, Any]]] = {
        "Adam": (keras.optimizers.Adam, adam),
        "AdamW": (keras.optimizers.AdamW, {**adam, **decay}),
        "Nadam": (_Nadam, adam),
        "RMSProp": (
            _RMSProp,
            {
                "rho": parameters.rms_prop_optimizer_decay,
                "initial_accumulator": parameters.rms_prop_initial_accumulator,
                **momentum,
                **epsilon,
            },
        ),
        "Adagrad": (keras.optimizers.Adagrad, epsilon),
        "Adadelta": (keras.optimizers.Adadelta, {"rho": parameters.adadelta_rho, **epsilon}),
        "SGD": (keras.optimizers.SGD, {"nesterov": parameters.nesterov, **momentum}),
        "Muon": (keras.optimizers.Muon, {"exclude_layers": [_HEADS], **muon, **decay, **epsilon}),
    }
    make, arguments = makers[kind]
    rate = learning_rate(parameters)
    if not callable(rate):
        return make(learning_rate=rate, name="optimizer", **arguments)
    scaled = Scaled(rate)
    optimizer = make(learning_rate=scaled, name="optimizer", **arguments)
    # The optimizer tracks a rate that is a number; a compiled step must know all variables that it reads.
    optimizer._track_variable(scaled.factor)
    return optimizer


def set_learning_rate(optimizer: Any, parameters: OptimizerParameters, rate: float) -> None:
    """Continue as if `parameters.learning_rate` were `rate`; a schedule is scaled as a whole. Nothing is recompiled.

    Args:
        optimizer: The result of `create_optimizer` for these parameters.
    """
    schedule = optimizer._learning_rate
    if isinstance(schedule, Scaled):
        schedule.factor.assign(rate / parameters.learning_rate)
    else:
        optimizer.learning_rate = rate


def state_variables(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's state by path: counts and moments."""
    # The learning rate is configuration, not state: a run resumed with another rate must use that one.
    schedule = optimizer._learning_rate
    rate = schedule.factor if isinstance(schedule, Scaled) else schedule
    return {variable.path: variable for variable in optimizer.variables if variable is not rate}


def learning_rate(parameters: OptimizerParameters) -> Any:
    """Return the rate as a number if it is constant, otherwise as a Keras schedule of the count of previous updates.

    With ``u`` that count less the updates of the warm-up:
        staircase: ``learning_rate * decay_rate ** floor(u / decay_steps)``
        linear: ``learning_rate + (final - learning_rate) * min(u / updates, 1)``
        cosine: ``final + (learning_rate - final) * (1 + cos(pi * min(u / updates, 1))) / 2`` (arXiv:1608.03983)
    """
    rate: Any = parameters.learning_rate
    updates, final = parameters.learning_rate_schedule_updates, parameters.learning_rate_final
    if parameters.learning_rate_schedule == "linear":
        rate = keras.optimizers.schedules.PolynomialDecay(rate, updates, final, power=1.0)
    elif parameters.learning_rate_schedule == "cosine":
        rate = keras.optimizers.schedules.CosineDecay(rate, updates, alpha=final / rate)
    elif parameters.learning_rate_decay_rate > 0.0:
        rate = keras.optimizers.schedules.ExponentialDecay(
            rate, parameters.learning_rate_decay_steps, parameters.learning_rate_decay_rate, staircase=True
        )
    warm_up = parameters.learning_rate_warm_up_updates
    return WarmUp(rate, warm_up) if warm_up > 0 else rate


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """Linear from 0 to a schedule's first rate, then the schedule from its start (arXiv:1706.02677, section 2.2).

    Keras has a warm-up only for its cosine schedule.

    Args:
        then: A rate, or the schedule of the updates after the warm-up.
        updates: Length of the warm-up. The first update has rate 0, the first one after the warm-up the full rate.
    """

    def __init__(self, then: Any, updates: int) -> None:
        self._then = then
        self._updates = updates

    def __call__(self, step: Any) -> Any:
        """Return the rate of the update after `step` updates."""
        step = ops.convert_to_tensor(step)
        then = self._then(ops.maximum(step - self._updates, 0)) if callable(self._then) else self._then
        return then * (ops.cast(ops.minimum(step, self._updates), "float32") / self._updates)


class Scaled(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A schedule times a factor that can be changed while training.

    Attributes:
        factor: float32 [], 1 at first.
    """

    def __init__(self, schedule: Any) -> None:
        self._schedule = schedule
        self.factor = keras.Variable(1.0, trainable=False, name="learning_rate_factor", dtype="float32")

    def __call__(self, step: Any) -> Any:
        """Return the rate of the update after `step` updates."""
        return self._schedule(step) * self.factor.value


def global_norm(gradients: Sequence[Any]) -> Any:
    """Return the Euclidean norm of all elements of all gradients together, float32 []."""
    return ops.sqrt(sum(ops.sum(ops.square(gradient)) for gradient in gradients))


def clip_gradients(gradients: Sequence[Any], parameters: OptimizerParameters) -> list[Any]:
    """Limit gradients to `parameters.clip_gradients`; None: return them unchanged.

    ClipByGlobalNorm scales all gradients by one factor so that their joint norm is at most the threshold, ClipByNorm
    does so for each variable alone, ClipByValue cuts every element to ± threshold.
    """
    threshold = parameters.clip_gradients
    if threshold is None:
        return list(gradients)
    if parameters.gradients_clipping_method == "ClipByValue":
        return [ops.clip(gradient, -threshold, threshold) for gradient in gradients]
    if parameters.gradients_clipping_method == "ClipByNorm":
        return [gradient * _scale(global_norm([gradient]), threshold) for gradient in gradients]
    scale = _scale(global_norm(gradients), threshold)
    return [gradient * scale for gradient in gradients]


def _scale(norm: Any, threshold: float) -> Any:
    return threshold / ops.maximum(norm, threshold)


class _RMSProp(keras.optimizers.RMSprop):  # type: ignore[misc]
    """RMSProp whose mean of squares starts at `initial_accumulator`; Keras' starts at 0, that of TensorFlow 1 at 1."""

    def __init__(
        self, *, learning_rate: Any, rho: float, momentum: float, epsilon: float, initial_accumulator: float, name: str
    ) -> None:
        super().__init__(learning_rate=learning_rate, rho=rho, momentum=momentum, epsilon=epsilon, name=name)
        self._initial_accumulator = initial_accumulator

    def add_optimizer_variables(self, trainable_variables: Any, name: Any, initializer: Any = "zeros") -> Any:
        if name == "velocity":
            initializer = keras.initializers.Constant(self._initial_accumulator)
        return super().add_optimizer_variables(trainable_variables, name, initializer)


class _Nadam(keras.optimizers.Nadam):  # type: ignore[misc]
    """Nadam with a fixed name for the product of momentum factors.

    Keras numbers it through the process, so that a checkpoint could not find that of a second network.
    """

    _u_product: Any

    def build(self, variables: Any) -> None:
        if self.built:
            return
        super().build(variables)
        self._untrack_variable(self._u_product)
        self._u_product = self.add_variable((), initializer="ones", name="u_product")
