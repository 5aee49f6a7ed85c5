"""/metrics: what the running jobs say, in Prometheus' text format, under the names of metrics/snapshot.py."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from distrl.dashboard.index import Entry
from distrl.dashboard.live import Look
from distrl.dashboard.payloads import Runs
from distrl.metrics.snapshot import METRICS, TOLD_ONCE, Snapshot

MEDIA_TYPE = CONTENT_TYPE_LATEST
LABELS = ("run", "env", "algorithm")
ROLE_NUMBERS = {
    "env_steps": "environment steps of this incarnation",
    "env_steps_per_s": "environment steps per second",
    "weights_version": "version of the weights it acts with, or has made",
    "last_step_age_s": "seconds since its last finished step or update",
    "rss_mb": "resident memory, MB",
    "blocked_share": "share of its time spent waiting for the learner: 0 to 1",
}
_MEANINGS = {metric.name: metric.meaning for metric in METRICS}
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class _Jobs(Collector):
    """Gauges of every running job."""

    def __init__(self, jobs: Iterable[tuple[Entry, Look, Snapshot]]) -> None:
        self._jobs = [*jobs]
        self._families: dict[str, GaugeMetricFamily] = {}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self._families = {}
        for entry, look, snapshot in self._jobs:
            labels = {"run": entry.name, "env": entry.env, "algorithm": entry.algorithm}
            self._add("run_up", "1 if the run's Redis answers", labels, look.problem is None)
            for name, value in snapshot.items():
                if name not in TOLD_ONCE and _NAME.fullmatch(name) and isinstance(value, int | float):
                    self._add(name, _MEANINGS.get(name, "of the algorithm"), labels, value)
            self._add_unrolls(look, labels)
            self._add_roles(look, labels)
        yield from self._families.values()

    def _add_unrolls(self, look: Look, labels: dict[str, str]) -> None:
        told = asdict(look.counts)
        for where in ("produced", "foreign", "trained", "queued", "in_flight", "lost", "rolled_back"):
            self._add("unrolls", "unrolls by where they are", labels | {"where": where}, told[where])
        for reason, count in told["dropped"].items():
            self._add("dropped_unrolls", "unrolls dropped, by reason", labels | {"reason": reason}, count)

    def _add_roles(self, look: Look, labels: dict[str, str]) -> None:
        for role in look.roles:
            whose = labels | {"role": role.role, "id": str(role.id), "host": role.host}
            for name, meaning in ROLE_NUMBERS.items():
                self._add(f"role_{name}", meaning, whose, getattr(role, name))

    def _add(self, name: str, meaning: str, labels: dict[str, str], value: float) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = GaugeMetricFamily(f"distrl_{name}", meaning, labels=list(labels))
        family.add_metric(list(labels.values()), float(value))


def exposition(runs: Runs) -> bytes:
    """The text of /metrics."""
    entries = runs.index.entries()
    looks = runs.looks(entries)
    jobs = [(entry, looks[entry.id], runs.latest(entry, looks[entry.id])) for entry in entries if entry.id in looks]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Jobs(jobs))
    return generate_latest(registry)
