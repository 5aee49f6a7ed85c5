"""The head of a run's page: one sentence on the run, its evidence, and the step that follows. A pure function.

A number is there only where a stop condition or a measurement supports it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from distrl.config.stop import StopConfig
from distrl.metrics.phrases import RoleRow, return_words, role_states, verdict
from distrl.metrics.snapshot import Snapshot, amount, number
from distrl.role_kinds import KINDS
from distrl.runs.progress import Goal, History, goals
from distrl.runs.summary import REASONS, Summary, duration

Tone = Literal["good", "busy", "plain", "warn", "bad"]
_SOLVED = {"mean_return": "return", "evaluation_return": "evaluation", "metrics": ""}
"""Stop reason of a solved run -> name of the goal that was reached; "": one of `stop.metrics`."""
_ROLE = re.compile(rf"({'|'.join(KINDS)})\b(?: (\d+))?")
_LEADS = {"stalled": "Stalled", "slow": "Slow"}
"""Verdict on a running run that is in trouble -> first word of the sentence."""
_MOST_ROLES = 3
"""Most silent roles that are named."""


@dataclass(frozen=True)
class SuggestedRequest:
    """A request of an operator that may help: `action` and `value` as the dashboard's control requests have them."""

    label: str
    action: str
    value: int | None = None


@dataclass(frozen=True)
class Facts:
    """Everything that is known of a run.

    Attributes:
        state: As `dashboard.index.IndexedRun.state`.
        roles: Heartbeats; `silent`: the newest is old, `seen_s`: its age in seconds.
        problem: Why this is out of date, or the damage.
        note: A remark that is no trouble.
        evaluation_std: Standard deviation of the newest evaluation's returns; None: unknown.
        paused_since: Local time of the request; "": unknown.
        actors: Number of actors that the supervisor keeps up; None: unknown, or it starts none.
        actors_wanted: Number that the run's own measurements ask for; None: unknown, or part of the algorithm.
        training_s: Seconds of training over all launches.
        resume: Command that resumes the run; "": it has no checkpoint.
        trouble: The word of the verdict on a run that runs.
        because: The numbers that say so, if they are not in the other facts.
        steps_per_s: Present environment steps per second of all actors; None: not known yet.
        full: Which cores are busy, in words, if no host of the actors has room for another one; "": one has.
    """

    state: str
    snapshot: Snapshot = field(default_factory=dict)
    stop: StopConfig = field(default_factory=StopConfig)
    history: History = field(default_factory=History)
    roles: Sequence[RoleRow] = ()
    summary: Summary | None = None
    problem: str | None = None
    note: str = ""
    evaluation_std: float | None = None
    paused: bool = False
    paused_since: str = ""
    stopping: bool = False
    actors: int | None = None
    autoscales: bool = False
    actors_wanted: int | None = None
    wanted_because: str = ""
    training_s: float | None = None
    resume: str = ""
    trouble: str = ""
    because: str = ""
    steps_per_s: float | None = None
    full: str = ""


@dataclass(frozen=True)
class Headline:
    """The head of a page.

    Attributes:
        state: Changes only with the kind of statement, so that a screen reader need not read every new number.
        details: Further sentences: the bottleneck, roles in trouble.
        fraction: Progress from 0 to 1 to the goal in the sentence; None: unknown.
        command: Command line to copy; "": none.
        role: Name of the log whose end explains a failure; "": none.
    """

    tone: Tone
    state: str
    sentence: str
    details: tuple[str, ...] = ()
    fraction: float | None = None
    step: SuggestedRequest | None = None
    command: str = ""
    role: str = ""


def headline(facts: Facts) -> Headline:
    """Return the head of a run's page."""
    if facts.state == "running":
        return _running(facts)
    if facts.summary is not None:
        return _ended(facts, facts.summary)
    if facts.state == "gone":
        return _gone(facts)
    return Headline("bad", "damaged", f"Damaged: {facts.problem or 'its files cannot be read'}")


def first_log(headline: Headline, roles: Sequence[RoleRow], names: Sequence[str]) -> str:
    """Return the name of the log to show first: of the role that failed, of a silent one, the learner's; "": none."""
    silent = [row["log"] for row in roles if row.get("silent")]
    return next((name for name in (headline.role, *silent, "learner", *names) if name in names), "")


