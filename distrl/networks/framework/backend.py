"""One interface to both numeric frameworks: set-up, differentiation and compiled functions.

Keras chooses the framework (KERAS_BACKEND, set before Keras is imported). Besides this module only `tensorflow_*.py`
and `policy/conversion.py` name TensorFlow, and only `jax_backend.py` and `policy/jax_conversion.py` name JAX. Both
backends have, under the same names:

    configure(device, threads, deterministic, seed)     set the framework up, before anything computes
    VERSION                                             the framework's version
    accelerator()                                       name of the device that computes, such as a GPU; None: a CPU
    on_accelerator()                                    context in which that device computes, also inside of building()
    cpu_dtype()                                         the faster data type on this CPU, float32 or bfloat16
    loops()                                             whether a loop compiles faster than its steps one by one, and
                                                        runs as fast
    building()                                          context in which variables are made, by few programs of a GPU
    as_one_program(function)                            the function, as one program where each operation is compiled
    Step, Epochs                                        see `networks.steps.Step`, also for their `compile`
    COMPILED                                            what `compile` has done to the update, for the log
    value_and_gradients(function, values)               while tracing: the scalar, and its gradients by the values
    hessian_product(function, values)                   while tracing: function of (vectors): the Hessian times them
    compiled_gradients, compiled_outputs                see `Gradients`, `Outputs`
    compiled_apply(optimizer, variables)                function of (gradients, scaler=1.0): one step of the optimizer
    compiled_mix(pairs, copied)                         function of (rate): ``target <- rate * source + (1 - rate) *
                                                        target`` for pairs; of copied pairs ``target <- source``
    compiled_read(variables)                            function of (): copies of the values, in one call
    compiled_write(groups)                              function of (arrays): one array for each group of variables
    compiled(function)                                  function of arrays, which reads no variable
    copy_ahead(replicas)                                function of ([T, N, ...]): the array on the device, or shared
                                                        among several; the copy may still go on. Functions take it as
                                                        they take arrays. With it, what compiles a function of such
                                                        arrays. None: a copy ahead would gain nothing

Arguments are NumPy arrays, which the functions leave as they are.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from distrl.networks.framework.differentiation import Clip, LossFunction, PureLoss
from distrl.types import Array

NAME: str = keras.backend.backend()
"""tensorflow or jax."""

if NAME == "jax":
    from distrl.networks.framework import jax_backend as _framework
else:
    from distrl.networks.framework import tensorflow_backend as _framework  # type: ignore[no-redef]

configure, VERSION = _framework.configure, _framework.VERSION
accelerator, on_accelerator = _framework.accelerator, _framework.on_accelerator
cpu_dtype, loops = _framework.cpu_dtype, _framework.loops
building, as_one_program = _framework.building, _framework.as_one_program
CompiledStep, CompiledEpochs = _framework.Step, _framework.Epochs
COMPILED: str = _framework.COMPILED
compiled_apply, compiled_mix = _framework.compiled_apply, _framework.compiled_mix
compiled_read, compiled_write = _framework.compiled_read, _framework.compiled_write
compiled, copy_ahead = _framework.compiled, _framework.copy_ahead
value_and_gradients, hessian_product = _framework.value_and_gradients, _framework.hessian_product

Metrics = dict[str, Any]
"""Metrics of an update by name: floats, booleans, and arrays with one number per item of the batch."""


class Gradients:
    """Compiled loss and gradients of a batch; a call changes nothing, see `after`.

    Args:
        function: Traced once per shape of its data.
        trainable: Variables by which the loss is differentiated.
        others: Variables that `function` may assign.
    """

    def __init__(
        self, function: LossFunction, trainable: Sequence[Any], others: Sequence[Any], clip: Clip = list
    ) -> None:
        self._loss = PureLoss(function, trainable, others)
        self._compiled = _framework.compiled_gradients(self._loss, clip)
        self._after: dict[int, Any] = {}

    def __call__(self, data: Any) -> tuple[float, dict[str, Array], list[Array]]:
        """Return loss, the function's named arrays, and the clipped gradients in the variables' order, as copies."""
        loss, named, after, gradients = self._compiled(data)
        self._after = dict(zip(map(id, self._loss.others), after, strict=True))
        return float(loss), _copies(named), [np.array(np.asarray(gradient)) for gradient in gradients]

    def after(self, variables: Sequence[Any]) -> list[Any]:
        """Return the values that the last call computed for these of `others`."""
        return [self._after[id(variable)] for variable in variables]


class Outputs:
    """Compiled function of data; a call changes nothing.

    Args:
        function: As for `Gradients`; its loss is ignored.
        variables: All variables that it reads.
    """

    def __init__(self, function: LossFunction, variables: Sequence[Any]) -> None:
        self._loss = PureLoss(function, [], variables)
        self._compiled = _framework.compiled_outputs(self._loss)

    def __call__(self, data: Any) -> dict[str, Array]:
        """Return copies of the function's named arrays."""
        return _copies(self._compiled(data))


def _copies(named: dict[str, Any]) -> dict[str, Array]:
    return {name: np.array(np.asarray(value)) for name, value in named.items()}
