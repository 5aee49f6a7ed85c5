"""From a job to its batch scripts, which Slurm tries before anything is submitted."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from distrl.apps.jobs.protection import unprotected
from distrl.apps.jobs.record import Job
from distrl.apps.jobs.slurm_commands import handed_secrets, start_of
from distrl.apps.jobs.slurm_scripts import ACTORS_SCRIPT, LEARNER_SCRIPT, Scripts
from distrl.apps.jobs.target import Plan
from distrl.config import RunConfig
from distrl.config.secrets import PASSWORD_FILE_VARIABLE, split_password_file
from distrl.errors import ConfigError
from distrl.launch.start import require_weights
from distrl.memory_backend.credentials import SENTINEL_FILE_VARIABLE, password, sentinel_password
from distrl.memory_backend.redis_address import parse_address
from distrl.roles.framework import require_framework
from distrl.roles.plan import cores_beside_actors, role_needs

_PLAIN_PATH = re.compile(r"[\w./+@=,:~-]+")
"""In other paths of its output, sbatch would put something else for % and \\, or see several words."""
_FILE_VARIABLES = (PASSWORD_FILE_VARIABLE, SENTINEL_FILE_VARIABLE)


def plan_of(job: Job) -> Plan:
    """Return the plan: when Slurm would start the parts of the job, and the scripts.

    Raises:
        ConfigError: Slurm is not here or would never start a part, or the job cannot run there.
    """
    scripts = made_scripts(job)
    config = job.config
    require_weights(config)
    return Plan(
        role_needs(config),
        available="" if job.wait else "; ".join(_starts(scripts, config.started_actors)),
        code=f"{Path.cwd()}, in place",
        unprotected=[*unprotected(_on_cluster(config, job)), *_handed()],
        files={
            LEARNER_SCRIPT: scripts.learner,
            **({} if not config.actors.count else {ACTORS_SCRIPT: scripts.actors}),
        },
    )


def _starts(scripts: Scripts, actors: int) -> Iterator[str]:
    """Yield when and where Slurm would start the learner and the first actor, in its words.

    sbatch itself would take a learner that fits no node, as it is submitted on hold.

    Raises:
        ConfigError: Slurm would never start one of them.
    """
    parts = [("learner", scripts.learner, ()), ("actor", scripts.actors, (f"--array=0-{actors - 1}",))]
    for role, script, options in parts if actors else parts[:1]:
        yield f"{role} {start_of(role, script, *options)}"


def _handed() -> Iterator[str]:
    """Yield a line with the variables of this shell that are secrets, if Slurm gets any."""
    if names := handed_secrets():
        yield f"Slurm keeps these variables of this shell with the job, for its administrators: {', '.join(names)}"


def made_scripts(job: Job) -> Scripts:
    """Return the scripts of a job.

    Raises:
        ConfigError: The job cannot run on Slurm.
    """
    if job.address is not None:
        raise ConfigError(
            f"--address {job.address} has no use with --on slurm: submit from a login node of the cluster"
        )
    config = job.config
    _on_cluster(config, job)
    if not _PLAIN_PATH.fullmatch(str(job.run_dir)):
        raise ConfigError(
            f"the path {job.run_dir} would confuse sbatch; choose a --run-dir of letters, digits and ./_+@=,:~- alone"
        )
    if config.slurm.python is None:
        require_framework(config.learner.backend)
    scripts = Scripts(
        run_id=job.run_id,
        run_dir=job.run_dir,
        folder=Path.cwd(),
        slurm=config.slurm,
        learner_cpus=cores_beside_actors(config),
        gpus=max(need.gpus for need in role_needs(config)),
        alone=config.deterministic,
        listen=not config.memory.reachable,
        end_s=config.end_s,
        variables={name: os.path.abspath(os.environ[name]) for name in _FILE_VARIABLES if os.environ.get(name)},
    )
    _check_set_up(scripts)
    return scripts


def _on_cluster(config: RunConfig, job: Job) -> RunConfig:
    """Return the configuration with which the job trains there.

    Raises:
        ConfigError: It cannot.
    """
    if config.launch.launcher != "process":
        raise ConfigError(f"launch.launcher: {config.launch.launcher} has no use with --on slurm; leave it out")
    if config.deterministic:
        return config
    url = config.memory.url
    if url is None:
        listen = {} if config.memory.reachable else {"memory": {"listen": "auto"}}
        return job.loaded.with_values({"launch": {"start_actors": False}, **listen}, "--on slurm").config
    if parse_address(url).is_here:
        raise ConfigError(
            f"memory.url {parse_address(url).public}: each node would look for Redis on itself; name an address that "
            "all nodes reach, or leave it out: the run's own Redis listens for them"
        )
    in_file = split_password_file(url)[1] is not None or os.environ.get(PASSWORD_FILE_VARIABLE)
    if (not in_file and password(url) is not None) or (
        sentinel_password() is not None and not os.environ.get(SENTINEL_FILE_VARIABLE)
    ):
        raise ConfigError(
            "Slurm keeps the environment of jobs, so that no password is sent by it; set DISTRL_REDIS_PASSWORD_FILE, "
            "and for Sentinels DISTRL_SENTINEL_PASSWORD_FILE, to files on a disk that the nodes share"
        )
    return job.loaded.with_values({"launch": {"start_actors": False}}, "--on slurm").config


def _check_set_up(scripts: Scripts) -> None:
    """Raise ConfigError if the lines of `slurm.set_up` are no bash, or leave something open."""
    if (bash := shutil.which("bash")) is None or not scripts.slurm.set_up:
        return
    done = subprocess.run([bash, "-n"], input=scripts.set_up, capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise ConfigError(f"slurm.set_up is not right for bash: {' '.join(done.stderr.split())[:300]}")
