"""Parameters of IMPALA, A3C and A2C."""

from typing import ClassVar, Literal

from pydantic import Field

from distrl.config.algorithms.policy_gradients import PolicyGradientSection, check_minibatches
from distrl.config.algorithms.section import AlgorithmContext, LearnsFrom, Ships


class ImpalaParameters(PolicyGradientSection):
    """IMPALA (Espeholt et al. 2018, arXiv:1802.01561): an actor-critic with V-trace off-policy correction.

    Use it for fast environments and many actors: most steps per second.
    """

    implementation: ClassVar[str] = "distrl.algorithms.impala:Impala"

    name: Literal["impala"] = "impala"
    rho_bar: float | None = Field(1.0, gt=0.0)
    """Truncation of the importance weight in the temporal difference; sets the fixed point (4.1). null: none."""
    c_bar: float | None = Field(1.0, gt=0.0)
    """Truncation of the trace coefficients; sets the speed of contraction."""
    rho_bar_policy_gradient: float | None = Field(1.0, gt=0.0)
    """V-trace: importance weights of the policy gradient are cut to this; null: not cut."""
    trace_lambda: float = Field(1.0, ge=0.0, le=1.0)
    """V-trace: factor of the trace coefficients c; below 1, returns bootstrap earlier."""
    minibatches: int = Field(1, ge=1)
    """Equal parts of a batch's sequences, one optimizer step each. Large unrolls of many environments then make as many
    optimizer steps as small ones."""

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        if self.minibatches > 1:
            factors = "learner.batch_size x actors.environments"
            check_minibatches(context, self.minibatches, context.sequences_per_batch, "sequences", factors)


class ActorCriticSection(PolicyGradientSection):
    """Parameters of A2C and A3C: workers compute gradients of their own unrolls and share a global network."""

    implementation: ClassVar[str] = "distrl.algorithms.a3c:ActorCritic"
    ships: ClassVar[Ships] = "gradients"
    batch_size: ClassVar[int] = 1
    learns_from: ClassVar[LearnsFrom] = "own policy"

    gae_lambda: float = Field(1.0, ge=0.0, le=1.0)
    """Lambda of generalised advantage estimation; 1: n-step returns."""


class A3cParameters(ActorCriticSection):
    """A3C (Mnih et al. 2016, arXiv:1602.01783): every gradient is applied as it comes.

    Use it for few environments per actor; actors need the framework.
    """

    name: Literal["a3c"] = "a3c"


class A2cParameters(ActorCriticSection):
    """A2C: A3C (Mnih et al. 2016, arXiv:1602.01783) in rounds, one gradient of every worker in each.

    Use it as `a3c`, without stale gradients.
    """

    rounds: ClassVar[bool] = True

    name: Literal["a2c"] = "a2c"
