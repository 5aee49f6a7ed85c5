"""Parameters of TRPO."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from distrl.config.algorithms.policy_gradients import (
    UnrollPolicySection,
    check_minibatches,
    check_normalized,
    items_of_epochs,
)
from distrl.config.algorithms.section import AlgorithmContext


class TrpoParameters(UnrollPolicySection):
    """TRPO (Schulman et al. 2015, arXiv:1502.05477): natural gradient steps of the policy, of bounded divergence.

    The optimizer of section `network` moves the value function alone, so that needs a network of its own:
    `network.use_separate_networks_per_head: true`.

    Use it for steps of the policy that need no learning rate.
    """

    implementation: ClassVar[str] = "distrl.algorithms.trpo:Trpo"
    batch_size: ClassVar[int] = 2
    live: ClassVar[Mapping[str, str]] = {
        **UnrollPolicySection.live,
        "max_kl": "largest mean KL(old || new) of an update, in nats",
    }

    name: Literal["trpo"] = "trpo"
    max_staleness_updates: int | None = Field(0, ge=0)
    gae_lambda: float = Field(0.95, ge=0.0, le=1.0)
    """Lambda of generalised advantage estimation."""
    normalize_advantages: Literal["batch"] | None = "batch"
    """Normalise advantages to mean 0 and deviation 1 over a batch; null: do not."""
    entropy_weight: float = Field(0.0, ge=0.0)
    max_kl: float = Field(0.01, gt=0.0)
    """Largest mean KL(old || new) of an update, in nats: the trust region. A step beyond it is refused."""
    damping: float = Field(0.1, ge=0.0)
    """Added to the diagonal of the Fisher matrix."""
    conjugate_gradient_iterations: int = Field(10, ge=1)
    """Most iterations to find the natural gradient; each takes one product with the Fisher matrix."""
    line_search_steps: int = Field(10, ge=1)
    """Most points that the line search tries; if none is good, the policy stays as it is."""
    line_search_factor: float = Field(0.8, gt=0.0, lt=1.0)
    """Each of them is at this fraction of the one before, from the whole step on."""
    accept_ratio: float = Field(0.1, ge=0.0, lt=1.0)
    """Least gain of the objective, as a share of what its gradient promises; 0: any gain will do."""
    value_epochs: int = Field(10, ge=1)
    """Passes of the value function through a batch."""
    value_minibatches: int = Field(16, ge=1)
    """Equal parts of such a pass, one optimizer step each: of all rows of the batch, or of its sequences where the
    network has memory."""

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        if not context.network.use_separate_networks_per_head:
            raise ValueError(
                "network.use_separate_networks_per_head: false lets the value function's optimizer move the policy, "
                "beyond the trust region of algorithm trpo; set it to true"
            )
        check_minibatches(context, self.value_minibatches, *items_of_epochs(context), setting="value_minibatches")
        if self.normalize_advantages is not None:
            check_normalized(context, self.normalize_advantages, 1)
