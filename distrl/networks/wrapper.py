"""NetworkWrapper: copies of one network that move at different rates.

    global    authoritative, shared by all who contribute gradients; optional
    online    the working copy: what losses see and actors get
    target    follows slowly, for bootstrapping; optional

Method names and meanings are Coach's.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from keras import ops

from distrl.config.algorithms import RewardNormalizationParameters
from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import CheckpointError
from distrl.networks.framework.differentiation import LossFunction, Objective, Part
from distrl.networks.framework.lbfgs import FullBatchStep
from distrl.networks.framework.optimizers import clip_gradients, learning_rate, state_variables
from distrl.networks.framework.own_optimizers import OwnOptimizers
from distrl.networks.gradient_step import GradientStep, moving_averages, names_of, normalized_inputs
from distrl.networks.network import Accumulated, Architecture
from distrl.networks.objective import UnrollLoss, over_unrolls
from distrl.networks.policy.savers import OnnxSaver, WeightsSaver, savers_of
from distrl.networks.statistics import StateArrays, Statistics
from distrl.networks.steps import Step, TrainStep, equal_parts
from distrl.networks.weights import checked_array, is_mixed, to_numpy
from distrl.types import Array, Batch, EnvSpec


class NetworkWrapper:
    """The copies of one network and the optimizer that moves them. All copies start equal.

    Attributes:
        online: Always there.
        target: None without `has_target`.
        global_: None without `has_global`.
        moments: Input name -> statistics of the inputs that the network normalises.
        rewards: What normalises the rewards that it learns from; None: nothing.
        beside: Group -> name -> variable. What an algorithm trains or draws from beside the weights, to be saved with
            them.

    Args:
        heads: What the network ends in.
        has_target: As `network.create_target_network` for whoever does not ask for one here.
        shared_global: The global copy of another worker, which this one shares.
        seed: Equal seeds give bit-equal weights.
        reward_normalization: How rewards are normalised; None: they are not.
    """

    def __init__(
        self,
        parameters: NetworkParameters,
        spec: EnvSpec,
        heads: Sequence[HeadParameters],
        *,
        has_target: bool,
        has_global: bool,
        name: str,
        seed: int,
        shared_global: Architecture | None = None,
        reward_normalization: RewardNormalizationParameters | None = None,
    ) -> None:
        def copy() -> Architecture:
            return Architecture(parameters, spec, heads, name, seed)

        self.name = name
        self.parameters = parameters
        self.online = copy()
        self.target = copy() if has_target or parameters.create_target_network else None
        self.global_ = shared_global or (copy() if has_global else None)
        self.sync()  # a shared global copy has been trained already, and a user's model may draw as it likes
        self._own: OwnOptimizers | None = None
        if self.global_ is not None and not parameters.shared_optimizer:
            self._own = OwnOptimizers(parameters, self.global_.model.trainable_variables)
        self._statistics = Statistics([*self.copies.values()], reward_normalization)
        self.moments, self.rewards = self._statistics.moments, self._statistics.rewards
        self.beside: dict[str, dict[str, Any]] = {}

    @property
    def optimizer(self) -> Any:
        """Of the global copy if there is one and it is shared, of this worker alone if not, else the online copy's."""
        return self.optimizer_of(None)

    def optimizer_of(self, worker: int | None) -> Any:
        """The optimizer that applies the gradients of `worker`; None: of this process."""
        if self._own is not None:
            return self._own.optimizer(worker)
        return (self.global_ or self.online).optimizer

    def set_learning_rate(self, rate: float) -> None:
        """Goes on as if `parameters.learning_rate` were `rate`: see `optimizers.set_learning_rate`."""
        for copy in self.copies.values():
            copy.set_learning_rate(rate)
        if self._own is not None:
            self._own.set_learning_rate(rate)

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

    def train_step(self, loss: UnrollLoss, replicas: int = 1, minibatches: int = 1) -> TrainStep:
        """The compiled update of the online copy by gradients of its loss.

        Args:
            loss: (outputs, batch) -> one scalar per head, and metrics; traced once. The outputs of the target copy, if
                there is one, are among them: see `objective.over_unrolls`.
            replicas: Devices that share a batch.
            minibatches: Equal parts of its sequences, a step each.
        """
        online = self.online
        function = self._over_unrolls(loss)
        constants = [] if self.target is None else self.target.model.variables
        others = online.state_variables
        if self.parameters.optimizer_type == "LBFGS":
            return FullBatchStep(function, online.model.trainable_variables, others, self.parameters)
        parts = equal_parts(minibatches) if minibatches > 1 else None
        return Step(function, [self.part()], others, constants, replicas=replicas, minibatches=parts)

    def part(self, every: int = 1) -> Part:
        """The online copy's weights and its optimizer as a part of a step, clipping as the parameters say.

        Raises:
            ConfigError: Its optimizer is LBFGS, which takes no single gradients.
        """
        online = self.online
        return Part(
            online.model.trainable_variables,
            online.optimizer,
            lambda gradients: clip_gradients(gradients, self.parameters),
            every,
        )

    @property
    def step_states(self) -> list[Any]:
        """All that a step of several networks may assign beside weights; of the target copy, everything."""
        slow = [] if self.target is None else self.target.model.variables
        return [*self.online.state_variables, *slow]

    def follow(self, rate: Any) -> None:
        """`update_target_network` inside a step, whose `others` hold `step_states`.

        At the beginning of a step it does what it would at the end of the one before, without a call of its own.

        Args:
            rate: A number or float32 []; with 0 the target copy stays.
        """
        assert self.target is not None
        for slow, fast in zip(self.target.model.weights, self.online.model.weights, strict=True):
            mixed = rate * fast.value + (1.0 - rate) * slow.value if is_mixed(slow) else fast.value
            slow.assign(ops.stop_gradient(mixed))

    def objective(self, loss: UnrollLoss) -> Objective:
        """What `train_step` minimises, of a whole batch."""
        slow = [] if self.target is None else self.target.model.variables
        return Objective(self._over_unrolls(loss), [*self.online.state_variables, *slow])

    def _over_unrolls(self, loss: UnrollLoss) -> LossFunction:
        slow = None if self.target is None else self.target.assembly
        return over_unrolls(self.online.assembly, self.parameters, loss, slow)

    def gradient_step(self, loss: UnrollLoss) -> GradientStep:
        """The compiled gradient of the online copy's loss, for somebody else to apply.

        Args:
            loss: As of `train_step`.
        """
        return GradientStep(self.online, loss)

    def contribution_shapes(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        """Name -> shape of trainable weights, of moving averages, and of a row of each normalised input."""
        trainable = self.online.model.trainable_variables
        named = dict(zip(names_of(self.online, trainable), trainable, strict=True))
        shapes = [
            {name: tuple(variable.shape) for name, variable in variables.items()}
            for variables in (named, moving_averages(self.online))
        ]
        return (*shapes, dict(normalized_inputs(self.online)))

    def observe(self, batch: Batch) -> None:
        """Adds a batch's valid rows to the statistics of normalised inputs and puts these into every copy."""
        self._statistics.observe(batch)

    def observe_moments(self, moments: Mapping[str, Mapping[str, Array]]) -> None:
        """`observe` of rows that others have seen, by their count, mean and squares."""
        self._statistics.observe_moments(moments)

    def observe_rewards(self, moments: Mapping[str, Array]) -> None:
        """Merges what actors tell of their rewards; nothing where they are not normalised."""
        self._statistics.observe_rewards(moments)

    def with_normal_rewards(self, batch: Batch) -> Batch:
        """The batch as losses see it."""
        return batch if self.rewards is None else self.rewards(batch)

    def published_weights(self) -> dict[str, Array]:
        """All that a gradient actor must know: the online copy's weights, and by what rewards are normalised."""
        return self.online.named_weights() | ({} if self.rewards is None else self.rewards.published())

    def apply_gradients_to_global_network(
        self,
        gradients: Sequence[Array] | None = None,
        additional_inputs: Mapping[str, Array] | None = None,
        *,
        scaler: float = 1.0,
        worker: int | None = None,
    ) -> None:
        """Applies gradients to the global copy; the online copy stays as it is.

        Args:
            gradients: In the network's order; None: what the online copy has accumulated.
            additional_inputs: See `Architecture.apply_gradients`.
            scaler: Factor of the gradients; the caller's arrays stay as they are.
            worker: Whose they are, where every worker has an optimizer of its own; None: this process's.

        Raises:
            ValueError: There is no global copy.
        """
        if self.global_ is None:
            raise ValueError(f"network {self.name} has no global copy to apply gradients to")
        gradients = self.online.accumulated_gradients if gradients is None else gradients
        if self._own is None:
            self.global_.apply_gradients(gradients, scaler, additional_inputs)
        else:
            self._own.apply(worker, gradients, scaler)
            self.global_.update_statistics(additional_inputs)

    def apply_gradients_to_online_network(
        self, gradients: Sequence[Array] | None = None, additional_inputs: Mapping[str, Array] | None = None
    ) -> None:
        """Applies gradients to the online copy alone, by its own optimizer; None: what it has accumulated."""
        gradients = self.online.accumulated_gradients if gradients is None else gradients
        self.online.apply_gradients(gradients, 1.0, additional_inputs)

    def apply_gradients_and_sync_networks(
        self, reset_gradients: bool = True, additional_inputs: Mapping[str, Array] | None = None
    ) -> None:
        """Applies what is accumulated to the global copy and pulls it; without one, to the online copy.

        Args:
            reset_gradients: Empty the accumulator afterwards.
        """
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
        """One batch's gradients, in place of what was accumulated, applied and pulled.

        Args:
            use_inputs_for_apply_gradients: Pass `inputs` on as additional inputs.

        Returns:
            What `Architecture.accumulate_gradients` tells.
        """
        told = self.online.accumulate_gradients(
            inputs, targets, additional_fetches, importance_weights, no_accumulation=True
        )
        additional = inputs if use_inputs_for_apply_gradients else None
        self.apply_gradients_and_sync_networks(reset_gradients=False, additional_inputs=additional)
        return told

    def parallel_prediction(
        self, network_input_tuples: Sequence[tuple[Architecture, Mapping[str, Array]]]
    ) -> list[Any]:
        """One `predict` for each (copy of this network, inputs), in the given order.

        Raises:
            ValueError: A copy is not of this network, or is asked twice.
        """
        asked = [network for network, _ in network_input_tuples]
        if any(network not in self.copies.values() for network in asked) or len(set(map(id, asked))) < len(asked):
            raise ValueError(f"each of {', '.join(self.copies)} of network {self.name} can be asked once at most")
        return Architecture.parallel_predict(network_input_tuples)

    def set_is_training(self, state: bool) -> None:
        """Sets it for online and target copy; see `Architecture.set_is_training`."""
        for network in (self.online, self.target):
            if network is not None:
                network.set_is_training(state)

    def variables(self, scope: Literal["local", "global"]) -> list[Any]:
        """Variables of this worker's own copies, or of the copy that all workers share."""
        networks = [self.global_] if scope == "global" else [self.online, self.target]
        return [variable for network in networks if network is not None for variable in network.model.variables]

    def collect_savers(self, parent_path_suffix: str = "") -> list[WeightsSaver | OnnxSaver]:
        """Savers of the global copy if there is one, else of the online copy; what they restore all copies get."""
        return savers_of(self.global_ or self.online, parent_path_suffix, self.moments, self.sync)

    def state_arrays(self) -> StateArrays:
        """Everything that training changes: variables of all copies, the optimizer's moments, statistics.

        Returns:
            "global", "online", "target" (those that exist), "optimizer", "statistics" and, where they are normalised,
            "rewards" -> path -> a copy of the array; and the groups of `beside`.
            Where every worker has its own optimizer, "optimizer_<worker>" for each that has contributed. What
            `apply_gradients_to_online_network` moves the online copy by, beside a global one, is not among them.
        """
        state = {
            group: {name: to_numpy(variable) for name, variable in variables.items()}
            for group, variables in self._groups(self._own).items()
        }
        return {**state, **self._statistics.state_arrays()}

    def restore(self, state: Mapping[str, Mapping[str, Array]]) -> None:
        """Sets everything to what `state_arrays` returned: training goes on bit by bit as it would have.

        Raises:
            CheckpointError: A group or array is missing, unknown, of another shape or not finite. Nothing was changed.
        """
        own = None if self._own is None else self._own.like(state)
        groups = self._groups(own)
        known = [*groups, *self._statistics.state_arrays()]
        if sorted(known) != sorted(state):
            raise CheckpointError(
                f"network {self.name} has {sorted(known)}, the checkpoint has {sorted(state)}: another configuration "
                "(optimizers, statistics, algorithm.reward_normalization) wrote it; resume with that one"
            )
        assignments = []
        for group, variables in groups.items():
            assignments += _matched(f"{self.name}/{group}", variables, state[group])
        self._statistics.check(self.name, state)
        self._own = own
        for variable, array in assignments:
            variable.assign(array)
        self._statistics.restore(state)

    def adopt(self, weights: Mapping[str, Array], rows: int) -> None:
        """Set every copy to weights that were published; the optimizers stay as they are.

        Args:
            rows: Rows of inputs that were seen until then, by which later ones are weighed where inputs are normalised.

        Raises:
            CheckpointError: Training has changed more than `weights` hold, or they are of another network. Nothing was
                changed.
        """
        if self.beside or self.rewards is not None:
            raise CheckpointError("statistics of rewards and what is trained beside the network are not published")
        if callable(learning_rate(self.parameters)):
            raise CheckpointError("the place in its learning rate's schedule is not published")
        trained = {name for name, variable in self.online.variables.items() if variable.trainable}
        if odd := sorted(trained - weights.keys()) or sorted(weights.keys() - self.online.variables.keys()):
            raise CheckpointError(f"{odd[0]} is in only one of them and the network")
        assignments = []
        for group, copy in self.copies.items():
            known = {name: copy.variables[name] for name in weights}
            assignments += _matched(f"{self.name}/{group}", known, weights)
        for variable, array in assignments:
            variable.assign(array)
        self._statistics.adopt(rows)

    def _groups(self, own: OwnOptimizers | None) -> dict[str, dict[str, Any]]:
        """Every variable that training changes, by group and name."""
        groups = {name: copy.variables for name, copy in self.copies.items()} | self.beside
        if own is not None:
            optimizers = own.groups()
        elif self.parameters.optimizer_type == "LBFGS":  # which begins anew with every batch
            optimizers, groups["optimizer"] = {}, {}
        else:
            optimizers = {"optimizer": self.optimizer}
        return groups | {group: state_variables(optimizer) for group, optimizer in optimizers.items()}

    def __str__(self) -> str:
        names = " | ".join(f"{name} network" for name in self.copies)
        lines = [f"Network: {self.name}, Copies: {len(self.copies)} ({names})"]
        lines += [f"{name} network: {copy}" for name, copy in self.copies.items()]
        return "\n".join(lines)


def _matched(group: str, variables: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[tuple[Any, Array]]:
    """Pairs variables with their arrays; raises CheckpointError unless they fit exactly."""
    if odd := sorted(variables.keys() ^ arrays.keys()):
        where = "the checkpoint does not have it" if odd[0] in variables else "only the checkpoint has it"
        raise CheckpointError(f"{group}: {odd[0]}: {where}; was it written by another network structure or optimizer?")
    try:
        return [(variable, checked_array(variable, arrays[name])) for name, variable in variables.items()]
    except ValueError as error:
        raise CheckpointError(f"{group}: {error}") from error
