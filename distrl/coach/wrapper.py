"""Coach's `NetworkWrapper`: its methods over all copies of a network."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from distrl.coach.architecture import Accumulated, Architecture
from distrl.coach.savers import OnnxSaver, WeightsSaver, savers_of
from distrl.networks.copies import Copies
from distrl.types import Array


class NetworkWrapper:
    """The copies of a network with Coach's methods. It holds a `Copies`, as algorithms build them too.

    Attributes:
        copies: The copies, which know how to keep in step.
        online, target, global_: Each copy with Coach's methods; None: there is no such copy.
    """

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.by_name = {name: Architecture(network) for name, network in copies.by_name.items()}
        self.online = self.by_name["online"]
        self.target, self.global_ = self.by_name.get("target"), self.by_name.get("global")

    def sync(self) -> None:
        """Make all copies equal: online from global, then target from online."""
        self.copies.sync()

    def set_weights(self, weights: Sequence[Array], rate: float = 1.0) -> None:
        """Mix `weights` into the online copy; see `Network.set_weights`."""
        self.copies.online.set_weights(weights, rate)

    def update_target_network(self, rate: float = 1.0) -> None:
        """Set ``target <- rate * online + (1 - rate) * target``, if there is a target copy."""
        self.copies.update_target_network(rate)

    def update_online_network(self, rate: float = 1.0) -> None:
        """Set ``online <- rate * global + (1 - rate) * online``, if there is a global copy."""
        self.copies.update_online_network(rate)

    def apply_gradients_to_global_network(
        self, gradients: Sequence[Array] | None = None, additional_inputs: Mapping[str, Array] | None = None
    ) -> None:
        """Apply gradients to the global copy; the online copy stays as it is.

        Args:
            gradients: In the network's order; None: the accumulated gradients of the online copy.
            additional_inputs: See `Architecture.update_statistics`.

        Raises:
            ValueError: There is no global copy.
        """
        self.copies.apply_gradients(self.online.accumulated_gradients if gradients is None else gradients)
        assert self.global_ is not None  # gradients were applied to it
        self.global_.update_statistics(additional_inputs)

    def apply_gradients_to_online_network(
        self, gradients: Sequence[Array] | None = None, additional_inputs: Mapping[str, Array] | None = None
    ) -> None:
        """Apply gradients, or the accumulated ones, to the online copy only, by its own optimizer."""
        gradients = self.online.accumulated_gradients if gradients is None else gradients
        self.online.apply_gradients(gradients, 1.0, additional_inputs)

    def apply_gradients_and_sync_networks(
        self, reset_gradients: bool = True, additional_inputs: Mapping[str, Array] | None = None
    ) -> None:
        """Apply the accumulated gradients to the global copy and pull it; without one, to the online copy."""
        if self.global_ is None:
            self.apply_gradients_to_online_network(None, additional_inputs)
        else:
            self.apply_gradients_to_global_network(None, additional_inputs)
        if reset_gradients:
            self.online.reset_accumulated_gradients()
        self.update_online_network()

    def train_and_sync_networks(
        self,
        inputs: Mapping[str, Array],
        targets: Sequence[Any],
        additional_fetches: Sequence[str] = (),
        importance_weights: Array | None = None,
        use_inputs_for_apply_gradients: bool = False,
    ) -> Accumulated:
        """Replace the accumulated gradients by those of one batch, then `apply_gradients_and_sync_networks`."""
        accumulated = self.online.accumulate_gradients(
            inputs, targets, additional_fetches, importance_weights, no_accumulation=True
        )
        additional = inputs if use_inputs_for_apply_gradients else None
        self.apply_gradients_and_sync_networks(reset_gradients=False, additional_inputs=additional)
        return accumulated

    def parallel_prediction(
        self, network_input_tuples: Sequence[tuple[Architecture, Mapping[str, Array]]]
    ) -> list[Any]:
        """Call `predict` for each (copy of this network, inputs), in order.

        Raises:
            ValueError: A copy belongs to another network, or occurs twice.
        """
        asked = [network for network, _ in network_input_tuples]
        if any(network not in self.by_name.values() for network in asked) or len(set(map(id, asked))) < len(asked):
            raise ValueError(f"each of {', '.join(self.by_name)} of network {self.copies.name} can occur only once")
        return Architecture.parallel_predict(network_input_tuples)

    def set_is_training(self, state: bool) -> None:
        """Call `Architecture.set_is_training` of the online and the target copy."""
        for network in (self.online, self.target):
            if network is not None:
                network.set_is_training(state)

    def variables(self, scope: Literal["local", "global"]) -> list[Any]:
        """Return the variables of this worker's own copies, or of the copy that all workers share."""
        names = ["global"] if scope == "global" else ["online", "target"]
        copies = self.copies.by_name
        return [variable for name in names if name in copies for variable in copies[name].model.variables]

    def collect_savers(self, parent_path_suffix: str = "") -> list[WeightsSaver | OnnxSaver]:
        """Return savers of the global copy, or else of the online copy; restoring sets all copies."""
        copies = self.copies
        network = copies.global_ or copies.online
        return savers_of(network, parent_path_suffix, copies.statistics.moments, copies.sync)

    def __str__(self) -> str:
        return "\n".join([str(self.copies), *(f"{name} network: {copy}" for name, copy in self.by_name.items())])
