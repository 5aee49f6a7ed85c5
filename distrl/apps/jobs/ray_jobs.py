"""The target `ray`: `distrl train` as a job of a Ray cluster, by the Jobs API of its job server.

The job is the parent of the run, on the cluster's head, and its roles are Ray actors. What an operator asks of the run
goes through a second, short job beside the first one. So nothing of the cluster but its job server has to be reached
from here.
"""

import json
import secrets
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distrl.apps.jobs.code_package import CodePackage, code_in
from distrl.apps.jobs.protection import bound_to_node, unprotected
from distrl.apps.jobs.ray_client import RayClient
from distrl.apps.jobs.ray_log import RayLog
from distrl.apps.jobs.record import CONFIG_FILE, Job, JobRecord, OpenRecord
from distrl.apps.jobs.run_requests import REFUSED
from distrl.apps.jobs.target import OVER, JobState, LogLine, Plan, Report, State
from distrl.config import RunConfig
from distrl.config.load import LoadedConfig
from distrl.errors import ConfigError, MemoryBackendError, one_line
from distrl.launch.ray_cluster import Node, shortage
from distrl.role_kinds import KINDS
from distrl.roles.plan import role_needs
from distrl.roles.trust import code_named

MOST_CODE_BYTES = 100 * 2**20
"""Largest request that Ray's job server takes (DASHBOARD_CLIENT_MAX_SIZE). The package is compressed, so it fits."""
STOP_WAIT_S = 90
"""Time from the signal to the kill when a job is stopped through Ray, whose default of 3 s loses the checkpoint."""
COMMAND_LIMIT_S = 60.0
LISTENING = "auto"
"""`memory.listen` of a run that names no Redis."""
_READABLE = f"{CONFIG_FILE} holds secrets of the configuration, and all users of the cluster can read it"
_JOB = "job"
_ERROR = "distrl: error: "
_STATES: Mapping[str, State] = {
    "PENDING": "waiting",
    "RUNNING": "running",
    "STOPPED": "gone",
    "SUCCEEDED": "ended",
    "FAILED": "failed",
}


class RayJobs:
    """Jobs on a Ray cluster. The address is that of its job server, such as http://head:8265."""

    name = "ray"
    starts_actors = False
    logs: tuple[str, ...] | None = None

    def plan(self, job: Job) -> Plan:
        """Return the plan: what the cluster has, the code that is sent, and the request."""
        loaded = _on_cluster(job)
        config = loaded.config
        client = RayClient.at(job.address)
        client.require_free(job.run_id)
        nodes = client.nodes()
        if not job.wait and (short := shortage(role_needs(config), nodes)):
            raise ConfigError(
                f"the Ray cluster at {client.address} is too small for all roles at once: {short}; lower --actors or "
                "learner.threads, or add --wait if an autoscaler adds nodes"
            )
        package = _package(config)
        placed = replace(job, loaded=loaded)
        shown = placed.config_text(secrets=False)
        request = {**_request(job), "working_dir": str(package.directory) if package else CONFIG_FILE}
        return Plan(
            role_needs(config),
            available=_has(nodes),
            code="" if package is None else str(package),
            unprotected=[
                *unprotected(config, knows_password=False),  # the nodes have it
                *bound_to_node(config),
                *client.unprotected,
                *([_READABLE] if placed.config_text(secrets=True) != shown else []),
            ],
            files={
                CONFIG_FILE: shown,
                "ray-job.json": f"{json.dumps(request, indent=2, sort_keys=True)}\n",
            },
        )

    def submit(self, job: Job, record: OpenRecord, report: Report) -> None:
        """Send the code and the configuration, and submit the job."""
        loaded = _on_cluster(job)
        client = RayClient.at(job.address)
        client.require_free(job.run_id)
        record.write(address=client.address, handles={_JOB: job.run_id})
        with tempfile.TemporaryDirectory() as folder:
            if (package := _package(loaded.config)) is not None:
                package.copy_to(Path(folder))
            text = replace(job, loaded=loaded).config_text(secrets=True)
            (Path(folder) / CONFIG_FILE).write_text(text, encoding="utf-8")
            client.submit(folder, **_request(job))
        report(f"job {job.run_id} at {client.address}")

    def withdraw(self, record: JobRecord) -> None:
        """Kill the job."""
        client = RayClient.at(record.address)
        if _state(client, record).state not in OVER:
            client.stop(record.handle(_JOB))

    def state(self, record: JobRecord) -> JobState:
        """Return the state by Ray's status of the job."""
        return _state(RayClient.at(record.address), record)

    def log(self, record: JobRecord, *, follow: bool) -> Iterator[LogLine] | None:
        """Return the lines that the job has printed, which have those of the roles."""
        client = RayClient.at(record.address)
        if client.job(record.handle(_JOB)) is None:
            return None
        return RayLog(client, record.handle(_JOB), record.submitted).lines(follow=follow)

    def scale(self, record: JobRecord, actors: int, *, force: bool) -> None:
        """Request another number of actors of the run."""
        self._request(RayClient.at(record.address), record, "scale", actors, int(force))

    def autoscale(self, record: JobRecord, least: int | None, most: int | None, *, off: bool) -> None:
        """Request it of the run, whose actors are demands on the cluster's own autoscaler."""
        self._request(RayClient.at(record.address), record, "autoscale", least, most, int(off))

    def stop(self, record: JobRecord, *, now: bool) -> None:
        """Request the end of the run; before it has begun, and with `now`, of the job."""
        client = RayClient.at(record.address)
        if now or _state(client, record).state == "waiting":
            _require_running(client, record)
            client.stop(record.handle(_JOB))
        else:
            self._request(client, record, "stop")

    def _request(self, client: RayClient, record: JobRecord, request: str, *arguments: int | None) -> None:
        """Send a request to the run, from beside it.

        Raises:
            ConfigError: The job does not run, the run refuses, or there is no answer in time.
            MemoryBackendError: The run's Redis does not answer.
        """
        _require_running(client, record)
        job_id = f"{record.run_id}-{request}-{secrets.token_hex(3)}"
        words = ["-" if word is None else str(word) for word in arguments]
        command = ["python", "-m", "distrl.apps.jobs.run_requests", record.run_dir, request, *words]
        client.submit(None, entrypoint=shlex.join(command), submission_id=job_id)
        deadline = time.monotonic() + COMMAND_LIMIT_S
        while (details := client.job(job_id)) is not None and not details.status.is_terminal():
            if time.monotonic() > deadline:
                client.stop(job_id)
                raise ConfigError(f"{record.run_id}: {request} was not answered within {COMMAND_LIMIT_S:g} s")
            time.sleep(0.2)
        output = client.output(job_id)
        client.delete(job_id)
        if details is None or details.status != "SUCCEEDED":
            refused = [line.partition(REFUSED)[2] for line in output.splitlines() if REFUSED in line]
            why = refused[-1] if refused else one_line(output)[-300:]
            redis = details is not None and details.driver_exit_code == MemoryBackendError.exit_code
            raise (MemoryBackendError if redis else ConfigError)(f"{record.run_id}: {why}")


