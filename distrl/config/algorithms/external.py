"""The section of an algorithm of the user's own, whose class nobody but the learner imports."""

from typing import Literal

from pydantic import ConfigDict, Field

from distrl.config.algorithms.section import AlgorithmSection
from distrl.config.exploration import ExplorationParameters
from distrl.config.replay import ReplayParameters
from distrl.config.section import Section


class Declared(Section):
    """What a class says of itself that all roles must know: the class attributes of its `Parameters`."""

    ships: Literal["unrolls", "gradients"] = "unrolls"
    rounds: bool = False
    batch_size: int = Field(4, ge=1)
    exploration: ExplorationParameters | None = None
    replay: ReplayParameters | None = None
    learns_from: Literal["own policy", "known probabilities", "anybody"] = "known probabilities"
    tells_priorities: bool = False


class ExternalAlgorithmParameters(AlgorithmSection):
    """What every algorithm has, and whatever else the class' own `Parameters` allow.

    Actors and the command line hold this section without importing the class. Before anything is launched, a process of
    its own does (`launch/external_algorithm.py`), checks the further keys, fills in what they are by default, and
    tells what the class declares.
    """

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=r"^[\w.]+:\w+$")
    """package.module:Class."""
    declared: Declared | None = None
    """What the class says of itself. Filled in before launch, and refused if it says otherwise by then."""

    # Where other sections have class attributes, this one has what was found out.
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
