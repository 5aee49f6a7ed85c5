"""The description of a run, which its roles and its launcher share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distrl.config import RunConfig
from distrl.data_store.start_plan import StartPlan
from distrl.errors import MemoryBackendError
from distrl.memory_backend.backend import Backend, connect, new_launch
from distrl.memory_backend.redis_address import public_url
from distrl.memory_backend.stream import QueueCaps
from distrl.role_kinds import KINDS
from distrl.roles.framework import role_variables
from distrl.roles.plan import Role
from distrl.roles.trust import Trust
from distrl.types import EnvSpec
from distrl.version import __version__

INFERENCE_VARIABLE = "DISTRL_INFERENCE"
"""Environment variable of an actor whose parent sees to an inference server on its host."""
EMBEDDED_GIVE_UP_S = 5.0  # a server of the run's own that has died does not come back


class RunDescription(BaseModel):
    """The content of the key `run`, written once by the supervisor.

    Attributes:
        run_id: Names the run's keys. A resumed training keeps it.
        launch: Token of this launch; roles of another launch of the same run cannot write into it.
        run_dir: The run's directory as the learner sees it.
        config: The effective configuration; roles read what `RunConfig` declares.
        applications: The other sections, for people who look at the run.
        start: How this launch starts.
        most_actors: Most actors that operators may ask for without force; 0: the run starts none.
        spec: The environment, as the probe found it, so that the learner needs no gymnasium.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    launch: str = Field(default_factory=new_launch)
    run_dir: str
    config: RunConfig
    applications: dict[str, Any] = Field(default_factory=lambda described: described["config"].applications)
    spec: EnvSpec
    start: StartPlan = StartPlan()
    most_actors: int | None = None

    @classmethod
    def read(cls, text: str, run_id: str, version: str) -> Self:
        """Return the description that `published` wrote.

        Args:
            version: That of the distrl that launched the run, for the error.

        Raises:
            MemoryBackendError: It is none that this version of distrl reads.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            odd = error.errors(include_url=False)[0]
            what = ": ".join(filter(None, (".".join(map(str, odd["loc"])), odd["msg"])))
            raise MemoryBackendError(
                f"run {run_id} of distrl {version} is not described as this distrl does ({what}), which is "
                f"{__version__}; use one version of distrl for all roles"
            ) from error

    def published(self) -> str:
        """The description as it stands in Redis: JSON, with `memory.url` without user, password and options."""
        memory = self.config.memory
        if memory.url is None:
            return self.model_dump_json()
        public = memory.model_copy(update={"url": public_url(memory.url)})
        config = self.config.model_copy(update={"memory": public})
        return self.model_copy(update={"config": config}).model_dump_json()


@dataclass(frozen=True)
class RunAddress:
    """The data that a role needs to join a run; it reads the description from Redis.

    Attributes:
        redis_url: Holds no password; that is in the environment of every process that connects.
    """

    redis_url: str
    run_id: str
    trust: Trust


@dataclass(frozen=True)
class LaunchedRun:
    """A run that exists: the one object from which launchers and roles take what they need."""

    address: RunAddress
    description: RunDescription

    @property
    def config(self) -> RunConfig:
        return self.description.config

    @property
    def log_dir(self) -> Path:
        """Folder of the roles' logs."""
        return Path(self.description.run_dir) / "logs"

    def threads(self, role: Role) -> int:
        """Numeric threads of a role; 0: it chooses them by its host."""
        return KINDS[role.kind].threads(self.config)

    def variables(self, role: Role) -> dict[str, str]:
        """Environment variables of the role's process."""
        environment = self.config.environment.variables if KINDS[role.kind].steps_environments else {}
        served = role.kind == "actor" and self.config.actors.inference == "host"
        return role_variables(max(self.threads(role), 1), environment) | ({INFERENCE_VARIABLE: "1"} if served else {})

    def open_backend(self, name: str, *, give_up_s: float | None = None) -> Backend:
        """Open one more connection for one more thread; it gives up after `memory.give_up_s` by default.

        An embedded server that its own host does not reach has died.
        """
        memory = self.config.memory
        if give_up_s is None:
            is_here = memory.url is None and self.address.redis_url.startswith("unix:")
            give_up_s = min(memory.give_up_s, EMBEDDED_GIVE_UP_S) if is_here else memory.give_up_s
        address, caps, launch = self.address, QueueCaps.of(self.config), self.description.launch
        return connect(address.redis_url, address.run_id, caps, launch=launch, name=name, give_up_s=give_up_s)
