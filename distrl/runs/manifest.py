"""manifest.json: the command, code, machine and package versions of a run's newest launch."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from distrl.config.small_files import read_model


class Manifest(BaseModel):
    """The newest launch of a run.

    Attributes:
        command: The words of the command line, secrets masked.
        directory: The working directory of that command.
        commit: git's commit there, with "+" where files differ from it; None: not under git.
        distrl: Version of distrl.
        distrl_commit: Commit of distrl itself, where it is a checkout.
        cpu: The kernel's name of the processor.
        cores: Cores that the process may use.
        memory_bytes: Memory of the machine; None: unknown.
        gpus: The driver's names of the GPUs.
        packages: Name -> version of the installed packages that distrl uses.
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
        """Read a manifest; None where there is no such file, as in runs of older versions."""
        return read_model(cls, path) if path.exists() else None
