"""The targets by their names; each is imported when it is first used, as its libraries may not be installed."""

from collections.abc import Callable, Mapping

from distrl.apps.jobs.target import Target
from distrl.errors import ConfigError, printable


def _here() -> Target:
    from distrl.apps.jobs.here import Here

    return Here()


def _ray() -> Target:
    from distrl.apps.jobs.ray_jobs import RayJobs

    return RayJobs()


def _slurm() -> Target:
    from distrl.apps.jobs.slurm_jobs import SlurmJobs

    return SlurmJobs()


def _kubernetes() -> Target:
    from distrl.apps.jobs.kubernetes_jobs import KubernetesJobs

    return KubernetesJobs()


TARGETS: Mapping[str, Callable[[], Target]] = {"here": _here, "ray": _ray, "slurm": _slurm, "kubernetes": _kubernetes}


def open_target(name: str) -> Target:
    """Return the target of that name.

    Raises:
        ConfigError: There is none, or what it needs is not installed.
    """
    if name not in TARGETS:
        raise ConfigError(f"unknown target {printable(name)}: the targets are {', '.join(TARGETS)}")
    return TARGETS[name]()
