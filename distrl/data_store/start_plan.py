"""The plan of a start, which a launcher makes (`launch/start.py`) and the run's description carries to its learners."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from distrl.data_store.stored_run import GoingBack

Kind = Literal["new", "warm", "branched", "resumed"]


class StartPlan(BaseModel):
    """How a launch starts.

    Attributes:
        kind: "resumed" goes on with a run. The others begin one: "new" with fresh networks, "warm" with the weights
            that `learner.init_from` names, "branched" with all the state of another run's checkpoint.
        update: Updates of the checkpoint that the launch goes on from; 0 without one. Part of the actors' seeds, so
            that a resumed training does not live through its first launch's randomness again.
        env_steps, wall_s: Environment steps and seconds of training behind that checkpoint.
        back: The return to that checkpoint, where the data store may have later ones.
        notes: Lines for the operator.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind = "new"
    update: int = 0
    env_steps: int = 0
    wall_s: float = 0.0
    back: GoingBack | None = None
    notes: tuple[str, ...] = ()
