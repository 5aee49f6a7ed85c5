"""The roles of a run, as data, and checks of what they need. Launchers turn each into a process or a Ray actor."""

from dataclasses import dataclass

from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.learner.replay_set_up import fitting_replay, unroll_schema
from distrl.memory_backend.records import RoleStatus
from distrl.role_kinds import role_name
from distrl.roles.machine import cores
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
    """Return the learner, and an evaluator if there is one; the supervisor adds actors.

    Where this host has no environment, an evaluator of another host joins.
    """
    evaluates = config.evaluation.every_env_steps is not None and config.environment.spec_file is None
    return [LEARNER, *([Role("evaluator")] if evaluates else [])]


@dataclass(frozen=True)
class RoleNeed:
    """Needs of the roles of one kind: each of `count` has `cpus` cores and `gpus` GPUs of one machine."""

    role: str
    count: int
    cpus: float
    gpus: int = 0


def role_needs(config: RunConfig) -> list[RoleNeed]:
    """Return the needs of the learner, of the actors that the run starts, and of the evaluator if there is one.

    A learner with device "auto" takes a GPU where it finds one, and needs none.
    """
    gpus = config.learner.replicas if config.device == "gpu" else 0
    learner = RoleNeed("learner", 1, config.learner.threads, gpus)
    if config.deterministic:
        return [learner]
    beside = [RoleNeed(role.kind, 1, 1) for role in roles_beside_actors(config) if role.kind != "learner"]
    actors = [RoleNeed("actor", config.started_actors, 1)] if config.started_actors else []
    return [learner, *actors, *beside]


ACTORS_PER_CORE = 4
ACTORS_ON_CLUSTER = 1_000
"""Most actors by default: per core of a machine, and on a cluster, whose size is not known here."""


def most_actors(config: RunConfig) -> int:
    """Return how many actors operators may request without force; 0: the run starts none, whatever they request."""
    if not config.launch.start_actors:
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
    evaluates = len(roles_beside_actors(config)) > 1 and not config.deterministic
    threads = config.learner.threads + config.started_actors + evaluates
    if threads <= cores() + 1:
        return None
    evaluator = " + the evaluator" if evaluates else ""
    return (
        f"{threads} numeric roles on {cores()} cores (learner.threads {config.learner.threads} + actors.count "
        f"{config.started_actors}{evaluator}): they will take turns; fewer actors are likely to be faster"
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
