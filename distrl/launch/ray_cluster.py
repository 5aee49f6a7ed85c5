"""A Ray cluster that exists, examined before a run starts on it: its address, its room, and the versions on its nodes.

Ray waits for minutes where it cannot connect, and for ever where it has no room. So a child process connects, and is
killed after a few seconds.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distrl.child import Child, Parent
from distrl.config import RunConfig
from distrl.errors import ConfigError, one_line
from distrl.memory_backend.redis_address import parse_address
from distrl.roles.plan import RoleNeed, role_needs
from distrl.version import __version__

IMPORT_LIMIT_S = 30.0
"""Longest time that this host takes to import Ray, which is no fault of the cluster's."""
LIMIT_S = 10.0
"""Longest time since then that the cluster takes to answer."""
VERSIONS_LIMIT_S = 8.0
"""Since the connection is made. A node on which no worker has started by then is not asked for its versions."""
_BAD_TOKEN = "InvalidAuthToken"
_TOGETHER = "; use the same versions on all nodes"


@dataclass(frozen=True)
class Node:
    """One node of a Ray cluster that is alive.

    Attributes:
        cpus, gpus: What Ray may use there in all.
        host: Its address.
        versions: Name -> version of distrl, Ray and Python there; empty where they are not known.
        problem: Why code of distrl cannot run there; "" where it can, or where that is not known.
    """

    cpus: float
    gpus: float
    host: str
    versions: dict[str, str]
    problem: str = ""


def check_cluster(config: RunConfig) -> None:
    """Check that a run can start on the cluster at `launch.ray_address`, which has `LIMIT_S` to answer.

    Raises:
        ConfigError: The cluster cannot be reached, is too small (unless `launch.wait_for_nodes`), has other versions
            of distrl, Ray or Python, or does not reach the run's Redis.
    """
    address = config.launch.ray_address
    assert address is not None
    here, nodes = _examine(address)
    check_versions(here, nodes)
    check_redis(config.memory.url, nodes)
    if not config.launch.wait_for_nodes and (short := shortage(role_needs(config), nodes)):
        raise ConfigError(
            f"Ray at {address} is too small for all roles at once: {short}; lower actors.count or learner.threads, or "
            "set launch.wait_for_nodes=true if an autoscaler adds nodes"
        )


def shortage(needs: Sequence[RoleNeed], nodes: Sequence[Node]) -> str | None:
    """Return what the cluster lacks, with numbers, if it could not run all roles even when idle; None if it could.

    Ray refuses nothing: what it can never place waits for ever, and what does not fit together waits as on a busy
    cluster.

    Args:
        needs: The largest role first. All others need one core for each role.
    """
    largest, total = needs[0], sum(need.count * need.cpus for need in needs)
    whole = [(math.floor(node.cpus), math.floor(node.gpus)) for node in nodes]
    fits_one = any(cpus >= largest.cpus and gpus >= largest.gpus for cpus, gpus in whole)
    if fits_one and sum(cpus for cpus, _ in whole) >= total:
        return None
    parts = ", ".join(_words(need) for need in needs)
    has = f"the cluster has {sum(cpus for cpus, _ in whole)}, its largest node {max((c for c, _ in whole), default=0)}"
    if largest.gpus:
        with_gpus = max((gpus for _, gpus in whole), default=0)
        has += f", and at most {with_gpus} GPU on a node"
    return f"it needs {total} CPU ({parts}), {has}"


def _words(need: RoleNeed) -> str:
    many = f"{need.count} {need.role}s of {need.cpus}" if need.count > 1 else f"{need.role} {need.cpus}"
    return f"{many} and {need.gpus} GPU" if need.gpus else many


def check_versions(here: dict[str, str], nodes: Sequence[Node]) -> None:
    """Raise ConfigError if a node cannot run distrl, or has another version of distrl, Ray or Python than `here`."""
    for node in nodes:
        if node.problem:
            raise ConfigError(
                f"the Ray node {node.host} cannot run distrl: {node.problem}; install distrl on all nodes"
            )
        for name, version in node.versions.items():
            if version != here[name]:
                raise ConfigError(
                    f"the Ray node {node.host} has {name} {version}, this host has {here[name]}{_TOGETHER}"
                )


