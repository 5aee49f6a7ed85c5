"""The plan: which roles a run has, as data. Launchers turn each into a process or a Ray actor."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from distrl.config import RunConfig


@dataclass(frozen=True, order=True)
class Role:
    """One role of a run; `name` is its log's name, its process title and what messages call it."""

    kind: Literal["learner", "actor"]
    id: int = 0

    @property
    def name(self) -> str:
        return "learner" if self.kind == "learner" else f"actor {self.id}"

    @property
    def log_name(self) -> str:
        return "learner.log" if self.kind == "learner" else f"actor-{self.id}.log"


@dataclass(frozen=True)
class RoleHome:
    """What every launcher gives its roles.

    Attributes:
        redis_url: Where the run's memory backend is; may hold a password.
        log_dir: Takes one log per role.
        learner_threads: Numeric threads of the learner; actors have one each.
        learner_gpu: The learner may use a GPU; actors never do.
    """

    redis_url: str
    run_id: str
    log_dir: Path
    learner_threads: int
    learner_gpu: bool

    def threads(self, role: Role) -> int:
        return self.learner_threads if role.kind == "learner" else 1

    def variables(self, role: Role) -> dict[str, str]:
        """Environment variables that keep numeric libraries to their threads and actors off the GPU."""
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        variables = dict.fromkeys(names, str(self.threads(role)))
        variables["TF_CPP_MIN_LOG_LEVEL"] = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")
        if role.kind == "actor":
            variables["CUDA_VISIBLE_DEVICES"] = ""
        return variables


def make_plan(config: RunConfig) -> list[Role]:
    """The learner and `actors.count` actors."""
    return [Role("learner"), *(Role("actor", actor) for actor in range(config.actors.count))]


def oversubscription_warning(config: RunConfig) -> str | None:
    """One line when more numeric threads are asked for than this machine has cores; None when they fit.

    The two-core default of one learner and two actors is not worth a warning: actors wait while the learner computes.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = config.learner.threads + config.actors.count
    if threads <= cores + 1:
        return None
    return (
        f"{threads} numeric roles on {cores} cores (learner.threads {config.learner.threads} + actors.count "
        f"{config.actors.count}): they will take turns; fewer actors are likely to be faster"
    )
