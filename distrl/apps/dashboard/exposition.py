"""/metrics: numbers of live runs and of the dashboard as Prometheus' text, named as in metrics/snapshot.py."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from distrl.apps.dashboard.live_runs import ODD, host_loads
from distrl.apps.dashboard.payloads import UNROLLS, Runs
from distrl.metrics.snapshot import REPORTED_ONCE, Snapshot, meaning_of
from distrl.runs.reading import Reading

MEDIA_TYPE = CONTENT_TYPE_LATEST
ROLE_NUMBERS = {
    "env_steps": "environment steps of this incarnation",
    "env_steps_per_s": "environment steps per second",
    "weights_version": "version of the weights that it acts with or has published",
    "last_step_age_s": "seconds since its last finished step or update",
    "rss_mb": "resident memory, MB",
    "blocked_share": "share of its time spent waiting for the learner, or the learner's for unrolls: 0 to 1",
}
_TWICE = {"training_s"}  # `wall_s` of a run that lasts
_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


HOST_NUMBERS = {
    "cores": "cores that the roles on this host may use",
    "busy_share": "share of the time of all cores in which they were busy: 0 to 1",
    "memory_mb": "memory of the host or its container, MB",
    "memory_used_mb": "memory of the host or its container that is used, MB",
}
GPU_NUMBERS = {
    "busy_share": "share of the time in which the GPU computed: 0 to 1",
    "memory_mb": "memory of the GPU, MB",
    "memory_used_mb": "memory of the GPU that is used, MB",
}
_OWN = {
    *("run_up", "unrolls", "dropped_unrolls", "redis_failovers", "dashboard_failures"),
    *(f"role_{name}" for name in ROLE_NUMBERS),
    *(f"host_{name}" for name in HOST_NUMBERS),
    *(f"gpu_{name}" for name in GPU_NUMBERS),
}


class MetricSample(NamedTuple):
    """One number of a live run."""

    name: str
    meaning: str
    labels: Mapping[str, str]
    value: float


class _Gauges(Collector):
    """Gauges of every live run."""

    def __init__(self, samples: Iterable[MetricSample]) -> None:
        self._samples = [*samples]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families: dict[str, GaugeMetricFamily] = {}
        for name, meaning, labels, value in self._samples:
            family = families.get(name)
            if family is None:
                family = families[name] = GaugeMetricFamily(f"distrl_{name}", meaning, labels=list(labels))
            # Redis may hold text that UTF-8 cannot.
            texts = [text.encode(errors="backslashreplace").decode() for text in labels.values()]
            family.add_metric(texts, float(value))
        yield from families.values()


def exposition(runs: Runs, failures: Mapping[str, int]) -> bytes:
    """Return the text of /metrics, each series once.

    Args:
        failures: The dashboard's own work -> number of its failures.
    """
    samples: dict[tuple[str, ...], MetricSample] = {}
    entries = runs.index.entries()
    looks = runs.looks(entries)
    for entry, look in ((entry, looks[entry.id]) for entry in entries if entry.id in looks):
        labels = {"run": entry.name, "env": entry.env, "algorithm": entry.algorithm}
        up = MetricSample("run_up", "1 if the run's Redis answers", labels, look.problem is None)
        try:
            found = [up, *_of_roles(look, labels), *_of_hosts(look, labels), *_of_unrolls(look, labels)]
            found += _of_snapshot(runs.latest(entry, look), labels)
        except ODD as error:
            _LOG.warning("the numbers of %s are left out: %r", entry.name, error)
            found = [up._replace(value=0.0)]
        for sample in found:  # an algorithm's own metric may have the name of another one
            samples.setdefault((sample.name, *sample.labels.values()), sample)
    for work, count in failures.items():
        meaning = "failures of what the dashboard does on its own, since it began"
        samples["dashboard_failures", work] = MetricSample("dashboard_failures", meaning, {"work": work}, float(count))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gauges(samples.values()))
    return generate_latest(registry)


def _of_snapshot(snapshot: Snapshot, labels: Mapping[str, str]) -> Iterator[MetricSample]:
    for name, value in snapshot.items():
        if name in REPORTED_ONCE | _OWN | _TWICE or not _NAME.fullmatch(name) or not isinstance(value, int | float):
            continue
        yield MetricSample(name, meaning_of(name), labels, float(value))


def _of_unrolls(look: Reading, labels: Mapping[str, str]) -> Iterator[MetricSample]:
    told = asdict(look.counts)
    for where in UNROLLS:
        if where in ("dropped", "failovers"):  # a series for each reason; no unrolls
            continue
        yield MetricSample("unrolls", "unrolls by where they are", {**labels, "where": where}, float(told[where]))
    yield MetricSample(
        "redis_failovers", "fail-overs of Redis that the learner has seen", labels, float(told["failovers"])
    )
    for reason, count in told["dropped"].items():
        yield MetricSample("dropped_unrolls", "unrolls dropped, by reason", {**labels, "reason": reason}, float(count))


def _of_roles(look: Reading, labels: Mapping[str, str]) -> Iterator[MetricSample]:
    for role in look.roles:
        whose = {**labels, "role": role.role, "id": str(role.id), "host": role.host}
        for name, meaning in ROLE_NUMBERS.items():
            yield MetricSample(f"role_{name}", meaning, whose, float(getattr(role, name)))


def _of_hosts(look: Reading, labels: Mapping[str, str]) -> Iterator[MetricSample]:
    for host, load in host_loads(look.roles).items():
        where = {**labels, "host": host}
        for name, meaning in HOST_NUMBERS.items():
            yield MetricSample(f"host_{name}", meaning, where, float(load[name]))
        for number, gpu in enumerate(load["gpus"]):
            which = {**where, "gpu": str(number), "model": gpu["name"]}
            for name, meaning in GPU_NUMBERS.items():
                yield MetricSample(f"gpu_{name}", meaning, which, float(gpu[name]))
