"""Parameters of SAC."""

from typing import ClassVar, Literal

from pydantic import Field

from distrl.config.algorithms.off_policy import OffPolicySection
from distrl.config.exploration import ExplorationParameters, PolicySamplingParameters


class SacParameters(OffPolicySection):
    """SAC (Haarnoja et al. 2018, arXiv:1812.05905): off-policy, continuous actions, entropy held at a target.

    The optimizer of the policy is the section `network`'s; the critics have another one like it, the temperature Adam.
    """

    implementation: ClassVar[str] = "distrl.algorithms.sac:Sac"
    exploration: ClassVar[ExplorationParameters | None] = PolicySamplingParameters(random_steps=1_000)

    name: Literal["sac"] = "sac"
    temperature_learning_rate: float | None = Field(None, gt=0.0)
    """null: as network.learning_rate."""
    initial_temperature: float = Field(1.0, gt=0.0)
    """Factor of the entropy beside the return, before it is tuned."""
    target_entropy: float | None = None
    """In nats, of actions scaled to [-1, 1], all of them together. null: -1 for each number in them."""
