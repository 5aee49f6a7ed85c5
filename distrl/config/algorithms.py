"""Each algorithm's own parameters, by the name that selects it."""

from typing import Literal

from pydantic import Field

from distrl.config.section import Section


class ImpalaParameters(Section):
    """IMPALA (Espeholt et al. 2018): an actor-critic with V-trace off-policy correction."""

    name: Literal["impala"] = "impala"
    discount: float = Field(0.99, ge=0.0, le=1.0)
    max_staleness_updates: int | None = Field(None, ge=0)
    """0: synchronous. k: an unroll older than k updates is never trained on. null: bounded by the queue alone."""
    rho_bar: float | None = Field(1.0, gt=0.0)
    """Truncation of the importance weight in the temporal difference; sets the fixed point (4.1). null: none."""
    c_bar: float | None = Field(1.0, gt=0.0)
    """Truncation of the trace coefficients; sets the speed of contraction."""
    rho_bar_policy_gradient: float | None = Field(1.0, gt=0.0)
    trace_lambda: float = Field(1.0, ge=0.0, le=1.0)
    value_loss_weight: float = Field(0.5, ge=0.0)
    entropy_weight: float = Field(0.01, ge=0.0)
    reward_scale: float = Field(1.0, gt=0.0)
    """Rewards travel raw; the learner multiplies them by this."""


ALGORITHMS: dict[str, type[ImpalaParameters]] = {"impala": ImpalaParameters}
