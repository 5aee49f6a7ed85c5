"""All actions of an environment at once, independent of each other given the observation.

`ActionSelector` takes them in NumPy, in actors; `JointDistribution` computes with them in `keras.ops`, in the learner.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np

from distrl.networks.actions import FamilySpec
from distrl.networks.actions.family import Seed, Tensor, policy_output, total
from distrl.types import Array, FloatArray


class Draws(Protocol):
    """Draws one action; see `Sampler.sample`."""

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]: ...


class ActionSelector:
    """All actions of an environment, drawn independently of each other.

    Args:
        specs: Action -> how it is taken; actions are drawn in this order.
        head: The policy head whose outputs these are.
        explorers: Action -> how it is drawn, where exploration draws it and not its family's sampler.
    """

    def __init__(
        self,
        specs: Mapping[str, FamilySpec],
        head: str = "policy",
        explorers: Mapping[str, Draws] = MappingProxyType({}),
    ) -> None:
        self._samplers = [(action, spec.output_of(action, head), spec.sampler()) for action, spec in specs.items()]
        self._draws: list[tuple[str, str, Draws]] = [
            (action, output, explorers.get(action, sampler)) for action, output, sampler in self._samplers
        ]

    def sample(
        self, outputs: Mapping[str, FloatArray], rng: np.random.Generator
    ) -> tuple[dict[str, Array], FloatArray]:
        """Draw one action of each name for every row.

        Args:
            outputs: The policy's outputs by name; of them `spec.output_of(action, head)`, float32 [B, P], finite.
            rng: Advanced by what the draws take.

        Returns:
            actions: By name, as `ActionSpec.array` says, with a leading [B].
            log_probabilities: float32 [B], of all actions of a row together.
        """
        actions: dict[str, Array] = {}
        log_probabilities: FloatArray | None = None
        for action, output, how in self._draws:
            actions[action], one = how.sample(outputs[output], rng)
            log_probabilities = one if log_probabilities is None else log_probabilities + one
        assert log_probabilities is not None, "an environment has at least one action"
        return actions, log_probabilities

    def log_probability(self, outputs: Mapping[str, FloatArray], actions: Mapping[str, Array]) -> FloatArray:
        """Log-probability of all actions of a row together, float32 [B]; arguments as `sample` takes and returns them.

        Families without a distribution take their mode: it has 0, and all other actions -inf.
        """
        parts = [how.log_probability(outputs[output], actions[action]) for action, output, how in self._samplers]
        log_probabilities: FloatArray = np.add.reduce(parts)
        return log_probabilities

    def mode(self, outputs: Mapping[str, FloatArray]) -> dict[str, Array]:
        """The actions to take when not exploring, from outputs as in `sample`."""
        return {action: how.mode(outputs[output]) for action, output, how in self._samplers}


class JointDistribution:
    """All actions of an environment at once, independent of each other given the observation.

    Args:
        head: The policy head whose outputs these are.
    """

    def __init__(self, specs: Mapping[str, FamilySpec], head: str = "policy") -> None:
        self._sizes = {policy_output(action, head): spec.parameters_size for action, spec in specs.items()}
        self._parts = {action: (policy_output(action, head), spec.distribution()) for action, spec in specs.items()}

    def log_probability(self, outputs: Mapping[str, Tensor], actions: Mapping[str, Tensor]) -> Tensor:
        """Log-probability of all actions together, float32 [...].

        Args:
            outputs: The network's outputs by name; of them `policy_output(action, head)`, float32 [..., P].
            actions: By name, [...] or [..., n].

        Raises:
            ValueError: An output does not have the size that its distribution takes, or an action not its rank.
        """
        return total(
            part.log_probability(self._read(outputs, name), actions[action])
            for action, (name, part) in self._parts.items()
        )

    def entropy(self, outputs: Mapping[str, Tensor]) -> Tensor:
        """Sum of the actions' entropies, float32 [...]."""
        return total(part.entropy(self._read(outputs, name)) for name, part in self._parts.values())

    def kl(self, outputs_p: Mapping[str, Tensor], outputs_q: Mapping[str, Tensor]) -> Tensor:
        """KL(p || q) of all actions together, float32 [...]."""
        return total(
            part.kl(self._read(outputs_p, name), self._read(outputs_q, name)) for name, part in self._parts.values()
        )

    def mode(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The action to take when not exploring, by name."""
        return {action: part.mode(self._read(outputs, name)) for action, (name, part) in self._parts.items()}

    def sample(self, outputs: Mapping[str, Tensor], seed: Seed) -> dict[str, Tensor]:
        """Actions by name, drawn independently of each other."""
        return {
            action: part.sample(self._read(outputs, name), _own_seed(seed, position))
            for position, (action, (name, part)) in enumerate(self._parts.items())
        }

    def sample_with_log_probability(
        self, outputs: Mapping[str, Tensor], seed: Seed
    ) -> tuple[dict[str, Tensor], Tensor]:
        """As `sample`, and the log-probability of what was drawn, float32 [...]."""
        drawn = {
            action: part.sample_with_log_probability(self._read(outputs, name), _own_seed(seed, position))
            for position, (action, (name, part)) in enumerate(self._parts.items())
        }
        return {action: one for action, (one, _) in drawn.items()}, total(log_p for _, log_p in drawn.values())

    def _read(self, outputs: Mapping[str, Tensor], name: str) -> Tensor:
        parameters = outputs[name]
        if parameters.shape[-1] != self._sizes[name]:
            raise ValueError(f"output {name} must be [..., {self._sizes[name]}], not {tuple(parameters.shape)}")
        return parameters


def _own_seed(seed: Seed, position: int) -> Seed:
    """A generator as it is; of an int, one int per position, so that no two actions share their noise."""
    return int(np.random.SeedSequence((seed, position)).generate_state(1)[0]) if isinstance(seed, int) else seed
