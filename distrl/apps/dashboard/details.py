"""JSON for the details of one run's page: its head, checkpoints, evaluations, data, films and logs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from distrl.apps.dashboard import files, log_search
from distrl.apps.dashboard.files import Event
from distrl.apps.dashboard.headline import Facts, Headline, first_log, headline
from distrl.apps.dashboard.index import IndexedRun
from distrl.apps.dashboard.live_runs import host_loads, role_rows
from distrl.apps.dashboard.log_search import LEVELS, Level
from distrl.apps.dashboard.payloads import Json, Runs
from distrl.apps.dashboard.servers import servers
from distrl.config.data import DATA_FILE
from distrl.config.secrets import masked_text
from distrl.config.settings import Settings
from distrl.config.stop import StopConfig
from distrl.errors import ConfigError
from distrl.metrics.snapshot import Snapshot, number
from distrl.runs.evaluations import EVALUATIONS, RecordedEvaluation, best, read_evaluations
from distrl.runs.progress import History
from distrl.runs.reading import Reading
from distrl.runs.recorded_data import has_data, read_data, usual_axis
from distrl.runs.saved_checkpoints import commands, own_checkpoints, saved_checkpoints

FAILURE_LINES = 12
"""Last lines of a failed role's log in the head of the page."""
NEWEST_BYTES = 2**16
"""Bytes of the end of evaluations.jsonl in which the spread of the evaluation in the head is looked for."""
FULL_SHARE = 0.9
"""A host whose cores are busier has no room for another actor."""
_STOP = "stop."
_METRICS = "stop.metrics."


def described(runs: Runs, run_id: str) -> Json:
    """Return one run with the head of its page, without curves, configuration, and logs."""
    told = runs.described(run_id)
    entry = runs.index.entry(run_id)
    folder, look = runs.index.directory(entry), runs.look(entry)
    found = _headline(runs, entry, look, told["snapshot"], files.events(folder))
    names = told["logs"]
    rows = [] if look is None else role_rows(look)
    tail = log_search.tail(folder, found.role, FAILURE_LINES) if found.role in names else []
    head = {**asdict(found), "log": [line._asdict() for line in tail]}
    usual = {"first_log": first_log(found, rows, names), "axis": _usual_axis(runs, entry)}
    return {**told, "head": head, "serving": servers(folder), **usual}


def head(runs: Runs, entry: IndexedRun, look: Reading | None, snapshot: Snapshot, events: Sequence[Event]) -> Json:
    """Return the head of a run's page, without lines of logs."""
    return asdict(_headline(runs, entry, look, snapshot, events))


def checkpoints(runs: Runs, run_id: str) -> Json:
    """Return a run's checkpoints, newest first, with the commands that use them."""
    entry = runs.index.entry(run_id)
    folder = runs.index.directory(entry)
    place = folder.resolve()
    greatest = best(_evaluations(folder))
    # Its evaluation ended after it was written; what it holds is the one before.
    own = {} if greatest is None else {"evaluation": greatest.mean_return, "evaluation_env_steps": greatest.env_steps}
    rows = [
        {
            **asdict(one),
            **(own if one.is_best else {}),
            "commands": commands(place, one.step, place.with_name(f"{place.name}-from-{one.step}")),
        }
        for one in saved_checkpoints(folder)
    ]
    return {"checkpoints": rows}


def evaluations(runs: Runs, run_id: str) -> Json:
    """Return the recorded evaluations, newest first."""
    folder = runs.index.directory(runs.index.entry(run_id))
    found = _evaluations(folder)
    greatest = best(found)
    return {"evaluations": [{**one.model_dump(), "is_best": one is greatest} for one in reversed(found)]}


def data(runs: Runs, run_id: str) -> Json:
    """Return the figures of a run's recorded episodes; None: the learner has not read them all, or there are none.

    An earlier launch may have learned from some; then its file is still there.
    """
    entry = runs.index.entry(run_id)
    path = files.own_file(runs.index.directory(entry), DATA_FILE)
    found = None if path is None or not _learns_from_data(runs, entry) else read_data(path)
    return {"data": None if found is None else found.model_dump()}


def films(runs: Runs, run_id: str) -> Json:
    """Return a run's films, by the steps that they show."""
    folder = runs.index.directory(runs.index.entry(run_id))
    return {"films": [one._asdict() for one in files.films(folder)]}


def log_piece(runs: Runs, run_id: str, role: str, after: int | None) -> Json:
    """Return lines of a role's log, with levels, and the first byte of the next piece."""
    piece = files.log_piece(runs.index.directory(runs.index.entry(run_id)), role, after)
    return {"lines": [[*line] for line in log_search.levelled(piece.text)], "after": piece.after}


def matches(runs: Runs, run_id: str, role: str, words: Sequence[str], least: Level) -> Json:
    """Return the lines of a log that hold all words."""
    found = log_search.search(runs.index.directory(runs.index.entry(run_id)), role, words, least)
    return {**found._asdict(), "lines": [[*line] for line in found.lines]}


