"""The roles of a run, as data, and checks of what they need. Launchers turn each into a process or a Ray actor."""

import math
from dataclasses import dataclass

from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.learner.replay_set_up import fitting_replay, unroll_schema
from distrl.machine import cores
from distrl.memory_backend.records import RoleStatus
from distrl.role_kinds import TABLE, role_name
from distrl.types import EnvSpec


@dataclass(frozen=True, order=True)
class Role:
    """One role of a run; `name` is its log's name, its process title and what messages call it."""

    kind: str
    id: int = 0

    @classmethod
    def of(cls, status: RoleStatus) -> "Role":
        return cls(status.role, status.id)

    @property
    def key(self) -> str:
        """Name of the role in the registry, as `RoleStatus.key`."""
        return f"{self.kind}:{self.id}"

    @property
    def name(self) -> str:
        return role_name(self.kind, self.id)

    @property
    def log_name(self) -> str:
        return f"{self.name.replace(' ', '-')}.log"


LEARNER = Role("learner")


def roles_beside_actors(config: RunConfig) -> list[Role]:
    """Return the roles with which the supervisor begins; it adds actors, whose number changes."""
    return [Role(kind.name, id) for kind in TABLE if kind.name != "actor" for id in range(kind.number(config))]


@dataclass(frozen=True)
class RoleNeed:
    """Needs of the roles of one kind: each of `count` has `cpus` cores and `gpus` GPUs of one machine."""

    role: str
    count: int
    cpus: float
    gpus: int = 0


def role_needs(config: RunConfig) -> list[RoleNeed]:
    """Return the needs of the roles that the run starts, the learner's first; without those that need no core.

    With device "auto" a role takes a GPU where it finds one, and needs none.
    """
    on_gpu = config.device == "gpu"
    needs = (
        RoleNeed(kind.name, kind.number(config), kind.threads(config), on_gpu * kind.gpus(config)) for kind in TABLE
    )
    return [need for need in needs if need.count and need.cpus]


def cores_beside_actors(config: RunConfig) -> int:
    """Return the cores of all roles but the actors, which a job starts in one place."""
    return math.ceil(sum(need.count * need.cpus for need in role_needs(config) if need.role != "actor"))


ACTORS_PER_CORE = 4
ACTORS_ON_CLUSTER = 1_000
"""Most actors by default: per core of a machine, and on a cluster, whose size is not known here."""


def most_actors(config: RunConfig) -> int:
    """Return how many actors operators may request without force; 0: the run starts none, whatever they request."""
    if not config.launch.start_actors or config.learns_from_data:
        return 0
    if config.actors.max_count is not None:
        return config.actors.max_count
    default = ACTORS_ON_CLUSTER if config.launch.ray_address is not None else ACTORS_PER_CORE * cores()
    return max(default, config.actors.count)


def oversubscription_warning(config: RunConfig) -> str | None:
    """Return one line if there are more numeric threads than cores, else None.

    One more is no problem: actors wait while the learner computes. A cluster has other cores than this host.
    """
    if config.launch.ray_address is not None:
        return None
    needs = role_needs(config)
    threads = sum(round(need.count * need.cpus) for need in needs)
    if threads <= cores() + 1:
        return None
    others = "".join(f" + the {need.role}" for need in needs if need.role not in ("learner", "actor"))
    return (
        f"{threads} numeric roles on {cores()} cores (learner.threads {config.learner.threads} + actors.count "
        f"{config.started_actors}{others}): they will take turns; fewer actors are likely to be faster"
    )


UPDATES_PER_VERSION = 1_000
"""Updates per published version above which actors' policies are old enough for a warning."""


def replayed_updates_per_unroll(config: RunConfig, spec: EnvSpec) -> int:
    """Return updates per unroll by a replay memory's `samples_per_insert`; 0 without one."""
    parameters = config.algorithm.replay_parameters
    if parameters is None or parameters.samples_per_insert is None:
        return 0
    batch_steps = parameters.steps_of(config.batch_size, config.actors.unroll_length_steps)
    return int(parameters.samples_per_insert * unroll_steps(config, spec) / batch_steps)


def unroll_steps(config: RunConfig, spec: EnvSpec) -> int:
    """Return the steps of one unroll, over all its environments."""
    return config.actors.environments * spec.rows * config.actors.unroll_length_steps


def publication_note(config: RunConfig, spec: EnvSpec) -> str | None:
    """Return one line if weights are published after very many updates, as with a replay memory and large unrolls."""
    actors, updates = config.actors, replayed_updates_per_unroll(config, spec)
    if updates < UPDATES_PER_VERSION:
        return None
    return (
        f"weights are published once per unroll of {unroll_steps(config, spec):,} steps, every {updates:,} updates; "
        f"for newer ones in actors lower actors.environments: {actors.environments}, actors.unroll_length_steps: "
        f"{actors.unroll_length_steps} or memory.queue_batches: {config.memory.queue_batches}"
    )


def replay_note(config: RunConfig, spec: EnvSpec) -> str | None:
    """Return the size of the replay memory without the policy's recurrent state; None without a replay memory.

    Raises:
        ConfigError: It does not fit into the memory of this host, with a batch, or holds no unroll of every actor.
    """
    parameters = config.algorithm.replay_parameters
    if parameters is None:
        return None
    try:
        parameters.check_capacity(max(config.actors.count, 1), unroll_steps(config, spec))
    except ValueError as error:
        raise ConfigError(f"{spec.id} has {spec.rows} rows in each environment: {error}") from error
    here = config.launch.launcher != "ray"
    return fitting_replay(parameters, unroll_schema(config, spec, {}), config.batch_size, check=here)


def check_queue(config: RunConfig, spec: EnvSpec) -> None:
    """Refuse a queue that is full before a batch is in it, where that can be known."""
    if config.deterministic or config.algorithm.ships == "gradients":
        return  # one actor without a queue; and the size of gradients is not known before the network is built
    wanted, least = config.unrolls_at_once, unroll_schema(config, spec, {}).least_bytes
    if config.memory.queue_bytes <= (wanted - 1) * least:
        raise ConfigError(
            f"memory.queue_bytes {config.memory.queue_bytes:,} is full before a batch of {wanted} unrolls of "
            f"{least:,} bytes is in it, so that it bounds nothing; set at least {wanted * least * 2:,}"
        )
