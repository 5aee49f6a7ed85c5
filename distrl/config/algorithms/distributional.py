"""Parameters of algorithms that learn the distribution of returns of every choice: C51, QR-DQN and Rainbow."""

from typing import ClassVar, Literal

from pydantic import Field

from distrl.config.algorithms.q_learning import OneChoiceSection
from distrl.config.algorithms.section import AlgorithmContext
from distrl.config.exploration import ExplorationParameters, NoisyNetworkParameters
from distrl.config.layers import DenseKind
from distrl.config.replay import (
    ItemParameters,
    PrioritizedParameters,
    ReplayParameters,
    SamplerParameters,
    TransitionParameters,
)


class DistributionalSection(OneChoiceSection):
    """Parameters of all three, whose losses have no square."""

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        if context.network.replace_mse_with_huber_loss:
            raise ValueError(
                f"network.replace_mse_with_huber_loss: the loss of {self.name} has no square to replace; leave it out"
            )


class C51Section(DistributionalSection):
    """Parameters of C51 and Rainbow. The atoms are those of the head: categorical_q, or rainbow_q with `dueling`.

    Attributes:
        dense_layer: Kind of the head's layers where the configuration has no head.
    """

    implementation: ClassVar[str] = "distrl.algorithms.distributional:C51"
    dense_layer: ClassVar[DenseKind] = "dense"

    dueling: bool = False
    """The head is rainbow_q, whose logits are those of a state plus advantages (Wang et al. 2016)."""

    @property
    def masked_head(self) -> str | None:
        return "rainbow_q" if self.dueling else "categorical_q"


class C51Parameters(C51Section):
    """C51 (Bellemare, Dabney and Munos 2017, arXiv:1707.06887): probabilities of returns on fixed atoms.

    Use it as `dqn`, with probabilities of returns.
    """

    name: Literal["c51"] = "c51"


class RainbowReplayParameters(ReplayParameters):
    """The replay memory with Rainbow's defaults: three steps, prioritised."""

    item: ItemParameters = TransitionParameters(n_step=3)
    sampler: SamplerParameters = PrioritizedParameters(alpha=0.5)


class RainbowParameters(C51Section):
    """Rainbow (Hessel et al. 2018, arXiv:1710.02298): C51 with all of DQN's extensions.

    They are double Q-learning, dueling, three steps, priorities and noisy layers.

    Use it as `c51`, with all extensions of `dqn`.
    """

    exploration: ClassVar[ExplorationParameters | None] = NoisyNetworkParameters()
    dense_layer: ClassVar[DenseKind] = "noisy_dense"

    name: Literal["rainbow"] = "rainbow"
    double: bool = True
    dueling: bool = True
    target_update_every_updates: int = Field(2_000, ge=1)
    replay: RainbowReplayParameters = RainbowReplayParameters()
    """The replay memory."""


class QrDqnParameters(DistributionalSection):
    """QR-DQN (Dabney et al. 2018, arXiv:1710.10044): quantiles of returns. Their number is that of the head quantile_q.

    Use it as `dqn`, with quantiles of returns.
    """

    implementation: ClassVar[str] = "distrl.algorithms.distributional:QrDqn"

    name: Literal["qrdqn"] = "qrdqn"
    huber_kappa: float = Field(1.0, gt=0.0)
    """kappa: errors of quantiles up to this are squared, larger ones linear."""

    @property
    def masked_head(self) -> str | None:
        return "quantile_q"
