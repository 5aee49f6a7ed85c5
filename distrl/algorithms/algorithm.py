"""The seam between an algorithm and everything else: what it wants from the memory, its networks, and one update.

    memory    read once, before launch: how unrolls are made and how old they may be
    build     once, in the learner: the networks, and the compiled step
    update    per batch: hops 7 to 9 of a trajectory's life

An algorithm whose update is a gradient step on one loss needs only `heads` and `loss`: see `GradientAlgorithm`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from distrl.config import RunConfig
from distrl.networks.distributions import Tensor
from distrl.networks.network_wrapper import NetworkWrapper
from distrl.types import Batch, EnvSpec

Networks = dict[str, NetworkWrapper]
"""An algorithm's networks by name; actors run the policy of "main"."""


@dataclass(frozen=True, kw_only=True)
class MemorySpec:
    """What an algorithm wants from the memory backend.

    Attributes:
        kind: stream: every unroll is trained on once, in order of arrival.
        ships: What actors send.
        unroll_length_steps: T.
        batch_size: Unrolls in one update.
        max_staleness_updates: 0: synchronous. k: nothing older than k updates. None: bounded by the queue alone.
    """

    kind: Literal["stream"] = "stream"
    ships: Literal["unrolls"] = "unrolls"
    unroll_length_steps: int
    batch_size: int
    max_staleness_updates: int | None


@dataclass(frozen=True, slots=True)
class Update:
    """What one update tells.

    Attributes:
        metrics: name -> number; among them loss, gradient_norm and finite, False if the update was not applied.
    """

    metrics: Mapping[str, float | bool]


class Loss(NamedTuple):
    """A scalar to minimise, and scalars to look at."""

    total: Tensor
    metrics: dict[str, Tensor]


class Algorithm(ABC):
    """How networks learn from batches."""

    memory: MemorySpec

    @abstractmethod
    def build(self, spec: EnvSpec) -> Networks:
        """The algorithm's networks for this environment, with fresh weights."""

    @abstractmethod
    def update(self, networks: Networks, batch: Batch) -> Update:
        """One update of `networks`, which `build` returned, with all its epochs."""


class GradientAlgorithm(Algorithm):
    """One network, "main", and one gradient step per batch. A subclass gives `heads` and `loss`.

    Attributes:
        heads: The network's heads.
        config: The run's configuration.
    """

    heads: tuple[str, ...]

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.memory = MemorySpec(
            unroll_length_steps=config.actors.unroll_length_steps,
            batch_size=config.learner.batch_size,
            max_staleness_updates=config.algorithm.max_staleness_updates,
        )
        self._step: Callable[[Batch], Mapping[str, float | bool]] | None = None

    @abstractmethod
    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """The loss of one batch, in `keras.ops`; traced once and compiled.

        Args:
            outputs: What the heads make of all T+1 observations, by output name, each [T+1, N, ...].
            batch: The unrolls, [T, N].
        """

    def build(self, spec: EnvSpec) -> Networks:
        parameters = self.config.network
        network = NetworkWrapper(
            parameters,
            spec,
            self.heads,
            has_target=False,  # value targets come from the online copy's own unroll
            has_global=False,  # the learner is the only one who contributes gradients
            name="main",
            seed=self.config.seed,
        )
        self._step = network.train_step(self.loss)
        return {"main": network}

    def update(self, networks: Networks, batch: Batch) -> Update:
        """One compiled gradient step on the online copy: hops 7 to 9."""
        if self._step is None:
            raise RuntimeError("update was called before build")
        return Update(self._step(batch))
