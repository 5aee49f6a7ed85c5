"""/metrics: requests, latencies, batches, sessions and versions as Prometheus' text."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from distrl.apps.serve.returns import Returns
from distrl.apps.serve.sessions import ClientSessions, Counts
from distrl.apps.serve.versions import PolicyVersions

MEDIA_TYPE = CONTENT_TYPE_LATEST.encode()
LATENCIES_S = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)
MOST_RECENT = 16_384
"""Most latencies of which quantiles are computed: the newest ones."""


class Tally:
    """A histogram: how many values lie up to each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, meaning: str) -> HistogramMetricFamily:
        """Return it in Prometheus' terms."""
        buckets, count = [], 0
        for bound, here in zip((*map(float, self._bounds), float("inf")), self._counts, strict=True):
            count += here
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), float(count)))
        return HistogramMetricFamily(name, meaning, buckets=buckets, sum_value=self._sum)


class Measurements:
    """Counts of a server since it began. Used only on the event loop.

    Attributes:
        returns: Of episodes that have ended.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.actions = 0
        self.websockets = 0
        self.failed_changes = 0
        self.returns = Returns()
        self._recent: deque[float] = deque(maxlen=MOST_RECENT)
        self._latencies, self._batch_seconds, self._rows = Tally(LATENCIES_S), Tally(LATENCIES_S), Tally(ROWS)

    def batch(self, rows: int, seconds: float, latencies_s: list[float]) -> None:
        """Count a batch; see `batching.Observed`."""
        self.actions += rows
        self._rows.add(rows)
        self._batch_seconds.add(seconds)
        for latency_s in latencies_s:
            self._latencies.add(latency_s)
        self._recent.extend(latencies_s)

    def take_recent(self) -> deque[float]:
        """Return the latencies in seconds since the last call, at most the newest `MOST_RECENT`."""
        recent, self._recent = self._recent, deque(maxlen=MOST_RECENT)
        return recent

    def text(self, versions: PolicyVersions, sessions: ClientSessions, waiting: int) -> bytes:
        """Return the text of /metrics."""
        registry = CollectorRegistry(auto_describe=False)
        names = [track.name for track in versions.tracks]
        states = _states(versions, sessions, waiting, self.websockets)
        registry.register(_Families([*self._families(), *_returns(self.returns, names), *states]))
        return generate_latest(registry)

    def _families(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "distrl_serve_requests", "requests to act, by transport and status", labels=["transport", "status"]
        )
        for (transport, status), count in sorted(self.requests.items()):
            requests.add_metric([transport, str(status)], count)
        yield requests
        yield CounterMetricFamily("distrl_serve_actions", "actions chosen", value=self.actions)
        yield self._latencies.family(
            "distrl_serve_latency_seconds", "from the arrival of a request to its reply, without the network"
        )
        yield self._batch_seconds.family("distrl_serve_batch_seconds", "time to choose the actions of a batch")
        yield self._rows.family("distrl_serve_batch_rows", "observations of a batch")
        yield CounterMetricFamily(
            "distrl_serve_failed_changes", "newer versions that could not be loaded", value=self.failed_changes
        )


def _returns(returns: Returns, policies: Sequence[str]) -> Iterator[Metric]:
    episodes = CounterMetricFamily("distrl_serve_episodes", "episodes that have ended, by policy", labels=["policy"])
    total = GaugeMetricFamily("distrl_serve_return_sum", "sum of the returns of these episodes", labels=["policy"])
    for policy in policies:
        found = returns.of(policy)
        episodes.add_metric([policy], found.count)
        total.add_metric([policy], found.count * found.mean)
    yield from (episodes, total)


def _states(versions: PolicyVersions, sessions: ClientSessions, waiting: int, websockets: int) -> Iterator[Metric]:
    numbers = GaugeMetricFamily("distrl_serve_version", "newest version of the weights, by policy", labels=["policy"])
    for track in versions.tracks:
        numbers.add_metric([track.name], track.newest.number)
    yield numbers
    yield CounterMetricFamily("distrl_serve_version_changes", "changes of version", value=versions.changes)
    yield GaugeMetricFamily("distrl_serve_sessions", "sessions", value=len(sessions))
    yield CounterMetricFamily("distrl_serve_expired_sessions", "sessions that ended idle", value=sessions.expired)
    yield GaugeMetricFamily("distrl_serve_websockets", "connections by WebSocket", value=websockets)
    yield GaugeMetricFamily("distrl_serve_waiting", "observations that wait for their batch", value=waiting)
    if sessions.learning is not None:
        yield from _learned(sessions.learning.counts())


def _learned(counts: Counts) -> Iterator[Metric]:
    yield GaugeMetricFamily("distrl_serve_learning_episodes", "open episodes that teach the run", value=counts.episodes)
    yield CounterMetricFamily("distrl_serve_unrolls", "unrolls that have gone to the learner", value=counts.unrolls)
    yield CounterMetricFamily(
        "distrl_serve_dropped_steps", "environment steps of which nothing is learned", value=counts.dropped_steps
    )


class _Families(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._found = families

    def collect(self) -> Iterator[Metric]:
        yield from self._found