def check_redis(url: str | None, nodes: Sequence[Node]) -> None:
    """Raise ConfigError if the URL names the server of each host itself, and there are several hosts."""
    if url is not None and parse_address(url).is_here and len({node.host for node in nodes}) > 1:
        raise ConfigError(
            f"memory.url {parse_address(url).public}: each node of the Ray cluster would look for Redis on its own "
            "host; name an address that all nodes reach"
        )


def _examine(address: str) -> tuple[dict[str, str], list[Node]]:
    """Return this host's versions and the nodes of the cluster, from a child process."""
    with Child(f"{__name__}:examine", address, timeout_s=IMPORT_LIMIT_S) as child:
        deadline = time.monotonic() + IMPORT_LIMIT_S
        while True:
            code = child.wait(0.05)
            for answer in child.messages():
                if "error" in answer:
                    raise ConfigError(answer["error"])
                if "nodes" in answer:
                    return answer["here"], [Node(**node) for node in answer["nodes"]]
                deadline = time.monotonic() + LIMIT_S  # it connects
            if code is not None:
                raise ConfigError(f"Ray at {address} cannot be examined: {one_line(child.output())[-300:]}")
            if _BAD_TOKEN in child.output():  # Ray would go on to try
                raise token_refused(f"Ray at {address}")
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"Ray at {address} does not answer within {LIMIT_S:g} s; check launch.ray_address, and that this "
                    "host is a node of the cluster (ray start --address) or the address one of a Ray client "
                    "(ray://host:10001)"
                )


def examine(address: str, parent: Parent) -> None:
    """Connect to the cluster, and answer with its nodes; runs in the child process.

    Raises:
        ConfigError: Ray refuses the connection: another version, a wrong token, no such address.
    """
    # Imported here: Ray is an extra, and takes a second.
    import logging

    import ray
    from ray.exceptions import RayError

    began = time.monotonic()
    parent.limit(LIMIT_S)
    parent.say(connects=address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"Ray at {address}: {shortened(error)}") from error
    alive = [node for node in ray.nodes() if node["Alive"]]
    asked = {_ask_versions(node["NodeID"]): node for node in alive}
    left_s = max(VERSIONS_LIMIT_S - (time.monotonic() - began), 0.0)
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=left_s)
    nodes = []
    for answer, node in asked.items():
        found, problem = _versions_of(answer) if answer in answered else ({}, "")
        resources = node["Resources"]
        cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
        nodes.append(Node(cpus, gpus, node["NodeManagerAddress"], found, problem))
    parent.say(here=versions(), nodes=[asdict(node) for node in nodes])


def token_refused(server: str) -> ConfigError:
    """Return the error of a server that wants another token."""
    return ConfigError(
        f"{server} refuses this host's token, or its lack of one: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to "
        "the file with the cluster's token"
    )


def shortened(error: Exception) -> str:
    """Return an error of Ray's in one line of 500 characters at most."""
    return one_line(error)[:500]


def versions() -> dict[str, str]:
    """Return the versions that all nodes of a cluster must have in common."""
    import platform

    import ray

    return {"distrl": __version__, "Ray": ray.__version__, "Python": platform.python_version()}


def _ask_versions(node_id: str) -> Any:
    """Start `versions` on a node, without a claim on its resources."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return ray.remote(versions).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()


def _versions_of(answer: Any) -> tuple[dict[str, str], str]:
    """Return the versions of a node, or why it has none."""
    import ray
    from ray.exceptions import RayError

    try:
        return ray.get(answer), ""
    except RayError as error:
        missing = [line for line in str(error).splitlines() if "ModuleNotFoundError" in line]
        return {}, one_line(missing[-1]) if missing else shortened(error)
