"""Architecture: one copy of a network with what trains it from Python.

Method names and meanings are Coach's. The learner's compiled step works on the same variables; what is here is the same
network seen from Python, in NumPy arrays.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.backend import Apply, Gradients
from distrl.networks.network_copy import NetworkCopy
from distrl.networks.objective import RANDOM_STATES, over_rows
from distrl.networks.optimizers import clip_gradients, create_optimizer, global_norm, set_learning_rate
from distrl.networks.savers import OnnxSaver, WeightsSaver, savers_of
from distrl.networks.weights import to_numpy
from distrl.types import Array, EnvSpec


class Accumulated(NamedTuple):
    """What `accumulate_gradients` and `train_on_batch` tell.

    Attributes:
        total_loss: Sum of `losses`.
        losses: One per head, weighted, in the heads' order; then one per regularisation.
        norm_unclipped_grads: Global norm of the gradients before clipping.
        fetched: Values of `additional_fetches`, in their order.
    """

    total_loss: float
    losses: list[float]
    norm_unclipped_grads: float
    fetched: list[Array]


class Architecture(NetworkCopy):
    """A network copy, its accumulated gradients and its optimizer; for its arguments see `NetworkCopy`."""

    def __init__(
        self, parameters: NetworkParameters, spec: EnvSpec, heads: Sequence[HeadParameters], name: str, seed: int
    ) -> None:
        super().__init__(parameters, spec, heads, name, seed)
        self._accumulated: list[Array] | None = None
        self._gradients: dict[tuple[str, ...], Gradients] = {}
        self._optimizer: Any = None
        self._learning_rate = parameters.learning_rate
        self._apply: Apply | None = None

    @staticmethod
    def construct(
        variable_scope: str,
        devices: Sequence[str],
        parameters: NetworkParameters,
        spec: EnvSpec,
        heads: Sequence[HeadParameters],
        seed: int,
    ) -> "Architecture":
        """A network under the name `variable_scope`, its variables on the one device given, as "cpu:0".

        Raises:
            ValueError: Several devices; a batch is spread over them by learner.replicas.
        """
        if len(devices) != 1:
            raise ValueError(
                f"a network lives on one device, not {list(devices)}; learner.replicas spreads batches, with JAX"
            )
        with keras.device(devices[0].lstrip("/")):
            return Architecture(parameters, spec, heads, variable_scope, seed)

    def accumulate_gradients(
        self,
        inputs: Mapping[str, Array],
        targets: Sequence[Any],
        additional_fetches: Sequence[str] = (),
        importance_weights: Array | None = None,
        no_accumulation: bool = False,
    ) -> Accumulated:
        """Adds the gradients of one batch to the accumulator; weights stay as they are.

        Args:
            inputs: name -> [batch, ...].
            targets: One per head, as its `loss` takes it.
            additional_fetches: Names ``<head>/<what>`` of what the heads can tell, such as ``policy/entropy``.
            importance_weights: float32 [batch]; multiplies every sample's loss.
            no_accumulation: Replace what was accumulated instead of adding to it.

        Raises:
            ValueError: Too few or too many targets, an unknown fetch, or inputs or importance weights that do not fit.
        """
        heads = self.assembly.heads
        if len(targets) != len(heads):
            raise ValueError(f"{len(targets)} targets given, network {self.name} has {len(heads)} heads")
        inputs = self._with_state(inputs)
        batch = len(next(iter(inputs.values())))
        weights = np.ones(batch) if importance_weights is None else np.asarray(importance_weights)
        if weights.shape != (batch,):
            raise ValueError(f"importance_weights must be [{batch}], one for each row, not {list(weights.shape)}")
        data = {"inputs": inputs, "targets": dict(enumerate(targets)), "weights": weights.astype(np.float32)}
        total, named, gradients = self._gradients_of(tuple(additional_fetches))(data)
        for state, drawn in zip(self.random_states, named.pop(RANDOM_STATES, ()), strict=True):
            state.assign(drawn)  # so that the next batch gets other noise
        norm = float(global_norm(gradients))
        gradients = [to_numpy(gradient) for gradient in clip_gradients(gradients, self.parameters)]
        if self._accumulated is None or no_accumulation:
            self._accumulated = gradients
        else:
            self._accumulated = [old + new for old, new in zip(self._accumulated, gradients, strict=True)]
        return Accumulated(total, named["losses"].tolist(), norm, [named[name] for name in additional_fetches])

    @property
    def accumulated_gradients(self) -> list[Array]:
        """Copies of the accumulated gradients, one per trainable weight in the network's order; zeros before any."""
        if self._accumulated is None:
            return [np.zeros(variable.shape, np.float32) for variable in self.model.trainable_variables]
        return [gradient.copy() for gradient in self._accumulated]

    def set_accumulated_gradients(self, gradients: Sequence[Array]) -> None:
        """Puts gradients that were computed elsewhere into the accumulator, in place of what is there.

        Raises:
            ValueError: As `apply_gradients`.
        """
        self._accumulated = [gradient.copy() for gradient in self._checked_gradients(gradients)]

    def reset_accumulated_gradients(self) -> None:
        """Forgets what was accumulated."""
        self._accumulated = None

    @property
    def optimizer(self) -> Any:
        """This copy's own optimizer, made when it is first asked for."""
        if self._optimizer is None:
            self._optimizer = create_optimizer(self.parameters)
            self._optimizer.build(self.model.trainable_variables)
            self.set_learning_rate(self._learning_rate)
        return self._optimizer

    def set_learning_rate(self, rate: float) -> None:
        """Goes on as if `parameters.learning_rate` were `rate`: see `optimizers.set_learning_rate`."""
        self._learning_rate = rate
        if self._optimizer is not None:
            set_learning_rate(self._optimizer, self.parameters, rate)

    def apply_gradients(
        self,
        gradients: Sequence[Array],
        scaler: float = 1.0,
        additional_inputs: Mapping[str, Array] | None = None,
    ) -> None:
        """One step of this copy's own optimizer with ``scaler * gradients``; the caller's arrays stay as they are.

        Args:
            additional_inputs: Inputs by name that batch normalisation takes its moving averages from.

        Raises:
            ValueError: The number of gradients or a shape is wrong. Nothing was changed.
        """
        checked = self._checked_gradients(gradients)
        if self._apply is None:
            self._apply = Apply(self.optimizer, self.model.trainable_variables)
        self._apply(checked, scaler)
        self.update_statistics(additional_inputs)

    def apply_and_reset_gradients(
        self,
        gradients: Sequence[Array],
        scaler: float = 1.0,
        additional_inputs: Mapping[str, Array] | None = None,
    ) -> None:
        """`apply_gradients`, then `reset_accumulated_gradients`."""
        self.apply_gradients(gradients, scaler, additional_inputs)
        self.reset_accumulated_gradients()

    def update_statistics(self, inputs: Mapping[str, Array] | None) -> None:
        """Moves batch normalisation's averages towards those of `inputs`; nothing without them.

        Nothing else does so here; in the learner's compiled step every batch does.
        """
        if inputs is not None:
            self.model(self._with_state(inputs), training=True)

    def train_on_batch(
        self,
        inputs: Mapping[str, Array],
        targets: Sequence[Any],
        scaler: float = 1.0,
        additional_fetches: Sequence[str] = (),
        importance_weights: Array | None = None,
    ) -> Accumulated:
        """`accumulate_gradients`, then `apply_and_reset_gradients` of all that is accumulated."""
        told = self.accumulate_gradients(inputs, targets, additional_fetches, importance_weights)
        self.apply_and_reset_gradients(self.accumulated_gradients, scaler)
        return told

    def collect_savers(self, parent_path_suffix: str = "") -> list[WeightsSaver | OnnxSaver]:
        """One saver of the weights and one of the network as ONNX, under ``<parent>/<network>``."""
        return savers_of(self, parent_path_suffix)

    def in_float32(self) -> "Architecture":
        """The network itself, or its twin that computes in float32: what ONNX Runtime is fast and exact in."""
        if self.parameters.compute_dtype == "float32":
            return self
        parameters = self.parameters.model_copy(update={"compute_dtype": "float32"})
        return Architecture(parameters, self.spec, self.head_parameters, self.name, seed=0)

    def _gradients_of(self, fetches: tuple[str, ...]) -> Gradients:
        if fetches not in self._gradients:
            function = over_rows(self.assembly, self.parameters, fetches, self.random_states)
            self._gradients[fetches] = Gradients(function, self.model.trainable_variables, self.state_variables)
        return self._gradients[fetches]

    def _checked_gradients(self, gradients: Sequence[Array]) -> list[Array]:
        variables = self.model.trainable_variables
        if len(gradients) != len(variables):
            raise ValueError(f"{len(gradients)} gradients given, network {self.name} has {len(variables)} weights")
        arrays = [np.asarray(gradient, np.float32) for gradient in gradients]
        for variable, array in zip(variables, arrays, strict=True):
            if array.shape != tuple(variable.shape):
                raise ValueError(f"gradient of {variable.path} has shape {array.shape}, not {tuple(variable.shape)}")
            if not np.isfinite(array).all():
                raise ValueError(f"gradient of {variable.path}: the given values are not finite")
        return arrays