def _running(facts: Facts) -> Headline:
    trouble = (*([facts.because] if facts.because else []), *_trouble(facts))
    if facts.paused:
        since = f" since {facts.paused_since}" if facts.paused_since else ""
        told = _reached(facts, goals(facts.snapshot, facts.stop, facts.history))
        details = ("Actors wait after their current unroll.", *trouble)
        return Headline("warn", "paused", f"Paused{since}{told}", details)
    if facts.stopping:
        return Headline("plain", "stopping", "Stopping: it saves a checkpoint and writes its summary", trouble)
    tone: Tone = "warn" if trouble or facts.trouble in _LEADS else "busy"
    if not facts.snapshot:
        lead = _LEADS.get(facts.trouble, "Starting")
        return Headline(tone, lead.lower(), f"{lead}: {role_states(facts.roles)}", trouble)
    found = goals(facts.snapshot, facts.stop, facts.history)
    told, fraction = _progress(facts, found)
    # Rates of a run that stands still are old, and more actors do not help what has stopped.
    (bottleneck, step), more = (("", None), "") if facts.trouble == "stalled" else (_advice(facts), _one_more(facts))
    details = tuple(filter(None, (bottleneck, more, facts.note)))
    lead = _LEADS.get(facts.trouble, "Running, with trouble" if trouble else "Running")
    return Headline(tone, lead, f"{lead}: {told}", (*trouble, *details), fraction, step)


def _progress(facts: Facts, found: Sequence[Goal]) -> tuple[str, float | None]:
    """Return the progress to the return asked for, or else to the budget that ends first, and the time left."""
    if not found:
        return f"{amount(facts.snapshot, 'env_steps'):,.0f} steps, without a stop condition", None
    nearest = min((goal for goal in found if goal.eta_s is not None), key=lambda goal: goal.eta_s or 0.0, default=None)
    aims = [goal for goal in found if goal.unit == "return"]
    shown = max(aims, key=lambda goal: _share(goal) or 0.0) if aims else nearest or found[0]
    told = _goal_words(facts, shown)
    if nearest is not None and nearest.eta_s is not None and facts.trouble != "stalled":
        left = f"about {duration(nearest.eta_s)}"
        told += f", {left} to go" if nearest is shown else f"; the {_budget_name(nearest)} ends it in {left}"
    return told, _share(shown)


def _goal_words(facts: Facts, goal: Goal) -> str:
    share = _share(goal)
    percent = "" if share is None else f"{int(100 * share)} % "
    if goal.unit == "count":
        return f"{percent}of {goal.target:,.0f} {goal.name} ({goal.now or 0.0:,.0f})"
    if goal.unit == "minutes":
        return f"{percent}of {goal.target:,.4g} minutes"
    if share is None:
        return f"{_now_words(facts, goal)}, target {return_words(goal.target)}"
    return f"{percent}to the target {return_words(goal.target)} ({_now_words(facts, goal)})"


def _now_words(facts: Facts, goal: Goal) -> str:
    name = {"return": "mean return"}.get(goal.name, goal.name)
    if goal.now is None:
        return f"no {name} yet"
    std = facts.evaluation_std if goal.name == "evaluation" else None
    return f"{name} {return_words(goal.now)}" + ("" if std is None else f" ± {return_words(std)}")


def _budget_name(goal: Goal) -> str:
    return "target" if goal.unit == "return" else f"budget of {goal.name}"


def _share(goal: Goal) -> float | None:
    """Return the fraction; None for a return that does not count from 0, such as a negative one."""
    if goal.now is None or (goal.unit == "return" and (goal.target <= 0.0 or goal.now < 0.0)):
        return None
    return goal.fraction


def _reached(facts: Facts, found: Sequence[Goal]) -> str:
    return f", {_goal_words(facts, found[0])}" if found and facts.snapshot else ""


def _trouble(facts: Facts) -> tuple[str, ...]:
    told = [facts.problem] if facts.problem else []
    silent = [row for row in facts.roles if row.get("silent")]
    told += [
        f"{row['name']} has been silent for {duration(row.get('seen_s') or 0.0)} (was {row['state']})"
        for row in silent[:_MOST_ROLES]
    ]
    told += [f"{len(silent) - _MOST_ROLES} more roles are silent"] if len(silent) > _MOST_ROLES else []
    present = sum(row["role"] == "actor" for row in facts.roles)
    if facts.actors is not None and 0 < present < facts.actors and facts.snapshot:
        told.append(f"{present} of {facts.actors} actors are there")
    told += [f"{row['name']}: {row['problem']}" for row in facts.roles if row.get("problem")]
    return tuple(told)


def _advice(facts: Facts) -> tuple[str, SuggestedRequest | None]:
    """Return what limits the run, and the request that the measured number of wanted actors supports."""
    if facts.snapshot.get("bottleneck") is None:
        return "", None
    told = f"Bottleneck: {verdict(facts.snapshot)}"
    now, wanted = facts.actors, facts.actors_wanted
    if facts.autoscales:
        return f"{told}; the run chooses its number of actors itself", None
    if now is None or wanted is None or wanted == now:
        return told, None
    because = f" ({facts.wanted_because})" if facts.wanted_because else ""
    if wanted > now:
        told = f"{told}; {wanted} actors would serve it{because}"
        if facts.full:
            return f"{told}, but {facts.full}: start them on another host", None
        return told, SuggestedRequest("Add an actor", "scale", now + 1)
    told = f"{told}; {wanted} {'actor is' if wanted == 1 else 'actors are'} enough{because}"
    return told, SuggestedRequest("Remove an actor", "scale", now - 1)


