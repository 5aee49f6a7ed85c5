"""Configuration: the run, and the sections of applications beside it; loading them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from distrl.apps.config.kubernetes import KubernetesConfig
from distrl.apps.config.slurm import SlurmConfig
from distrl.apps.config.trackers import TrackersConfig, section_of
from distrl.config import RunConfig
from distrl.config import load as core
from distrl.config.load import LoadedConfig


class Configuration(RunConfig):
    """The configuration of a run. YAML files and `--set` paths use exactly these names."""

    model_config = ConfigDict(title="RunConfig")  # its public name, `distrl.RunConfig`

    trackers: TrackersConfig = TrackersConfig()
    slurm: SlurmConfig = SlurmConfig()
    kubernetes: KubernetesConfig = KubernetesConfig()

    @classmethod
    def of(cls, config: RunConfig) -> "Configuration":
        """Return a configuration with the sections of applications: the defaults, if it was made without them."""
        return config if isinstance(config, Configuration) else cls(**dict(config))

    @property
    def end_s(self) -> int:
        """Longest time that the end of a training waits for a data store or trackers that do not answer."""
        return self.checkpoint.end_s + self.trackers.end_s


def load(
    preset: str | Mapping[str, Any] | None = None,
    file: str | Path | Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    track: Sequence[str] = (),
) -> LoadedConfig:
    """Put the layers together and check the result.

        distrl.load("cartpole-impala", sets=["actors.count=4"])
        distrl.load({"environment": {"id": "CartPole-v1"}, "actors": {"count": 4}})

    Args:
        preset: Name of a preset of distrl; or a mapping with any part of the tree.
        file: A YAML file with any part of the tree; or such a mapping.
        sets: "dotted.path=value", the value in YAML; it is read as data and never evaluated.
        flags: Flag of `distrl.config.load.FLAGS` -> value; None where it was not given.
        track: Trackers to turn on beside those of preset and file: "wandb", "mlflow", or "package.module:Class".

    Raises:
        ConfigError: One line with the problem, the value, its origin, and the allowed or nearest values.
    """
    opened = {section_of(name): "flag --track" for name in track}
    return core.load(preset, file, sets, flags, opened=opened, model=Configuration)


def load_text(text: str, origin: str) -> LoadedConfig:
    """Check a configuration in YAML, as `load` does a file; `origin` is that of its values, also in errors."""
    return core.load_text(text, origin, Configuration)
