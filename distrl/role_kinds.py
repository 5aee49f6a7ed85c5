"""The kinds of roles, in one table: what starts, names, supervises, shows or grants something to roles loops over it.

It imports nothing of distrl, as entries read it that import as little as possible. So it names the class of a kind as
text, and `roles/running.py` imports it in the role's own process.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class RoleKind(NamedTuple):
    """One kind of role; in `number`, `threads` and `gpus` the argument is the `RunConfig`.

    Attributes:
        name: As in messages, heartbeats, names of logs and users of Redis; also the command by which a process joins.
        entry: Its class, a `JoinedRole`, as module:Class.
        summary: First sentence of the command's help.
        number: Roles of this kind that the run starts; operators and autoscaling change that of actors.
        numbered: Whether there may be several; their names have numbers.
        label: Its name in sentences, where the command's is none.
        threads: Numeric threads of each role, which the run needs a core for. 0: those of its host that the learner
            leaves, as the roles that wait for its results need none meanwhile.
        gpus: GPUs on which each role computes, where `learner.device` lets it.
        steps_environments: Whether its process has the variables of `environment.variables`.
        needs_key: Whether it joins only with the run's key, because it writes into the directory of the description.
    """

    name: str
    entry: str
    summary: str
    number: Callable[[Any], int]
    label: str | None = None
    numbered: bool = False
    threads: Callable[[Any], int] = lambda config: 1
    gpus: Callable[[Any], int] = lambda config: 0
    steps_environments: bool = False
    needs_key: bool = False


def _evaluators(config: Any) -> int:
    """Return 0 also where this host has no environment, and an evaluator of another host joins; or with no roles."""
    here = config.environment.spec_file is None and not config.deterministic
    return int(here and config.evaluation.every_env_steps is not None)


TABLE: tuple[RoleKind, ...] = (
    RoleKind(
        "learner",
        "distrl.roles.learner:LearnerRole",
        "Join a run whose learner is gone as its learner.",
        number=lambda config: 1,
        threads=lambda config: config.learner.threads,
        gpus=lambda config: config.learner.replicas,
        needs_key=True,
    ),
    RoleKind(
        "actor",
        "distrl.roles.actor:ActorRole",
        "Join a run as one of its actors.",
        number=lambda config: config.started_actors,
        numbered=True,
        steps_environments=True,
    ),
    RoleKind(
        "inference",
        "distrl.roles.inference:InferenceRole",
        "Join a run that has `actors.inference: host` as the inference server of this host's actors.",
        number=lambda config: int(config.started_actors > 0 and config.actors.inference == "host"),
        label="inference server",
        numbered=True,
        threads=lambda config: 0,
    ),
    RoleKind(
        "evaluator",
        "distrl.roles.evaluator:EvaluatorRole",
        "Join a run that has `evaluation.every_env_steps` as its evaluator.",
        number=_evaluators,
        steps_environments=True,
    ),
)
"""In the order in which people see them."""

KINDS = {kind.name: kind for kind in TABLE}


def role_name(kind: str, number: int) -> str:
    """Return the name of a role in messages: "actor 3", "learner"."""
    return f"{kind} {number}" if KINDS[kind].numbered else kind
