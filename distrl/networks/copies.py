"""Copies of one network that move at different rates.

    global    authoritative, shared by all workers that contribute gradients; optional
    online    the working copy, for losses and actors
    target    follows slowly, for bootstrapping; optional

`distrl.coach` has Coach's further methods on them.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keras import ops

from distrl.config.algorithms import RewardNormalizationParameters
from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.config.optimizers import OptimizerParameters
from distrl.errors import CheckpointError
from distrl.networks.framework.backend import compiled_apply
from distrl.networks.framework.differentiation import LossFunction, Objective, Part
from distrl.networks.framework.lbfgs import FullBatchStep
from distrl.networks.framework.optimizers import (
    clip_gradients,
    create_optimizer,
    learning_rate,
    set_learning_rate,
    state_variables,
)
from distrl.networks.network import Network
from distrl.networks.objective import UnrollLoss, over_unrolls
from distrl.networks.parts.normalization import StateArrays, Statistics
from distrl.networks.steps import Step, TrainStep, equal_parts
from distrl.networks.weights import checked_array, is_mixed, to_numpy
from distrl.types import Array, EnvSpec

_GROUP = re.compile(r"optimizer(?:_(\d+))?")


class OwnOptimizers:
    """One optimizer per worker, all for the same variables: `network.shared_optimizer: false`.

    Each has moments of its own, from that worker's gradients.
    """

    def __init__(self, parameters: OptimizerParameters, variables: Sequence[Any]) -> None:
        self._parameters = parameters
        self._learning_rate = parameters.learning_rate
        self._variables = variables
        self._steps: dict[int | None, tuple[Any, Callable[..., None]]] = {}

    def optimizer(self, worker: int | None) -> Any:
        """Return a worker's optimizer, created on first use; None: that of the process that owns the network."""
        return self._step(worker)[0]

    def apply(self, worker: int | None, gradients: Sequence[Array], scaler: float) -> None:
        """Apply ``scaler * gradients`` by a worker's optimizer."""
        self._step(worker)[1](gradients, scaler)

    def set_learning_rate(self, rate: float) -> None:
        """Change the rate of all present and future optimizers; see `optimizers.set_learning_rate`."""
        self._learning_rate = rate
        for optimizer, _ in self._steps.values():
            set_learning_rate(optimizer, self._parameters, rate)

    def like(self, groups: Iterable[str]) -> "OwnOptimizers":
        """Return the optimizers of a checkpoint's groups: existing ones where there are, and new ones."""
        made = OwnOptimizers(self._parameters, self._variables)
        made._learning_rate = self._learning_rate
        for match in filter(None, map(_GROUP.fullmatch, groups)):
            worker = None if match[1] is None else int(match[1])
            if worker in self._steps:
                made._steps[worker] = self._steps[worker]
            else:
                made._step(worker)
        return made

    def groups(self) -> dict[str, Any]:
        """Return the optimizers by their group in a checkpoint: `optimizer`, `optimizer_<worker>`."""
        return {
            "optimizer" if worker is None else f"optimizer_{worker}": optimizer
            for worker, (optimizer, _) in self._steps.items()
        }

    def _step(self, worker: int | None) -> tuple[Any, Callable[..., None]]:
        if worker not in self._steps:
            optimizer = create_optimizer(self._parameters)
            set_learning_rate(optimizer, self._parameters, self._learning_rate)
            optimizer.build(self._variables)
            self._steps[worker] = (optimizer, compiled_apply(optimizer, self._variables))
        return self._steps[worker]


