"""Policy servers of a run, from the records that they write in its directory: rates, latencies, versions, returns."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from distrl.apps.dashboard import files
from distrl.apps.web.server_records import (
    FOLDER,
    STALE_S,
    Moments,
    Point,
    ServedPolicy,
    ServerRecord,
    half_of_difference,
)
from distrl.config.secrets import masked_text
from distrl.errors import ConfigError
from distrl.files import read_model

MOST_SERVERS = 32
MOST_VERSIONS = 20
MOST_POINTS = 60
"""Most points of a small curve."""
Json = dict[str, Any]


def servers(folder: Path) -> Json:
    """Return the servers of a run, those that serve first, the returns of its versions, and canaries beside policies.

    A record that cannot be read is left out: it may be another version's.
    """
    now = time.time()
    found = sorted(_records(folder), key=lambda one: (now - one.written > STALE_S, -one.started, one.address))
    records = found[:MOST_SERVERS]
    return {
        "servers": [_row(one, now) for one in records],
        "versions": _versions(records),
        "comparisons": _comparisons(records),
    }


def _records(folder: Path) -> Iterator[ServerRecord]:
    for path in (folder / FOLDER).glob("[!.]*.json"):
        own = files.own_file(folder, FOLDER, path.name)
        if own is not None:
            try:
                yield read_model(ServerRecord, own)
            except ConfigError:
                continue


def _row(record: ServerRecord, now: float) -> Json:
    """Return a server without its numbers of the moment, if it is gone."""
    is_gone = now - record.written > STALE_S
    told = {
        **record.model_dump(include={"pid", "started", "sessions", "connections", "waiting", "actions", "failures"}),
        "address": _text(record.address),
        "host": _text(record.host),
        "environment": _text(record.environment),
        "is_gone": is_gone,
        "policies": [_policy(one) for one in record.policies],
        "actions_per_s": record.actions_per_s,
        "latencies": None if record.latencies is None else record.latencies._asdict(),
        "rates": _curve(record.history, lambda points: sum(one.actions_per_s for one in points) / len(points)),
        "p99s": _curve(record.history, lambda points: max((one.p99_s for one in points if one.p99_s), default=None)),
    }
    if is_gone:
        nothing = {"sessions": 0, "connections": 0, "waiting": 0, "actions_per_s": 0.0, "latencies": None}
        told |= {**nothing, "written": record.written}
    return told


def _policy(policy: ServedPolicy) -> Json:
    source = _text(policy.source)
    return {"name": _text(policy.name), "source": source, "version": policy.version, "share": policy.share}


def _curve(history: Sequence[Point], value: Callable[[Sequence[Point]], float | None]) -> list[list[float]]:
    """Return times and values of at most `MOST_POINTS` stretches of a history, without those that have none."""
    size = -(-len(history) // MOST_POINTS)
    stretches = [history[at : at + size] for at in range(0, len(history), size or 1)]
    points = [(one[-1].at, found) for one in stretches if (found := value(one)) is not None]
    return [[at for at, _ in points], [float(f"{found:.4g}") for _, found in points]]


def _versions(records: Sequence[ServerRecord]) -> list[Json]:
    """Return the newest versions of each policy that have returns, over all servers."""
    found: dict[tuple[str, str, int], Moments] = {}
    for policy in (policy for record in records for policy in record.policies):
        for version, returns in policy.versions.items():
            key = (policy.name, policy.source, version)
            found[key] = found.get(key, Moments()).plus(returns)
    rows, newest = [], sorted(found, key=lambda key: (key[:2], -key[2]))
    for _, own in itertools.groupby(newest, lambda key: key[:2]):
        for name, source, version in itertools.islice(own, MOST_VERSIONS):
            told = {"name": _text(name), "source": _text(source), "version": version}
            rows.append(told | _returns(found[name, source, version]))
    return rows


def _returns(returns: Moments) -> Json:
    return {"episodes": returns.count, "mean": returns.mean, "half": returns.half}


def _comparisons(records: Iterable[ServerRecord]) -> list[Json]:
    """Return for each policy with a canary beside it both returns, over all servers of the pair and all versions."""
    found: dict[tuple[str, str], tuple[Moments, Moments]] = {}
    for record in (record for record in records if len(record.policies) == 2):
        main, canary = record.policies
        before = found.get((main.source, canary.source), (Moments(), Moments()))
        found[main.source, canary.source] = before[0].plus(main.returns), before[1].plus(canary.returns)
    return [
        {
            "main": _returns(main) | {"source": _text(sources[0])},
            "canary": _returns(canary) | {"source": _text(sources[1])},
            "difference": canary.mean - main.mean,
            "half": half_of_difference(main, canary),
        }
        for sources, (main, canary) in found.items()
        if main.count and canary.count
    ]


def _text(text: str) -> str:
    """Return a text of a record without passwords and unprintable characters."""
    return files.shown(masked_text(text))
