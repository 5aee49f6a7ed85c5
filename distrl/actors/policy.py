"""Hop 2: the policy in an actor: an ONNX graph from the policy bundle, weights from the learner, one thread.

The inference server of a host runs it with several threads, or on a GPU.

The process needs neither TensorFlow nor the network's Python code. A graph that reads data other than the injected
weights is refused.
"""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime

from distrl.actors.acting import Acting, Fetch, Perturb, PolicyOutput
from distrl.config.schedules import Progress
from distrl.errors import DistrlError
from distrl.networks.policy.description import BundleDescription, WeightSpec
from distrl.networks.policy.protobuf import graph_inputs
from distrl.types import Array, PolicyBundle, Weights

NOWHERE = "/dev/null"
"""Folder in which ONNX Runtime looks for external data that was not injected. It is no folder, so nothing is found."""
ON_CPU = ("CPUExecutionProvider",)


class Policy(Acting):
    """Runs a policy bundle; its weights can be exchanged at any time.

    Args:
        threads: Numeric threads.
        providers: What ONNX Runtime is to compute with, the preferred one first.

    Attributes:
        provider: What it computes with.

    Raises:
        DistrlError: The description is not valid, the graph is not the one it describes, or the graph refers to data
            outside the bundle.
    """

    def __init__(self, bundle: PolicyBundle, threads: int = 1, providers: Sequence[str] = ON_CPU) -> None:
        self._description = BundleDescription.from_json(bundle.description)
        found = hashlib.sha256(bundle.graph).hexdigest()
        if found != self._description.sha256:
            raise DistrlError(f"policy bundle: the graph's sha256 is {found}, described is {self._description.sha256}")
        self.spec = self._description.environment
        self.distributions = self._description.action_distributions
        self.exploration = self._description.exploration
        self.version = 0
        self._graph, self._threads, self._providers = bundle.graph, threads, providers
        self._arrays: dict[str, Array] = {}
        self._acting: dict[str, Array] = {}  # a session reads this memory, so it must live as long
        self._fed: dict[str, Array] = {}  # the same, if weights are inputs
        self._sigmas = self._description.sigmas
        self._outputs = list(self._description.outputs)
        self._next_state = {f"next_{name}": name for name in self._description.recurrent_state}
        self._output_names = [*self._outputs, *self._next_state]
        self._feeds = self.weight_names <= _inputs_of(self._graph)
        # With zeros where weights are initializers, so that a bad graph is refused here and not at the first weights.
        session = self._open({} if self._feeds else self._zeros())
        self._check_signature(session)
        self.provider: str = session.get_providers()[0]
        self._session: onnxruntime.InferenceSession | None = session

    @property
    def weight_names(self) -> frozenset[str]:
        """Names of the weights that `set_weights` takes; acting reads no other published weights."""
        return frozenset(spec.name for spec in self._description.weights)

    def follow(self, newest: int, fetch: Fetch, rate: float) -> Progress | None:
        if (fetched := fetch()) is None:
            return None
        weights, progress = fetched
        self.set_weights(weights, rate)
        return progress

    def set_weights(self, weights: Weights, rate: float = 1.0) -> None:
        """Set ``new = rate * given + (1 - rate) * old`` for trainable weights; all others become the given ones.

        The first weights are taken whole, as there is nothing to mix them with. A rate of 0 changes nothing but
        the version.

        Args:
            weights: Exactly the described names, shapes and dtypes; finite. They are copied. The scales of the noise
                of noisy layers may be among them.
            rate: In [0, 1].

        Raises:
            DistrlError: They do not fit. The policy keeps its weights.
        """
        if not 0.0 <= rate <= 1.0:
            raise DistrlError(f"weights {weights.version}: rate must be in [0, 1], not {rate}")
        expected = self.weight_names
        if odd := sorted(expected ^ (weights.arrays.keys() - self._sigmas.keys())):
            which = "missing" if odd[0] in expected else "unknown"
            raise DistrlError(f"weights {weights.version}: {odd[0]} is {which}")
        given = [spec for spec in self._sigmas.values() if spec.name in weights.arrays]
        self._arrays = {spec.name: self._next(spec, weights, rate) for spec in (*self._description.weights, *given)}
        self.version = weights.version
        self._act_with(self._arrays)

    def perturb(self, perturb: Perturb) -> None:
        self._act_with(perturb(self._description, self._arrays))

    def _act_with(self, arrays: Mapping[str, Array]) -> None:
        self._acting = {spec.name: arrays[spec.name] for spec in self._description.weights}
        if self._feeds:
            self._fed = self._acting
        else:
            self._session = None  # opened at the next step: it may be perturbed before

    def forget_weights(self) -> None:
        self._arrays = {}
        self.version = 0

    def step(self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]) -> PolicyOutput:
        if not self.version:
            raise DistrlError("the policy has no weights yet")
        if self._session is None:
            self._session = self._open(self._acting)
        try:
            outputs = self._session.run(self._output_names, {**observations, **recurrent_state, **self._fed})
        except (onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, ValueError) as error:
            raise DistrlError(f"the policy does not take these observations: {_first_line(error)}") from error
        except Exception as error:  # ONNX Runtime's errors have no common ancestor but Exception
            raise DistrlError(f"the policy cannot be run: {_first_line(error)}") from error
        count = len(self._outputs)
        state = dict(zip(self._next_state.values(), outputs[count:], strict=True))
        return PolicyOutput(dict(zip(self._outputs, outputs[:count], strict=True)), state)

    def initial_state(self, batch: int) -> dict[str, Array]:
        specs = self._description.recurrent_state
        return {name: np.zeros((batch, *spec.shape), spec.dtype) for name, spec in specs.items()}

    def _next(self, spec: WeightSpec, weights: Weights, rate: float) -> Array:
        """Return the array that replaces the one in use, always in new memory."""
        given = np.asarray(weights.arrays[spec.name])
        if given.shape != spec.shape or given.dtype != np.dtype(spec.dtype):
            raise DistrlError(
                f"weights {weights.version}: {spec.name} is {given.dtype} {given.shape}, not {spec.dtype} {spec.shape}"
            )
        if not np.isfinite(given).all():
            raise DistrlError(f"weights {weights.version}: {spec.name} is not finite")
        old = self._arrays.get(spec.name)
        if old is None or rate == 1.0 or (rate > 0.0 and not spec.mixed):
            return np.array(given, order="C")
        return np.asarray(rate * given + (1.0 - rate) * old) if spec.mixed and rate > 0.0 else old.copy()

    def _open(self, weights: Mapping[str, Array]) -> onnxruntime.InferenceSession:
        """Return a session with these weights as initializers."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised; ONNX Runtime need not print them as well
        options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # what waits leaves its core to actors
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", NOWHERE)
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        if values:
            options.add_external_initializers(list(weights), values)
        try:
            return onnxruntime.InferenceSession(self._graph, options, providers=[*self._providers])
        except Exception as error:  # ONNX Runtime's errors have no common ancestor but Exception
            raise DistrlError(f"policy bundle: ONNX Runtime refuses the graph: {_first_line(error)}") from error

    def _zeros(self) -> dict[str, Array]:
        return {spec.name: np.zeros(spec.shape, spec.dtype) for spec in self._description.weights}

    def _check_signature(self, session: onnxruntime.InferenceSession) -> None:
        """Raise DistrlError unless the graph's inputs and outputs are the described ones."""
        inputs = {tensor.name for tensor in session.get_inputs()}
        inputs -= self.weight_names
        described = self._description.inputs.keys() | self._description.recurrent_state.keys()
        if inputs != described:
            raise DistrlError(f"policy bundle: the graph takes {sorted(inputs)}, described are {sorted(described)}")
        outputs = {tensor.name for tensor in session.get_outputs()}
        actions = {spec.output_of(action) for action, spec in self.distributions.items()}
        if outputs != set(self._output_names) or not actions <= outputs:
            raise DistrlError(
                f"policy bundle: the graph puts out {sorted(outputs)}, described are {self._output_names}"
            )


def providers_of_gpus() -> tuple[str, ...]:
    """Return what ONNX Runtime computes with on a GPU: nothing, unless its variant for GPUs is installed."""
    return tuple({"CUDAExecutionProvider"} & {*onnxruntime.get_available_providers()})


def _inputs_of(graph: bytes) -> frozenset[str]:
    try:
        return graph_inputs(graph)
    except DistrlError as error:
        raise DistrlError(f"policy bundle: {error}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
