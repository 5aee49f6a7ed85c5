"""Each algorithm's own parameters, by the name that selects it."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from distrl.config.section import Section


class RewardNormalizationParameters(Section):
    """Rewards in a scale of their own, by statistics of all valid steps that the learner has trained on.

    Each update uses those of the updates before it; before any, rewards are only cut.
    """

    kind: Literal["discounted_return", "reward"] = "discounted_return"
    """discounted_return: divided by the deviation of R_t = discount * R_t-1 + r_t (Engstrom et al. 2020, section 3).
    reward: less their mean, divided by their own deviation, as Coach does; that changes which policy is best where
    episodes end early or late."""
    clip: float | None = Field(5.0, gt=0.0)
    """Then cut to +- this; null: not cut."""


class AlgorithmSection(Section):
    """What every algorithm has.

    Attributes:
        ships: What its actors send: unrolls, or gradients that they take themselves.
        batch_size: `learner.batch_size` where the configuration has none.
    """

    ships: ClassVar[Literal["unrolls", "gradients"]] = "unrolls"
    batch_size: ClassVar[int] = 4

    discount: float = Field(0.99, ge=0.0, le=1.0)
    max_staleness_updates: int | None = Field(None, ge=0)
    """0: synchronous. k: an unroll older than k updates is never trained on. null: bounded by the queue alone."""
    reward_scale: float = Field(1.0, gt=0.0)
    """Rewards travel raw; they are multiplied by this where the loss is taken, after they are normalised."""
    reward_normalization: RewardNormalizationParameters | None = None
    """{} for the usual one; null: none."""

    @property
    def reward_moments_discount(self) -> float | None:
        """Discount of the returns whose moments actors tell; 0 for those of rewards, None where nobody asks."""
        if self.reward_normalization is None:
            return None
        return self.discount if self.reward_normalization.kind == "discounted_return" else 0.0


class ImpalaParameters(AlgorithmSection):
    """IMPALA (Espeholt et al. 2018): an actor-critic with V-trace off-policy correction."""

    name: Literal["impala"] = "impala"
    rho_bar: float | None = Field(1.0, gt=0.0)
    """Truncation of the importance weight in the temporal difference; sets the fixed point (4.1). null: none."""
    c_bar: float | None = Field(1.0, gt=0.0)
    """Truncation of the trace coefficients; sets the speed of contraction."""
    rho_bar_policy_gradient: float | None = Field(1.0, gt=0.0)
    trace_lambda: float = Field(1.0, ge=0.0, le=1.0)
    value_loss_weight: float = Field(0.5, ge=0.0)
    entropy_weight: float = Field(0.01, ge=0.0)


class ActorCriticSection(AlgorithmSection):
    """What A2C and A3C share: workers take gradients of their own unrolls and share a global network."""

    ships: ClassVar[Literal["unrolls", "gradients"]] = "gradients"
    batch_size: ClassVar[int] = 1

    gae_lambda: float = Field(1.0, ge=0.0, le=1.0)
    """Of generalised advantage estimation; 1: n-step returns."""
    value_loss_weight: float = Field(0.5, ge=0.0)
    entropy_weight: float = Field(0.01, ge=0.0)


class A3cParameters(ActorCriticSection):
    """A3C (Mnih et al. 2016): every gradient is applied as it comes."""

    name: Literal["a3c"] = "a3c"


class A2cParameters(ActorCriticSection):
    """A2C: A3C in rounds, one gradient of every worker in each."""

    name: Literal["a2c"] = "a2c"


def _name(value: Any) -> Any:
    return value.get("name", "impala") if isinstance(value, dict) else getattr(value, "name", None)


AlgorithmParameters = Annotated[
    Annotated[ImpalaParameters, Tag("impala")]
    | Annotated[A3cParameters, Tag("a3c")]
    | Annotated[A2cParameters, Tag("a2c")],
    Discriminator(_name),
]
"""impala unless `name` says otherwise."""

ALGORITHMS: dict[str, type[AlgorithmSection]] = {"impala": ImpalaParameters, "a3c": A3cParameters, "a2c": A2cParameters}
