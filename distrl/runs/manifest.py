"""manifest.json: what a run was started with and on, for whoever wants to know years later."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from distrl.config.small_files import read_small
from distrl.errors import ConfigError


class Manifest(BaseModel):
    """Of the newest launch of a run.

    Attributes:
        command: The words of the command line, secrets masked.
        directory: In which it was given.
        commit: git's commit there, with "+" where files differ from it; None: not under git.
        distrl: Its version.
        distrl_commit: Of distrl itself, where that is a checkout.
        cpu: As the kernel names it.
        cores: That the process may use.
        memory_bytes: Of the machine; None: unknown.
        gpus: As their driver names them.
        packages: Name -> version, of those that distrl uses and that are installed.
    """

    model_config = ConfigDict(frozen=True)

    run_id: str
    environment: str
    algorithm: str
    seed: int
    command: tuple[str, ...]
    directory: str
    commit: str | None
    distrl: str
    distrl_commit: str | None
    python: str
    system: str
    host: str
    cpu: str
    cores: int
    memory_bytes: int | None
    gpus: tuple[str, ...]
    packages: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> "Manifest | None":
        """The manifest in a file; None where there is no such file, as in runs of before there were any.

        Raises:
            ConfigError: The file cannot be read, or is not a manifest.
        """
        if not path.exists():
            return None
        try:
            return cls.model_validate_json(read_small(path))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in problem["loc"])
            raise ConfigError(f"{path} is damaged: {where or 'the file'}: {problem['msg']}") from error
