"""`distrl doctor`, findings about a run: whether it makes progress, what it waits for, and what to do about it."""

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from distrl.apps.doctor.findings import Finding, Health
from distrl.data_store.saved_elsewhere import newest_resumable
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.ledger import LedgerCounts
from distrl.memory_backend.records import Control, RoleStatus
from distrl.metrics.phrases import lost_words, role_states, used_words, verdict
from distrl.roles.description import RunDescription
from distrl.roles.join import HEARTBEAT_S
from distrl.runs.reading import SILENT_S, STALLED_S, Reading
from distrl.runs.summary import Summary, duration, outcome

BETWEEN_S = 3.5 * HEARTBEAT_S
"""Seconds between two readings, in which unrolls are to be used."""
DROPPED = {
    "stale": "their weights were too old: fewer actors, shorter unrolls, or a larger max_staleness_updates",
    "duplicate": "pushed twice over a broken connection, or after a roll-back; used once",
    "decode": "not what an actor writes: is something else writing to this run?",
    "schema": "not of this run's shapes: is an actor of another version, or does the environment change its spaces?",
    "nonfinite": "NaN or infinity from the environment or the policy: distrl env check, a smaller learning rate",
    "poison": "the learner died of them",
}
ADVICE = {
    "actors": "more actors where cores are free (distrl scale N), more actors.environments, or a cheaper environment",
    "learner": "fewer actors would lose nothing; a GPU, learner.backend=jax, or a smaller network would gain",
}


def examine_run(backend: Backend, run_id: str) -> Iterator[Finding]:
    """Compare two looks at a run, some seconds apart.

    Raises:
        MemoryBackendError: There is no such run, another version of distrl describes it, or Redis cannot be reached.
    """
    description = RunDescription.read(backend.config_json(), run_id, backend.distrl_version())
    before = Reading.of(backend)
    time.sleep(BETWEEN_S)
    config, now = description.config, Reading.of(backend)
    timeout_s = config.learner.stall_timeout_s
    if config.learns_from_data:
        yield from learning_from_data(before, now, timeout_s)
    else:
        yield from compared(before, now, timeout_s, joined=not config.launch.start_actors)


def learning_from_data(before: Reading, now: Reading, stall_timeout_s: float) -> Iterator[Finding]:
    """Yield findings from two looks at a run without actors."""
    yield _asked(now.control)
    yield from _of_supervisor(now)
    yield from _of_roles(now)
    learner = next((role for role in now.roles if role.role == "learner"), None)
    earlier = next((role for role in before.roles if role.role == "learner"), None)
    if learner is None or earlier is None or now.control.paused or now.control.stop is not None:
        return
    steps = learner.env_steps - earlier.env_steps
    if steps > 0:
        yield Finding("ok", "progress", f"{steps / BETWEEN_S:,.0f} recorded steps/s")
    elif learner.state == "training":
        advice = f"the run ends as stalled {duration(stall_timeout_s)} after its last update (learner.stall_timeout_s)"
        health: Health = "error" if learner.last_step_age_s > stall_timeout_s / 2 else "warning"
        yield Finding(health, "progress", f"no update in {BETWEEN_S:g} s", advice)


def compared(before: Reading, now: Reading, stall_timeout_s: float, *, joined: bool = False) -> Iterator[Finding]:
    """Yield findings from two looks at the same run.

    Args:
        joined: Whether the run starts no actors, so that all of them join from other hosts.
    """
    yield _asked(now.control)
    awaits_actors = joined and now.control.stop is None and not any(role.role == "actor" for role in now.roles)
    yield from _of_supervisor(now)
    yield from _of_roles(now)
    yield _of_actors(now, awaits_actors=awaits_actors)
    yield from _of_unrolls(now.counts)
    if not awaits_actors:  # that time is no stall
        yield _progress(before, now, stall_timeout_s)


def ended(summary: Summary, run_dir: str) -> Finding:
    """Return the finding about a run that is over."""
    if summary.end not in ("interrupted", "failed"):
        return Finding("ok", "run", outcome(summary))
    why = f": {summary.error}" if summary.error else ""
    newest = newest_resumable(Path(run_dir))
    goes_on = "" if newest is None else f"; distrl train --resume {newest} goes on"
    health: Health = "warning" if summary.end == "interrupted" else "error"
    return Finding(health, "run", outcome(summary) + why, f"see {run_dir}/logs/{goes_on}")


def in_one_process(run_dir: Path) -> Finding:
    """Return the finding about a live run without roles, by the age of its numbers."""
    written = [path.stat().st_mtime for name in ("run.json", "metrics.csv") if (path := run_dir / name).exists()]
    silent_s = time.time() - max(written, default=math.inf)
    told = "running, in one process without Redis (actors.count: 0)"
    if silent_s < STALLED_S:
        return Finding("ok", "run", told)
    return Finding(
        "warning",
        "run",
        f"{told}; no new numbers for {duration(silent_s)}",
        "an environment, an update, an evaluation or a callback takes so long, or hangs, which nothing watches here; "
        "Ctrl-C, twice, ends the run. With --actors 1 an environment that hangs is started again",
    )


