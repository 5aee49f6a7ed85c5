"""An optimizer's step in TensorFlow, taken or not taken: by one operation for each weight where it is Adam's.

Keras writes Adam as twenty operations for each weight, more than half of them on single numbers: a tenth of a small
network's update, a fifth of one of three networks, and half of the time that it takes to trace that.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf


def apply(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any], goes: Any) -> None:
    """One step while tracing, if `goes`; otherwise weights, moments and the count of updates stay what they are.

    Args:
        optimizer: Of Keras, built on `variables`.
        gradients: Where the step is not taken, anything, NaN too.
        goes: bool [].
    """
    if type(optimizer) is keras.optimizers.Adam and _is_plain(optimizer, variables):
        _adam(optimizer, gradients, variables, goes)
        return

    def step() -> bool:
        optimizer.apply(gradients, variables)
        return True

    tf.cond(goes, step, lambda: False)


def _is_plain(optimizer: Any, variables: Sequence[Any]) -> bool:
    """Nothing but the formula below is asked for."""
    asked = ("amsgrad", "weight_decay", "use_ema", "gradient_accumulation_steps", "loss_scale_factor")
    clips = ("clipnorm", "clipvalue", "global_clipnorm")
    of_float32 = all(variable.dtype == "float32" and variable.constraint is None for variable in variables)
    return of_float32 and not any(getattr(optimizer, name) for name in (*asked, *clips))


def _adam(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any], goes: Any) -> None:
    """Kingma and Ba 2015, end of section 2, as in Keras:

        m <- m + (1 - beta_1) (g - m),   v <- v + (1 - beta_2) (g^2 - v)
        w <- w - alpha m / (sqrt(v) + epsilon),   alpha = rate sqrt(1 - beta_2^t) / (1 - beta_1^t)

    With g = 0, betas = 1 and rate = 0 all of it stays, which is cheaper than a branch.
    """
    beta_1, beta_2 = (tf.constant(beta, tf.float32) for beta in (optimizer.beta_1, optimizer.beta_2))
    count = tf.cast(optimizer.iterations.value, tf.float32) + 1.0
    numbers = {
        "beta1_power": tf.pow(beta_1, count),
        "beta2_power": tf.pow(beta_2, count),
        "lr": tf.where(goes, tf.cast(optimizer.learning_rate, tf.float32), 0.0),
        "beta1": tf.where(goes, beta_1, 1.0),
        "beta2": tf.where(goes, beta_2, 1.0),
        "epsilon": tf.where(goes, tf.constant(optimizer.epsilon, tf.float32), 1.0),  # which may be 0, as may v
    }
    moments = optimizer.variables[-2 * len(variables) :]  # by pairs, after the count, and the rate if it is one
    for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
        momentum, velocity = moments[2 * index : 2 * index + 2]
        tf.raw_ops.ResourceApplyAdam(
            var=variable.value.handle,
            m=momentum.value.handle,
            v=velocity.value.handle,
            grad=tf.where(goes, gradient, 0.0),
            **numbers,
        )
    optimizer.iterations.assign_add(tf.cast(goes, optimizer.iterations.dtype))