def stop_of(settings: Settings) -> StopConfig:
    """Return the stop conditions of a configuration; none of one that this version cannot read."""
    values = {
        path.removeprefix(_STOP): setting.value
        for path, setting in settings.items()
        if path.startswith(_STOP) and not path.startswith(_METRICS)
    }
    metrics = {
        path.removeprefix(_METRICS): setting.value for path, setting in settings.items() if path.startswith(_METRICS)
    }
    try:
        return StopConfig.model_validate(values | ({"metrics": metrics} if metrics else {}))
    except ValidationError:
        return StopConfig()


def paused_since(events: Sequence[Event]) -> str:
    """Return the time of the newest event that asked for a pause; "" if none did, or a later one asked to go on."""
    for event in reversed(events):
        if event.text.startswith("asked: resume"):
            return ""
        if event.text.startswith("asked: pause"):
            return event.time
    return ""


def _headline(
    runs: Runs, entry: IndexedRun, look: Reading | None, snapshot: Snapshot, events: Sequence[Event]
) -> Headline:
    folder = runs.index.directory(entry)
    known: dict[str, Any] = {"state": entry.state, "snapshot": snapshot, "stop": _stop(runs, entry)}
    known |= {"problem": entry.problem, "evaluation_std": _evaluation_std(folder, snapshot)}
    known["training_s"] = number(snapshot.get("training_s"))
    if entry.state != "running" and _has_checkpoint(folder):
        known["resume"] = commands(folder.resolve(), None, folder)["resume"]
    if entry.state == "ended":
        known["summary"] = runs.summary(entry)
    if look is not None:
        known |= _live(look) | {"paused_since": paused_since(events)}
        record = runs.index.running(entry)
        if record is not None and record.redis_url is None:  # one process, of which files alone tell
            known |= {"problem": None, "note": look.problem or ""}
        has_redis = record is not None and record.redis_url is not None
        known["trouble"], known["because"] = look.verdict(has_redis=has_redis)
    found = headline(Facts(**known))
    return replace(found, sentence=_shown(found.sentence), details=tuple(map(_shown, found.details)))


def _has_checkpoint(folder: Path) -> bool:
    """Return whether the run has a checkpoint; not if this user may not look."""
    try:
        return bool(own_checkpoints(folder)[0])
    except PermissionError:
        return False


def _shown(text: str) -> str:
    """Return a sentence without passwords and unprintable characters, which errors of environments may have."""
    return files.shown(masked_text(text))


def _live(look: Reading) -> dict[str, Any]:
    history = History()
    for _, snapshot in look.snapshots:
        history.add(snapshot)
    supervisor = look.supervisor
    known = {
        "history": history,
        "steps_per_s": look.present_rate,
        "roles": role_rows(look),
        "problem": look.problem,
        "paused": look.control.paused,
        "stopping": look.control.stop is not None,
        "full": full_hosts(host_loads(look.roles), {role.host for role in look.roles if role.role == "actor"}),
    }
    if supervisor is not None:
        names = ("actors", "autoscales", "actors_wanted", "wanted_because")
        known |= {name: getattr(supervisor, name) for name in names}
    return known


def full_hosts(loads: Mapping[str, Mapping[str, Any]], hosts: Collection[str]) -> str:
    """Return which cores are busy, in words, if all of these hosts are full; "" if one has room or says nothing."""
    found = [(host, loads[host]) for host in sorted(hosts) if host in loads and loads[host]["busy_share"] >= FULL_SHARE]
    if len(found) < max(len(hosts), 1):
        return ""
    cores, host = sum(load["cores"] for _, load in found), found[0][0] if len(found) == 1 else f"{len(found)} hosts"
    busy = sum(load["cores"] * load["busy_share"] for _, load in found) / cores
    return f"the {cores:g} {'core' if cores == 1 else 'cores'} of {host} are {100 * busy:.0f} % busy"


def _stop(runs: Runs, entry: IndexedRun) -> StopConfig:
    try:
        return stop_of(runs.index.configuration(entry))
    except ConfigError:  # told where the configuration is shown
        return StopConfig()


def _usual_axis(runs: Runs, entry: IndexedRun) -> str:
    try:
        return usual_axis(runs.index.configuration(entry))
    except ConfigError:  # told where the configuration is shown
        return "steps"


def _learns_from_data(runs: Runs, entry: IndexedRun) -> bool:
    try:
        return has_data(runs.index.configuration(entry))
    except ConfigError:  # reported where the configuration is shown
        return True


def _evaluations(folder: Path) -> list[RecordedEvaluation]:
    path = files.own_file(folder, EVALUATIONS)
    return [] if path is None else read_evaluations(path)


def _evaluation_std(folder: Path, snapshot: Snapshot) -> float | None:
    """Return the spread of the evaluation in a snapshot, if it is among the newest that were recorded."""
    path, at = files.own_file(folder, EVALUATIONS), snapshot.get("evaluation_env_steps")
    recorded = [] if path is None or at is None else read_evaluations(path, NEWEST_BYTES)
    return next((one.std_return for one in reversed(recorded) if one.env_steps == at), None)


def level_of(text: str) -> Level:
    """Return a level by its name."""
    for level in LEVELS:
        if level == text:
            return level
    raise ConfigError(f"level is one of {', '.join(LEVELS)}")