def _asked(control: Control) -> Finding:
    if control.stop is not None:
        return Finding("ok", "run", f"stopping ({control.stop})")
    if control.paused:
        return Finding("warning", "run", "paused: actors wait, nothing is lost", "distrl resume goes on")
    return Finding("ok", "run", "running")


def _of_supervisor(now: Reading) -> Iterator[Finding]:
    """Report a supervisor without a heartbeat."""
    supervisor, silent_s = now.supervisor, now.supervisor_age_s
    if supervisor is not None and silent_s is not None and now.supervisor_is_silent:
        told = f"silent for {duration(silent_s)}: process {supervisor.pid} on {supervisor.host}"
        advice = (
            "a callback, a terminal that is held (Ctrl-Q frees it), a disk or SIGSTOP holds it, and no role is watched "
            "or started again; distrl stop ends the run, and so does Ctrl-C, twice"
        )
        yield Finding("error", "supervisor", told, advice)


def _of_roles(now: Reading) -> Iterator[Finding]:
    """Check the learner, and the ages of heartbeats."""
    learners = [role for role in now.roles if role.role == "learner"]
    if not learners:
        advice = "it takes seconds to start; otherwise see logs/learner.log, or join one: distrl learner --help"
        yield Finding("warning", "learner", "has not reported yet", advice)
    for role in learners:
        updated = "" if role.state.startswith("starting") else f", last update {duration(role.last_step_age_s)} ago"
        yield Finding("ok", "learner", f"{role.state}{updated}, {role.rss_mb:,.0f} MB")
    for role, age_s in zip(now.roles, now.ages_s, strict=True):
        if age_s > SILENT_S:
            told = f"silent for {duration(age_s)}: process {role.pid} on {role.host}"
            advice = f"the run's own command, if it still runs, starts it again; see logs/{role.log}.log"
            yield Finding("error", role.name, told, advice)


def _of_actors(now: Reading, *, awaits_actors: bool) -> Finding:
    actors = [role for role in now.roles if role.role == "actor"]
    wanted = None if now.control.autoscale else now.control.target_actors
    short = wanted is not None and len(actors) < wanted
    if not actors and now.control.stop is not None:
        return Finding("ok", "actors", "none: the run is stopping")
    if awaits_actors:
        told = "none: the run waits until some join"
        return Finding("warning", "actors", told, "on their hosts: distrl actors --help")
    if not actors:
        advice = "see logs/actor-0.log, or let some join: distrl actors --help"
        return Finding("warning", "actors", "none has reported yet", advice)
    if short:
        told = f"{role_states(_rows(actors))}, {wanted} requested"
        return Finding("warning", "actors", told, "they come one after the other")
    return Finding("ok", "actors", role_states(_rows(actors)))


def _rows(roles: Sequence[RoleStatus]) -> list[dict[str, str]]:
    return [{"role": role.role, "state": role.state} for role in roles]


def _of_unrolls(counts: LedgerCounts) -> Iterator[Finding]:
    waiting = f"{counts.queued:,} queued, {counts.in_flight:,} in flight, {counts.stream_bytes / 1e6:,.1f} MB"
    if counts.imbalance:
        advice = "a defect of distrl: please report it with logs/ and summary.json"
        yield Finding("error", "unrolls", f"{waiting}; {counts.imbalance:,} are not accounted for", advice)
    else:
        yield Finding(
            "ok",
            "unrolls",
            f"{used_words(counts.trained, counts.stored)} of {counts.produced:,}, {waiting}; all accounted for",
        )
    for reason, count in counts.dropped.items():
        if count:
            health: Health = "ok" if reason == "duplicate" else "warning"
            yield Finding(health, "unrolls", f"{count:,} dropped as {reason}", DROPPED[reason])
    if counts.lost:
        to_failover = counts.lost_to_failover
        advice = "a replica was behind: see its lag" if to_failover else "Redis came back without them: turn its AOF on"
        yield Finding("warning", "unrolls", lost_words(counts.lost, to_failover), advice)


def _progress(before: Reading, now: Reading, stall_timeout_s: float) -> Finding:
    """Check that the run learned between the looks; if not, report what it waits for."""
    moved = now.counts.used - before.counts.used
    bottleneck = str(now.latest.get("bottleneck"))
    if moved:
        rate = moved / BETWEEN_S
        return Finding("ok", "progress", f"{rate:,.1f} unrolls/s; {verdict(now.latest)}", ADVICE.get(bottleneck, ""))
    if now.control.paused or now.control.stop is not None:
        return Finding("ok", "progress", "none, as asked")
    if now.pretrains:
        return Finding("ok", "progress", f"unrolls are not awaited yet; {role_states(_rows(now.roles))}")
    age_s = max((role.last_step_age_s for role in now.roles if role.role == "learner"), default=0.0)
    queue = "unrolls wait for the learner" if now.counts.queued else "the learner waits for unrolls"
    told = f"no unroll was used in {BETWEEN_S:g} s; {queue}; {role_states(_rows(now.roles))}"
    advice = f"the run ends as stalled {duration(stall_timeout_s)} after its last update (learner.stall_timeout_s)"
    return Finding("error" if age_s > stall_timeout_s / 2 else "warning", "progress", told, advice)
