"""The section of a user's algorithm, whose class only the learner imports."""

from typing import Literal

from pydantic import ConfigDict, Field

from distrl.config.algorithms.section import AlgorithmSection
from distrl.config.exploration import ExplorationParameters
from distrl.config.replay import ReplayParameters
from distrl.config.section import Section


class Declared(Section):
    """Declarations that all roles must know: the class attributes of the algorithm's `Parameters`."""

    ships: Literal["unrolls", "gradients"] = "unrolls"
    rounds: bool = False
    batch_size: int = Field(4, ge=1)
    exploration: ExplorationParameters | None = None
    replay: ReplayParameters | None = None
    learns_from: Literal["own policy", "known probabilities", "anybody"] = "known probabilities"
    tells_priorities: bool = False


class ExternalAlgorithmParameters(AlgorithmSection):
    """Fields of every algorithm, and further keys that the class' own `Parameters` allow.

    Actors and the command line hold this section without importing the class. Before the launch, a separate process
    imports it (`launch/external_algorithm.py`), checks the further keys, fills in their defaults and the declarations.
    """

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=r"^[\w.]+:\w+$")
    """package.module:Class."""
    declared: Declared | None = None
    """Declarations of the class. Filled in before the launch; other values are refused."""

    # Other sections have class attributes; this one has the class' declarations.
    @property
    def ships(self) -> Literal["unrolls", "gradients"]:  # type: ignore[override]
        return self._said.ships

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        return self._said.rounds

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        return self._said.batch_size

    @property
    def exploration(self) -> ExplorationParameters | None:  # type: ignore[override]
        return self._said.exploration

    @property
    def learns_from(self) -> Literal["own policy", "known probabilities", "anybody"]:  # type: ignore[override]
        return self._said.learns_from

    @property
    def tells_priorities(self) -> bool:
        return self._said.tells_priorities

    @property
    def replay_parameters(self) -> ReplayParameters | None:
        return self._said.replay

    @property
    def _said(self) -> Declared:
        return self.declared or Declared()
