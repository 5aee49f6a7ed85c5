"""A submitted job, and the record of it that every verb reads: job.json.

No daemon knows jobs. The record lies in the run's directory and, with `checkpoint.store`, in the run's folder in the
store, so that another machine can watch and stop the job.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from distrl.config.load import LoadedConfig, dump_given
from distrl.config.secrets import masked
from distrl.config.small_files import read_model
from distrl.data_store.atomic import put_file
from distrl.errors import ConfigError

JOB_FILE = "job.json"
CONFIG_FILE = "job.yaml"
"""The configuration that the job gets: the values that are not defaults."""
JOB_LOG = "job.log"
"""Name of the file in logs/ that has the output of the job's `distrl train --dated`."""


@dataclass(frozen=True)
class Job:
    """A run that is to be submitted.

    Attributes:
        loaded: Its whole configuration, as `distrl train` would take it.
        run_dir: Absolute; the submitting host keeps the record there. A target with a shared disk runs there, too.
        address: Where the target is, such as the URL of Ray's job server; None: the target's default.
        wait: Submit also what the target cannot start now, because it may grow.
        dry: Show the plan alone, also where a target that only checks it does not answer.
    """

    run_id: str
    loaded: LoadedConfig
    run_dir: Path
    address: str | None = None
    wait: bool = False
    dry: bool = False

    def config_text(self, *, secrets: bool) -> str:
        """Return the content of job.yaml; without `secrets` they are masked, for eyes alone."""
        return dump_given(self.loaded) if secrets else dump_given(self.loaded, masked)


class JobRecord(BaseModel):
    """job.json: what was submitted, and where.

    Attributes:
        target: Name of the target, a key of `targets.TARGETS`.
        address: As in `Job`, but resolved: another machine finds the target by it.
        run_dir: The run's directory on the hosts where the run writes it.
        store: `checkpoint.store`.
        actors: Number of actors at the start.
        submitted: Seconds since 1970.
        handles: Name of a part -> the target's name for it, such as "learner" -> "4711".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = Field(1, ge=1, le=1)
    run_id: str
    target: str
    address: str | None
    run_dir: str
    store: str | None
    actors: int = Field(ge=0)
    submitted: float = Field(ge=0.0, lt=1e11)
    handles: dict[str, str]

    def write(self, run_dir: Path) -> None:
        """Write job.json into a run's directory."""
        put_file(run_dir / JOB_FILE, self.model_dump_json(indent=2).encode() + b"\n")

    @classmethod
    def read(cls, run_dir: Path) -> "JobRecord":
        """Read job.json of a run's directory.

        Raises:
            ConfigError: There is none, or it is damaged.
        """
        path = run_dir / JOB_FILE
        if not path.exists():
            raise ConfigError(f"{run_dir} holds no job (no {JOB_FILE}); distrl jobs lists those under runs/")
        return read_model(cls, path)
