"""Optimizers from `NetworkParameters`, with Coach's defaults: Adam with beta2 0.99 and epsilon 1e-4."""

from typing import Any

import keras

from distrl.config.network import NetworkParameters

_CLIPPING = {"ClipByGlobalNorm": "global_clipnorm", "ClipByNorm": "clipnorm", "ClipByValue": "clipvalue"}


def create_optimizer(parameters: NetworkParameters) -> Any:
    """The Keras optimizer that `parameters` describes; it clips the gradients that it is given.

    ClipByGlobalNorm scales all gradients by one factor so that their joint norm is at most the threshold, ClipByNorm
    does so for each variable alone, ClipByValue cuts every element to ± threshold.

    The optimizer's name is fixed, so that its variables have the same paths in every process and checkpoint.
    """
    shared: dict[str, Any] = {"learning_rate": learning_rate(parameters), "name": "optimizer"}
    if parameters.clip_gradients is not None:
        shared[_CLIPPING[parameters.gradients_clipping_method]] = parameters.clip_gradients
    if parameters.optimizer_type == "Adam":
        return keras.optimizers.Adam(
            beta_1=parameters.adam_optimizer_beta1,
            beta_2=parameters.adam_optimizer_beta2,
            epsilon=parameters.optimizer_epsilon,
            **shared,
        )
    if parameters.optimizer_type == "RMSProp":
        return keras.optimizers.RMSprop(
            rho=parameters.rms_prop_optimizer_decay, epsilon=parameters.optimizer_epsilon, **shared
        )
    return keras.optimizers.SGD(**shared)


def learning_rate(parameters: NetworkParameters) -> Any:
    """Constant, or the exponential staircase ``learning_rate * rate ** floor(update / steps)`` as a Keras schedule."""
    if parameters.learning_rate_decay_rate == 0.0:
        return parameters.learning_rate
    return keras.optimizers.schedules.ExponentialDecay(
        parameters.learning_rate,
        decay_steps=parameters.learning_rate_decay_steps,
        decay_rate=parameters.learning_rate_decay_rate,
        staircase=True,
    )
