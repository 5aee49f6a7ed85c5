"""Each algorithm's own parameters, by the name that selects it."""

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from distrl.config.algorithms.actor_critics import (
    A2cParameters,
    A3cParameters,
    ActorCriticSection,
    ImpalaParameters,
)
from distrl.config.algorithms.external import Declared, ExternalAlgorithmParameters
from distrl.config.algorithms.policy_gradients import PolicyGradientSection, VpgParameters
from distrl.config.algorithms.ppo import AppoParameters, KlPenaltyParameters, PpoParameters, ProximalSection
from distrl.config.algorithms.q_learning import ApexParameters, DqnParameters, QLearningSection
from distrl.config.algorithms.sac import SacParameters
from distrl.config.algorithms.section import AlgorithmSection, RewardNormalizationParameters

__all__ = [
    "ALGORITHMS",
    "A2cParameters",
    "A3cParameters",
    "ActorCriticSection",
    "AlgorithmParameters",
    "AlgorithmSection",
    "ApexParameters",
    "AppoParameters",
    "Declared",
    "DqnParameters",
    "ExternalAlgorithmParameters",
    "ImpalaParameters",
    "KlPenaltyParameters",
    "PolicyGradientSection",
    "PpoParameters",
    "ProximalSection",
    "QLearningSection",
    "RewardNormalizationParameters",
    "SacParameters",
    "VpgParameters",
]

_EXTERNAL = "external"


def _name(value: Any) -> Any:
    name = value.get("name", "impala") if isinstance(value, dict) else getattr(value, "name", None)
    return _EXTERNAL if isinstance(name, str) and ":" in name else name


AlgorithmParameters = Annotated[
    Annotated[ImpalaParameters, Tag("impala")]
    | Annotated[A3cParameters, Tag("a3c")]
    | Annotated[A2cParameters, Tag("a2c")]
    | Annotated[DqnParameters, Tag("dqn")]
    | Annotated[ApexParameters, Tag("apex")]
    | Annotated[PpoParameters, Tag("ppo")]
    | Annotated[AppoParameters, Tag("appo")]
    | Annotated[SacParameters, Tag("sac")]
    | Annotated[VpgParameters, Tag("vpg")]
    | Annotated[ExternalAlgorithmParameters, Tag(_EXTERNAL)],
    Discriminator(_name),
]
"""impala unless `name` says otherwise; with a colon in it, a class of the user's own."""

ALGORITHMS: dict[str, type[AlgorithmSection]] = {
    "impala": ImpalaParameters,
    "a3c": A3cParameters,
    "a2c": A2cParameters,
    "dqn": DqnParameters,
    "apex": ApexParameters,
    "ppo": PpoParameters,
    "appo": AppoParameters,
    "sac": SacParameters,
    "vpg": VpgParameters,
}