class Copies:
    """The copies of one network and the optimizer that moves them. All copies start equal.

    Attributes:
        rewards: Normalisation of rewards; None: rewards are not normalised.
        beside: Group -> name -> variable that an algorithm adds, saved with the weights.

    Args:
        has_target: Create a target copy, also without `network.create_target_network`.
        shared_global: The global copy of another worker, to share.
        seed: Equal seeds give bit-equal weights.
        burn_in_steps: Rows at the start of a sequence that losses do not see; see `objective.outputs_of`.
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
        shared_global: Network | None = None,
        reward_normalization: RewardNormalizationParameters | None = None,
        burn_in_steps: int = 0,
    ) -> None:
        def copy() -> Network:
            return Network(parameters, spec, heads, name, seed)

        self.name = name
        self.parameters = parameters
        self._burn_in_steps = burn_in_steps
        self.online = copy()
        self.target = copy() if has_target or parameters.create_target_network else None
        self.global_ = shared_global or (copy() if has_global else None)
        self.sync()  # a shared global copy is trained already, and a user's model may ignore the seed
        self._own: OwnOptimizers | None = None
        if self.global_ is not None and not parameters.shared_optimizer:
            self._own = OwnOptimizers(parameters, self.global_.model.trainable_variables)
        layers = [item for copy in self.by_name.values() for item in copy.normalizations]
        self.statistics = Statistics(layers, spec.observations, reward_normalization)
        self.rewards = self.statistics.rewards
        self.beside: dict[str, dict[str, Any]] = {}

    @property
    def optimizer(self) -> Any:
        """The optimizer of this process's gradients; see `optimizer_of`."""
        return self.optimizer_of(None)

    def optimizer_of(self, worker: int | None) -> Any:
        """Return the optimizer of a worker's gradients (None: of this process).

        It is the worker's own if workers do not share one, else the global copy's, else the online copy's.
        """
        if self._own is not None:
            return self._own.optimizer(worker)
        return (self.global_ or self.online).optimizer

    def set_learning_rate(self, rate: float) -> None:
        """Change the learning rate of all optimizers; see `optimizers.set_learning_rate`."""
        for copy in self.by_name.values():
            copy.set_learning_rate(rate)
        if self._own is not None:
            self._own.set_learning_rate(rate)

    @property
    def by_name(self) -> dict[str, Network]:
        """The copies that exist, by name."""
        candidates = {"global": self.global_, "online": self.online, "target": self.target}
        return {name: copy for name, copy in candidates.items() if copy is not None}

    def update_online_network(self, rate: float = 1.0) -> None:
        """Set ``online <- rate * global + (1 - rate) * online``, if there is a global copy."""
        if self.global_ is not None:
            self.online.pull(self.global_, rate)

    def update_target_network(self, rate: float = 1.0) -> None:
        """Set ``target <- rate * online + (1 - rate) * target``, if there is a target copy."""
        if self.target is not None:
            self.target.pull(self.online, rate)

    def sync(self) -> None:
        """Make all copies equal: online from global, then target from online."""
        self.update_online_network()
        self.update_target_network()

    def train_step(self, loss: UnrollLoss, replicas: int = 1, minibatches: int = 1) -> TrainStep:
        """Return the compiled update of the online copy by gradients of its loss.

        Args:
            loss: (outputs, batch) -> one scalar per head, and metrics; traced once. The outputs include those of the
                target copy, if there is one: see `objective.over_unrolls`.
            replicas: Devices that share a batch.
            minibatches: Number of equal parts of a batch's sequences, with a step each.
        """
        online = self.online
        function = self._over_unrolls(loss)
        others = online.state_variables
        if self.parameters.optimizer_type == "LBFGS":
            return FullBatchStep(function, online.model.trainable_variables, others, self.parameters)
        parts = equal_parts(minibatches) if minibatches > 1 else None
        return Step(function, [self.part()], others, self._target_variables, replicas=replicas, minibatches=parts)

    def part(self, every: int = 1) -> Part:
        """Return the online copy's optimizer, its weights and clipping as a part of a step; ConfigError for LBFGS."""
        online = self.online
        return Part(
            online.optimized,
            online.optimizer,
            lambda gradients: clip_gradients(gradients, self.parameters),
            every,
        )

    @property
    def step_states(self) -> list[Any]:
        """Variables that a step of several networks may assign beside weights, the target copy's among them."""
        return [*self.online.state_variables, *self._target_variables]

    @property
    def _target_variables(self) -> list[Any]:
        return [] if self.target is None else self.target.model.variables

    def follow(self, rate: Any) -> None:
        """Do `update_target_network` inside a step, whose `others` contain `step_states`.

        At the beginning of a step it replaces a separate call at the end of the one before.

        Args:
            rate: A number or float32 []; with 0 the target copy stays as it is.
        """
        assert self.target is not None
        for slow, fast in zip(self.target.model.weights, self.online.model.weights, strict=True):
            mixed = rate * fast.value + (1.0 - rate) * slow.value if is_mixed(slow) else fast.value
            slow.assign(ops.stop_gradient(mixed))

    def objective(self, loss: UnrollLoss) -> Objective:
        """Return the function of a whole batch that `train_step` minimises."""
        return Objective(self._over_unrolls(loss), self.step_states)

    def _over_unrolls(self, loss: UnrollLoss) -> LossFunction:
        return over_unrolls(self.online, loss, self.target, self._burn_in_steps)

    def published_weights(self) -> dict[str, Array]:
        """Return the arrays that a gradient actor needs: the online copy's weights, and statistics of rewards."""
        return self.online.named_weights() | ({} if self.rewards is None else self.rewards.published())

    def apply_gradients(self, gradients: Sequence[Array], scaler: float = 1.0, worker: int | None = None) -> None:
        """Apply ``scaler * gradients`` to the global copy; the online copy stays as it is.

        Args:
            gradients: In the network's order.
            worker: Origin of the gradients, if every worker has its own optimizer; None: this process.

        Raises:
            ValueError: There is no global copy.
        """
        if self.global_ is None:
            raise ValueError(f"network {self.name} has no global copy to apply gradients to")
        if self._own is None:
            self.global_.apply_gradients(gradients, scaler)
        else:
            self._own.apply(worker, gradients, scaler)

    def state_arrays(self) -> StateArrays:
        """Return copies of everything that training changes, as group -> name -> array.

        Groups are the copies, `optimizer` (or `optimizer_<worker>` per contributing worker, if workers have
        their own), "statistics", "rewards" if they are normalised, and those of `beside`. Beside a global copy, the
        online copy's own optimizer is not included.
        """
        state = {
            group: {name: to_numpy(variable) for name, variable in variables.items()}
            for group, variables in self._groups(self._own).items()
        }
        return {**state, **self.statistics.state_arrays()}

    def restore(self, state: Mapping[str, Mapping[str, Array]]) -> None:
        """Restore everything that `state_arrays` returned; training then continues bit by bit.

        Raises:
            CheckpointError: A group or array is missing, unknown, not finite or has another shape. Nothing was changed.
        """
        own = None if self._own is None else self._own.like(state)
        groups = self._groups(own)
        known = [*groups, *self.statistics.state_arrays()]
        if sorted(known) != sorted(state):
            raise CheckpointError(
                f"network {self.name} has {sorted(known)}, the checkpoint has {sorted(state)}: another configuration "
                "(optimizers, statistics, algorithm.reward_normalization) wrote it; resume with that one"
            )
        assignments = []
        for group, variables in groups.items():
            assignments += _matched(f"{self.name}/{group}", variables, state[group])
        self.statistics.check(self.name, state)
        self._own = own
        for variable, array in assignments:
            variable.assign(array)
        self.statistics.restore(state)

    def adopt(self, weights: Mapping[str, Array], rows: int) -> None:
        """Set every copy to published weights; the optimizers stay as they are.

        Args:
            rows: Rows of inputs until then, which weigh the statistics of normalised inputs.

        Raises:
            CheckpointError: Training changes more than the published weights, or they belong to another network.
                Nothing was changed.
        """
        if self.beside or self.rewards is not None:
            raise CheckpointError("statistics of rewards and variables beside the network are not published")
        if callable(learning_rate(self.parameters)):
            raise CheckpointError("the position in the learning rate's schedule is not published")
        trained = {name for name, variable in self.online.variables.items() if variable.trainable} | self.online.frozen
        if odd := sorted(trained - weights.keys()) or sorted(weights.keys() - self.online.variables.keys()):
            raise CheckpointError(f"{odd[0]} is in only one of them and the network")
        assignments = []
        for group, copy in self.by_name.items():
            known = {name: copy.variables[name] for name in weights}
            assignments += _matched(f"{self.name}/{group}", known, weights)
        for variable, array in assignments:
            variable.assign(array)
        self.statistics.adopt(dict.fromkeys(self.statistics.moments, float(rows)))

    def take(self, weights: Mapping[str, Array], rows: Callable[[str], float]) -> list[str]:
        """Set every copy to another network's weights where the names are the same; the optimizers stay as they are.

        Neither states of random generators nor the heads' adjustable numbers are weights.

        Args:
            rows: Input name -> rows of that input behind the given statistics, if the network normalises it.

        Returns:
            The names that were taken, in the network's order.

        Raises:
            CheckpointError: A weight of the same name has another shape, or is not finite. Nothing was changed.
        """
        names = [name for name in self.online.weight_names if name in weights]
        assignments = []
        for copy in self.by_name.values():
            known = {name: copy.variables[name] for name in names}
            assignments += _matched(self.name, known, {name: weights[name] for name in names})
        for variable, array in assignments:
            variable.assign(array)
        taken = {
            key
            for key, layer in self.online.normalizations
            if not set(self.online.names_of([layer.mean, layer.variance])) - set(names)
        }
        self.statistics.adopt({key: rows(key) for key in taken})
        return names

    def _groups(self, own: OwnOptimizers | None) -> dict[str, dict[str, Any]]:
        """Return every variable that training changes, by group and name."""
        groups = {name: copy.variables for name, copy in self.by_name.items()} | self.beside
        if own is not None:
            optimizers = own.groups()
        elif self.parameters.optimizer_type == "LBFGS":  # which has no state between batches
            optimizers, groups["optimizer"] = {}, {}
        else:
            optimizers = {"optimizer": self.optimizer}
        return groups | {group: state_variables(optimizer) for group, optimizer in optimizers.items()}

    def __str__(self) -> str:
        names = " | ".join(f"{name} network" for name in self.by_name)
        return f"Network: {self.name}, Copies: {len(self.by_name)} ({names})"


def _matched(group: str, variables: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[tuple[Any, Array]]:
    """Pair variables with their arrays; raise CheckpointError unless they fit exactly."""
    if odd := sorted(variables.keys() ^ arrays.keys()):
        where = "the checkpoint does not have it" if odd[0] in variables else "only the checkpoint has it"
        raise CheckpointError(
            f"{group}: {odd[0]}: {where}; was it written by another network structure, network.frozen or optimizer?"
        )
    try:
        return [(variable, checked_array(variable, arrays[name])) for name, variable in variables.items()]
    except ValueError as error:
        raise CheckpointError(f"{group}: {error}") from error
