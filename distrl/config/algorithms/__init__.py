"""Each algorithm's own parameters, by the name that selects it.

The command line, the actors and `algorithms/` read `ALGORITHMS`. A section states facts that all roles must know, such
as what actors ship, and refuses networks and actions that its algorithm cannot train. It must not import Keras: the
class that learns is in `algorithms/`.
"""

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Tag

from distrl.config.algorithms.acer import AcerParameters
from distrl.config.algorithms.actor_critics import A2cParameters, A3cParameters, ImpalaParameters
from distrl.config.algorithms.distributional import C51Parameters, QrDqnParameters, RainbowParameters
from distrl.config.algorithms.external import Declared, ExternalAlgorithmParameters
from distrl.config.algorithms.off_policy import (
    CrossqParameters,
    DdpgParameters,
    DiscreteSacParameters,
    NafParameters,
    SacParameters,
    Td3Parameters,
    TqcParameters,
)
from distrl.config.algorithms.offline import (
    AwacParameters,
    BcParameters,
    CqlParameters,
    DiscreteBcqParameters,
    DiscreteCqlParameters,
    DqfdParameters,
    IqlParameters,
    MarwilParameters,
    Td3BcParameters,
)
from distrl.config.algorithms.policy_gradients import VpgParameters
from distrl.config.algorithms.ppo import AppoParameters, PpoParameters
from distrl.config.algorithms.q_learning import ApexParameters, BootstrappedDqnParameters, DqnParameters, R2d2Parameters
from distrl.config.algorithms.section import AlgorithmContext, AlgorithmSection, RewardNormalizationParameters
from distrl.config.algorithms.trpo import TrpoParameters

__all__ = [
    "ALGORITHMS",
    "AlgorithmContext",
    "AlgorithmParameters",
    "AlgorithmSection",
    "Declared",
    "ExternalAlgorithmParameters",
    "RewardNormalizationParameters",
]

_EXTERNAL = "external"


def _name(value: Any) -> Any:
    name = value.get("name", "impala") if isinstance(value, dict) else getattr(value, "name", None)
    return _EXTERNAL if isinstance(name, str) and ":" in name else name


ALGORITHMS: dict[str, type[AlgorithmSection]] = {
    section.model_fields["name"].default: section
    for section in (
        ImpalaParameters,
        A3cParameters,
        A2cParameters,
        AcerParameters,
        DqnParameters,
        ApexParameters,
        R2d2Parameters,
        BootstrappedDqnParameters,
        C51Parameters,
        QrDqnParameters,
        RainbowParameters,
        PpoParameters,
        AppoParameters,
        TrpoParameters,
        SacParameters,
        DiscreteSacParameters,
        TqcParameters,
        CrossqParameters,
        DdpgParameters,
        Td3Parameters,
        NafParameters,
        VpgParameters,
        BcParameters,
        MarwilParameters,
        AwacParameters,
        IqlParameters,
        Td3BcParameters,
        CqlParameters,
        DiscreteCqlParameters,
        DiscreteBcqParameters,
        DqfdParameters,
    )
}
"""Every built-in algorithm by the name that selects it. Configuration, `--help`, completion and messages read it."""

if TYPE_CHECKING:
    AlgorithmParameters = AlgorithmSection
else:
    _TAGGED = [Annotated[section, Tag(name)] for name, section in ALGORITHMS.items()]
    AlgorithmParameters = Annotated[
        Union[*_TAGGED, Annotated[ExternalAlgorithmParameters, Tag(_EXTERNAL)]], Discriminator(_name)
    ]
    """impala unless `name` says otherwise; with a colon in it, a class of the user's own."""
