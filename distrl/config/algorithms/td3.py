"""Parameters of TD3."""

from typing import ClassVar, Literal

from pydantic import Field

from distrl.config.algorithms.off_policy import OffPolicySection
from distrl.config.exploration import ExplorationParameters, GaussianNoiseParameters
from distrl.config.schedules import ConstantSchedule


class Td3Parameters(OffPolicySection):
    """TD3 (Fujimoto et al. 2018, arXiv:1802.09477): off-policy, continuous actions, a deterministic policy.

    The optimizer of the policy is the section `network`'s; the critics have another one like it. The policy takes one
    action of real numbers within bounds.
    """

    implementation: ClassVar[str] = "distrl.algorithms.td3:Td3"
    exploration: ClassVar[ExplorationParameters | None] = GaussianNoiseParameters(
        stddev=ConstantSchedule(value=0.05), random_steps=1_000
    )

    name: Literal["td3"] = "td3"
    policy_every_updates: int = Field(2, ge=1)
    """Updates of the critics for each update of the policy and the target copies."""
    target_noise: float = Field(0.2, ge=0.0)
    """Standard deviation of the noise on the target policy's actions, which are scaled to [-1, 1]."""
    target_noise_clip: float = Field(0.5, ge=0.0)
    """The noise is clipped to +- this."""
