"""NetworkWrapper: copies of one network that move at different rates.

    global    authoritative, shared by all who contribute gradients; optional
    online    the working copy: what losses see and actors get
    target    follows slowly, for bootstrapping; optional

Method names and meanings are Coach's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from distrl.config.network import NetworkParameters
from distrl.errors import CheckpointError
from distrl.networks.architecture import Architecture, checked_array, to_numpy
from distrl.networks.backend import CompiledStep, LossFunction
from distrl.networks.optimizers import create_optimizer
from distrl.types import Array, EnvSpec

StateArrays = dict[str, dict[str, Array]]


class NetworkWrapper:
    """The copies of one network and the optimizer that moves them. All copies start equal.

    Attributes:
        online: Always there.
        target: None without `has_target`.
        global_: None without `has_global`.
        optimizer: Moves the global copy if there is one, otherwise the online copy.

    Args:
        seed: Equal seeds give bit-equal weights.
    """

    def __init__(
        self,
        parameters: NetworkParameters,
        spec: EnvSpec,
        heads: tuple[str, ...],
        *,
        has_target: bool,
        has_global: bool,
        name: str,
        seed: int,
    ) -> None:
        self.name = name
        self.online = Architecture(parameters, spec, heads, name, seed)
        self.target = Architecture(parameters, spec, heads, name, seed) if has_target else None
        self.global_ = Architecture(parameters, spec, heads, name, seed) if has_global else None
        self.optimizer = create_optimizer(parameters)
        self.optimizer.build((self.global_ or self.online).model.trainable_variables)

    @property
    def copies(self) -> dict[str, Architecture]:
        """The copies that exist, by name."""
        candidates = {"global": self.global_, "online": self.online, "target": self.target}
        return {name: copy for name, copy in candidates.items() if copy is not None}

    def set_weights(self, weights: Sequence[Array], rate: float = 1.0) -> None:
        """Mixes `weights` into the online copy; see `Architecture.set_weights`."""
        self.online.set_weights(weights, rate)

    def update_online_network(self, rate: float = 1.0) -> None:
        """``online <- rate * global + (1 - rate) * online``; nothing without a global copy."""
        if self.global_ is not None:
            self.online.pull(self.global_, rate)

    def update_target_network(self, rate: float = 1.0) -> None:
        """``target <- rate * online + (1 - rate) * target``; nothing without a target copy."""
        if self.target is not None:
            self.target.pull(self.online, rate)

    def sync(self) -> None:
        """Makes all copies equal: online from global, then target from online."""
        self.update_online_network()
        self.update_target_network()

    def train_step(self, loss_function: LossFunction) -> CompiledStep:
        """The compiled update: gradients of the online copy's loss, applied to the authoritative copy.

        With a global copy they are applied there, and online is pulled from it within the same compiled step.
        """
        return CompiledStep(
            unroll=self.online.unroll,
            variables=self.online.model.trainable_variables,
            optimizer=self.optimizer,
            loss_function=loss_function,
            global_variables=None if self.global_ is None else self.global_.model.trainable_variables,
        )

    def state_arrays(self) -> StateArrays:
        """Everything that training changes: weights of all copies, moments and update count of the optimizer.

        Returns:
            "global", "online", "target" (those that exist) and "optimizer" -> Keras path -> a copy of the array.
        """
        state = {name: copy.named_weights() for name, copy in self.copies.items()}
        state["optimizer"] = {variable.path: to_numpy(variable) for variable in self._optimizer_state()}
        return state

    def restore(self, state: Mapping[str, Mapping[str, Array]]) -> None:
        """Sets everything to what `state_arrays` returned: training goes on bit by bit as it would have.

        Raises:
            CheckpointError: A group or array is missing, unknown, of another shape or not finite. Nothing was changed.
        """
        groups: dict[str, list[Any]] = {name: copy.model.weights for name, copy in self.copies.items()}
        groups["optimizer"] = self._optimizer_state()
        if groups.keys() != state.keys():
            raise CheckpointError(f"network {self.name} has {sorted(groups)}, the checkpoint has {sorted(state)}")
        assignments = []
        for group, variables in groups.items():
            assignments += _matched(f"{self.name}/{group}", variables, state[group])
        for variable, array in assignments:
            variable.assign(array)

    def _optimizer_state(self) -> list[Any]:
        # The learning rate is configuration, not state: a run resumed with another one shall use that.
        rate_path = f"{self.optimizer.name}/learning_rate"
        return [variable for variable in self.optimizer.variables if variable.path != rate_path]

    def __str__(self) -> str:
        names = " | ".join(f"{name} network" for name in self.copies)
        lines = [f"Network: {self.name}, Copies: {len(self.copies)} ({names})"]
        lines += [f"{name} network: {copy}" for name, copy in self.copies.items()]
        return "\n".join(lines)


def _matched(group: str, variables: list[Any], arrays: Mapping[str, Array]) -> list[tuple[Any, Array]]:
    """Pairs variables with their arrays; raises CheckpointError unless they fit exactly."""
    paths = {variable.path for variable in variables}
    if paths != arrays.keys():
        odd = sorted(paths ^ arrays.keys())[0]
        where = "the checkpoint does not have it" if odd in paths else "only the checkpoint has it"
        raise CheckpointError(f"{group}: {odd}: {where}; was it written by another network structure or optimizer?")
    try:
        return [(variable, checked_array(variable, arrays[variable.path])) for variable in variables]
    except ValueError as error:
        raise CheckpointError(f"{group}: {error}") from error