def _state(client: RayClient, record: JobRecord) -> JobState:
    details = client.job(record.handle(_JOB))
    if details is None:
        return JobState("gone", f"the Ray cluster at {record.address} does not know it any more")
    state, told = _STATES[details.status], (details.message or "")
    if state == "waiting":
        return JobState(state, one_line(told)[:300])
    if state == "gone":
        return JobState(state, "it was stopped through Ray")
    if state == "failed":
        errors = [line.partition(_ERROR)[2] for line in told.splitlines() if _ERROR in line]
        reason = errors[-1] if errors else one_line(told)[:300]
        return JobState.of_code(details.driver_exit_code, reason)
    return JobState(state, exit_code=details.driver_exit_code)


def _require_running(client: RayClient, record: JobRecord) -> None:
    state = _state(client, record)
    if state.state in OVER:
        raise ConfigError(f"{record.run_id} does not run{f': {state.reason}' if state.reason else ''}")


def _request(job: Job) -> dict[str, Any]:
    """Return the request without the code: no secret is in it, as Ray's dashboard shows it."""
    command = ["python", "-m", "distrl", "train", CONFIG_FILE, "--run-dir", str(job.run_dir), "--run-id", job.run_id]
    return {
        "entrypoint": shlex.join([*command, "--dated"]),
        "submission_id": job.run_id,
        "env_vars": {
            "PYTHONUNBUFFERED": "1",
            "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S + job.config.end_s),
        },
    }


def _on_cluster(job: Job) -> LoadedConfig:
    """Return the configuration with which the job trains on the cluster that it is in.

    Raises:
        ConfigError: It cannot train there.
    """
    launch = {"launcher": "ray", "ray_address": "auto", "wait_for_nodes": job.wait, "print_logs": True}
    sections: dict[str, dict[str, Any]] = {"launch": launch}
    if not job.config.memory.reachable:
        sections["memory"] = {"listen": LISTENING}
    return job.loaded.with_values(sections, "--on ray")


def _package(config: RunConfig) -> CodePackage | None:
    """Return the code of the working directory, if the configuration names classes that are not distrl's."""
    named = [name for role in KINDS for _, name in code_named(config, role)]
    if not any(":" in name and "://" not in name for name in named):
        return None
    package = code_in(Path.cwd())
    package.check_size(MOST_CODE_BYTES, "Ray's job server")
    return package


def _has(nodes: Sequence[Node]) -> str:
    gpus = sum(node.gpus for node in nodes)
    where = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    return f"{sum(node.cpus for node in nodes):g} CPU{f', {gpus:g} GPU' if gpus else ''} on {where}"
