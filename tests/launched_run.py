"""A run as launchers know it, without a process or a Redis."""

from pathlib import Path

from distrl.config import RunConfig
from distrl.roles.description import LaunchedRun, RunAddress, RunDescription
from distrl.roles.trust import Trust
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec


def run_in(folder: Path, redis_url: str, key: str, threads: int = 3) -> LaunchedRun:
    """Return a run without a GPU, whose logs are in folder/logs."""
    (folder / "logs").mkdir(exist_ok=True)
    config = RunConfig.model_validate({"learner": {"threads": threads, "device": "cpu"}})
    spec = EnvSpec("X", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
    description = RunDescription(run_id="r1", run_dir=str(folder), config=config, spec=spec)
    return LaunchedRun(RunAddress(redis_url, "r1", Trust(key)), description)
