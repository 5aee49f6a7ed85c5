"""Records of a run's registry: heartbeats of roles, requests of operators, snapshots and evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal, NamedTuple

from distrl.config.curriculum import RETURN, SUCCESS
from distrl.config.live_settings import Value
from distrl.role_kinds import role_name

Producer = tuple[int, int]
WORDS = frozenset({"bottleneck", "missing_workers", "unsaved", "unstored", "unreported", "origin", "stop_reason"})
"""Names in a snapshot whose values are words; all other values are numbers."""
WHOLE = frozenset({"updates", "env_steps", "episodes", "trained_steps", "weights_version", "evaluation_env_steps"})
"""Names in a snapshot whose values are whole numbers."""
Errand = Literal["checkpoint", "evaluation", "networks"]
"""Errands that operators may request; networks: take those of a checkpoint."""
ERRANDS: tuple[Errand, ...] = ("checkpoint", "evaluation", "networks")


@dataclass(frozen=True, slots=True)
class Demand:
    """Number of requests for an errand, and the number of the last one that has been run.

    Attributes:
        refused: Why the last one could not be run; "" if it was.
    """

    asked: int = 0
    done: int = 0
    refused: str = ""

    @property
    def pending(self) -> bool:
        return self.asked > self.done


NOT_ASKED = Demand()
ALL_ROLES = "all"
AWAITS_CLIENT = "waiting: client"
"""State of an actor that no client of `distrl serve --learn` steps."""
AWAITS_EVALUATION = "waiting: the last evaluation"
"""State of a learner that has reached the end of the training."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of an operator, for the event log.

    Attributes:
        by: Author and channel: "ada@host, command line".
    """

    by: str
    what: str


@dataclass(frozen=True, slots=True)
class Control:
    """Requests of operators to a live run.

    Attributes:
        autoscale: Whether the number of actors follows from the run's own measurements, within `min_actors` and
            `max_actors` (0: no bound); None: no operator has changed it. While it does, `target_actors` has no effect.
        settings: Dotted path of the configuration -> its new value.
    """

    paused: bool = False
    stop: str | None = None  # the reason, once asked
    target_actors: int | None = None
    target_forced: bool = False
    autoscale: bool | None = None
    min_actors: int | None = None
    max_actors: int | None = None
    stacks: str = ""  # whose heartbeats are to tell what every thread is doing: `ALL_ROLES`, or one's `key`
    settings: Mapping[str, Value] = field(default_factory=dict)
    checkpoint: Demand = NOT_ASKED
    evaluation: Demand = NOT_ASKED
    networks: Demand = NOT_ASKED
    networks_from: str = ""  # path of the checkpoint, on the learner's host


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """One GPU: the share of the time in which it computed, and its memory in MB (10^6 bytes)."""

    name: str
    busy_share: float
    memory_mb: float
    memory_used_mb: float


@dataclass(frozen=True, slots=True)
class HostLoad:
    """A role's host, or the container that limits it, since the role's heartbeat before.

    Attributes:
        cores: Cores that the role may use; a container's limit may be a fraction.
        busy_share: Share of all cores' time, 0 to 1.
        memory_mb: All memory, in MB (10^6 bytes).
        gpus: NVIDIA GPUs, where a learner looks for them.
    """

    cores: float
    busy_share: float
    memory_mb: float
    memory_used_mb: float
    gpus: tuple[GpuLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """One role's heartbeat; `beat` increases with every one."""

    role: str  # one of `KINDS`
    id: int
    incarnation: int
    host: str
    pid: int
    state: str  # starting, waiting: <what>, acting, training, evaluating, estimating, paused, stopping
    beat: int = 0
    env_steps: int = 0
    env_steps_per_s: float = 0.0
    weights_version: int = 0
    last_step_age_s: float = 0.0  # age of the last finished environment step or update
    rss_mb: float = 0.0
    peak_rss_mb: float = 0.0
    blocked_share: float = 0.0  # of its time since the beat before: actors wait for the learner, it for unrolls
    waits: Mapping[str, float] = field(default_factory=dict)  # where its time went lately: name -> share
    cpu_share: float = 0.0  # of one core, since the beat before; above 1 with several threads
    notice: str = ""  # one line for the user: a problem with which it goes on, or work beside its own that has ended
    stacks: str = ""  # of every thread, while they are requested
    at: float = field(default=0.0, compare=False)  # when the registry took it, see `Registry.clock`
    machine: HostLoad | None = None  # None: the system does not tell

    @property
    def key(self) -> str:
        """Name of the role in the registry: "actor:3"."""
        return f"{self.role}:{self.id}"

    @property
    def name(self) -> str:
        """Name of the role in messages: "actor 3", "learner"."""
        return role_name(self.role, self.id)

    @property
    def log(self) -> str:
        """Name of its log in logs/, without the ending: "actor-3", "learner"."""
        return self.name.replace(" ", "-")