def _one_more(facts: Facts) -> str:
    """Return what one more actor would bring, as far as the present numbers allow an estimate.

    It steps as fast as the others at most, and the learner can take no more than its time spent waiting allows.
    """
    limit = facts.snapshot.get("bottleneck")
    if facts.actors is None or facts.autoscales:
        return ""
    if limit == "learner":
        if (facts.actors_wanted or 0) > facts.actors:  # measured over more time than the bottleneck
            return ""
        return "More actors will not help: the learner is the bottleneck"
    acting = sum(row["role"] == "actor" and not row.get("silent") for row in facts.roles)
    rate, waits = facts.steps_per_s, amount(facts.snapshot, "learner_wait_share")
    if limit not in ("actors", "environment") or facts.full or not acting or not rate or not 0.0 < waits < 1.0:
        return ""
    gain = min(rate / acting, rate * waits / (1.0 - waits))
    gain = float(f"{gain:.2g}")
    told = f"{gain:,.0f}" if gain >= 10.0 else f"{gain:g}"
    return f"One more actor: about +{told} steps/s, if its host has the processor time"


def _ended(facts: Facts, summary: Summary) -> Headline:
    took = f"after {duration(summary.wall_s)}"
    if summary.resumed_updates and facts.training_s is not None:
        took += f", {duration(facts.training_s)} of training with earlier launches"
    if summary.end == "interrupted":
        told = f"Interrupted {took}{_distance(facts)}"
        return Headline("warn", "interrupted", told, command=facts.resume)
    if summary.end == "failed":
        return _failed(facts, summary, took)
    if summary.end == "solved":
        reached = _goal_reached(facts, _SOLVED[summary.stop_reason])
        return Headline("good", "solved", f"Solved {took}{reached}", fraction=1.0 if reached else None)
    why = "stopped as asked" if summary.stop_reason == "asked" else _reason(summary.stop_reason)
    aims = [goal for goal in goals(facts.snapshot, facts.stop, History()) if goal.unit == "return"]
    if not aims:
        return Headline("plain", "ended", f"Ended {took}: {why}{_distance(facts)}", command=facts.resume)
    if any(goal.now is not None and goal.now >= goal.target for goal in aims):
        told = f"Ended {took} at its target: {why}{_distance(facts)}"
        return Headline("good", "at its target", told, fraction=1.0, command=facts.resume)
    shares = [share for goal in aims if (share := _share(goal)) is not None]
    fraction = max(shares, default=None)
    told = f"Not solved {took}: {why}{_distance(facts)}"
    return Headline("warn", "not solved", told, fraction=fraction, command=facts.resume)


def _failed(facts: Facts, summary: Summary, took: str) -> Headline:
    reason = _reason(summary.stop_reason)
    lead = f"Failed {took}" + ("" if reason == "failed" else f": {reason}")
    told = f"{lead}: {summary.error}" if summary.error else lead
    found = _ROLE.match(summary.error or "")
    role = "" if found is None else found[1] + (f"-{found[2]}" if found[2] is not None else "")
    return Headline("bad", "failed", told, command=facts.resume, role=role)


def _reason(stop_reason: str) -> str:
    known = REASONS.get(stop_reason)
    return stop_reason if known is None else known.sentence


def _goal_reached(facts: Facts, name: str) -> str:
    aims = [goal for goal in goals(facts.snapshot, facts.stop, History()) if goal.unit == "return"]
    found = [
        goal
        for goal in aims
        if (goal.name == name or (not name and goal.name in facts.stop.metrics))
        and goal.now is not None
        and goal.now >= goal.target
    ]
    return f": {_now_words(facts, found[0])} reached the target {return_words(found[0].target)}" if found else ""


def _distance(facts: Facts) -> str:
    """Return how far the run has come: to its target, or without one its newest returns."""
    aims = [goal for goal in goals(facts.snapshot, facts.stop, History()) if goal.unit == "return"]
    if aims:
        nearest = max(aims, key=lambda goal: _share(goal) or 0.0)
        return f"; {_goal_words(facts, nearest)}"
    value = number(facts.snapshot.get("mean_return_100"))
    return "; no episode finished" if value is None else f"; mean return {return_words(value)}"


def _gone(facts: Facts) -> Headline:
    reached = f" after {amount(facts.snapshot, 'env_steps'):,.0f} steps" if facts.snapshot else ""
    how = "resume it from its newest checkpoint" if facts.resume else "it has no checkpoint to resume from"
    told = f"Its process is gone{reached}, without a summary; {how}"
    return Headline("warn", "gone", told, (facts.problem,) if facts.problem else (), command=facts.resume)
