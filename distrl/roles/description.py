"""What every role of a run reads from the memory backend before it starts: the run, as data."""

from pydantic import BaseModel, ConfigDict

from distrl.config import RunConfig
from distrl.memory_backend.redis_client import public_url
from distrl.types import EnvSpec


class RunDescription(BaseModel):
    """Written once by the supervisor under the key `run`.

    Attributes:
        run_id: Names the run's keys. A resumed training is a new run with the old run's directory.
        run_dir: The run's directory as the learner sees it.
        config: The effective configuration.
        resumed_update: Update of the checkpoint that this launch goes on from; 0 for a new training. Part of the
            actors' seeds, so that a resumed training does not live through its first launch's randomness again.
        most_actors: Most actors that operators may ask for without force.
        spec: The environment, as the probe found it, so that the learner needs no gymnasium.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    run_dir: str
    config: RunConfig
    spec: EnvSpec
    resumed_update: int = 0
    most_actors: int | None = None

    def published(self) -> str:
        """The description as it stands in Redis: JSON, with `memory.url` without user, password and options."""
        memory = self.config.memory
        if memory.url is None:
            return self.model_dump_json()
        public = memory.model_copy(update={"url": public_url(memory.url)})
        config = self.config.model_copy(update={"memory": public})
        return self.model_copy(update={"config": config}).model_dump_json()