@dataclass(frozen=True, slots=True)
class SupervisorStatus:
    """The heartbeat of the process that launched the run; `beat` increases with every one.

    Attributes:
        actors: Number of actors that it keeps up; None: it starts none.
        autoscales: Whether that number is the wanted one.
        actors_wanted: Number of actors that the run wants; None where the number is part of the algorithm.
        wanted_because: The reason, in words.
    """

    host: str
    pid: int
    beat: int
    actors: int | None = None
    autoscales: bool = False
    actors_wanted: int | None = None
    wanted_because: str = ""
    at: float = field(default=0.0, compare=False)  # when the registry took it, see `Registry.clock`


def blocked_share(roles: Sequence[RoleStatus]) -> float | None:
    """Return the mean over the actors among `roles`; None without any."""
    shares = [role.blocked_share for role in roles if role.role == "actor"]
    return sum(shares) / len(shares) if shares else None


def rates_while_paused(roles: Sequence[RoleStatus]) -> dict[str, float]:
    """Return rates and shares of a paused run, whose learner reports no snapshots; empty for any other run."""
    actors = {role.state for role in roles if role.role == "actor"}
    if actors != {"paused"}:
        return {}
    still = dict.fromkeys(("env_steps_per_s", "episodes_per_s", "wire_bytes_per_s"), 0.0)
    learning = any(role.role == "learner" and not role.state.startswith("waiting") for role in roles)
    return still if learning else still | {"updates_per_s": 0.0, "learner_wait_share": 1.0}


def time_shares(roles: Sequence[RoleStatus]) -> dict[str, dict[str, float]]:
    """Return kind of role -> name -> share of the time of all roles of that kind, from their heartbeats."""
    shares: dict[str, dict[str, float]] = {}
    for kind in dict.fromkeys(role.role for role in roles):
        alike = [role.waits for role in roles if role.role == kind]
        names = dict.fromkeys(name for waits in alike for name in waits)
        shares[kind] = {name: sum(waits.get(name, 0.0) for waits in alike) / len(alike) for name in names}
    return shares


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of a policy's discounted return from recorded episodes.

    Attributes:
        value: None: there is a problem.
        low, high: Bounds of the 95 % interval; None: none was wanted, or too few episodes decide.
        effective_episodes: See `data.off_policy.estimators`; None: the estimator weighs no episodes.
        problem: Why it cannot be calculated; None: it can.
    """

    estimator: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    effective_episodes: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of greedy episodes during the training.

    Attributes:
        weights_version: Version of the weights that acted.
        env_steps: Environment steps of the training behind these weights, without steps of evaluations.
        std_return: Standard deviation over the episodes, with `episodes` as the divisor.
        wall_s: Duration of the episodes.
        success_rate: Share of episodes that succeeded; None: the environment does not say.
        metrics: Key of `environment.metrics` -> its mean over the episodes of which it is known; None: of none.
        others: Name of `evaluation.other_environments` -> result there of the same weights; those have no others.
        best_by: `evaluation.best_by`, the result that makes one evaluation of a run better than another.
        cut_episodes: Episodes that were cut short at `evaluation.max_episode_steps`.
        mean_discounted_return: With the algorithm's discount, as estimates are; None: unknown.
        estimates: Those of `evaluation.off_policy`, of the same weights.
    """

    weights_version: int
    env_steps: int
    episodes: int
    mean_return: float
    std_return: float
    min_return: float
    max_return: float
    mean_length_steps: float
    wall_s: float
    success_rate: float | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    others: dict[str, "Evaluation"] = field(default_factory=dict)
    best_by: str = RETURN
    cut_episodes: int = 0
    mean_discounted_return: float | None = None
    estimates: tuple[Estimate, ...] = ()

    @property
    def score(self) -> float | None:
        """The result that `best_by` names; None, which is never the best: unknown or not finite."""
        results = {RETURN: self.mean_return, SUCCESS: self.success_rate, **self.metrics}
        value = results.get(self.best_by)
        return value if value is not None and isfinite(value) else None


class BestEvaluation(NamedTuple):
    """The best evaluation of a run.

    Attributes:
        weights: The evaluated bytes (`codec.encode_weights`).
    """

    evaluation: Evaluation
    weights: bytes
