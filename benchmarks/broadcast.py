"""Time until every actor uses new weights, each in the middle of an unroll.

    python -m benchmarks.broadcast
    python -m benchmarks.broadcast --only 16 --publications 20

Real actor processes act in an environment that sleeps, so that an unroll takes a second, with a policy of 1.7 million
parameters that travel as float16. This process replaces the learner: it publishes by the learner's own code, at moments
independent of the actors, and removes their unrolls. The time runs from before the weights are encoded until an actor
begins to act with them, by Redis' clock: at most one second, the sleep of an unroll, before its first unroll with them
is in the stream. An actor takes new weights between two unrolls, so the slowest needs one second even if nothing else
takes time.
"""

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.publishing import say
from benchmarks.speed import Entry, chosen, finish, goal, listed, parser, stamp
from distrl.config import RunConfig
from distrl.config.load import load
from distrl.environments.probe import probe
from distrl.errors import DistrlError
from distrl.launch.processes import ProcessLauncher
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.stream import Entry as StreamEntry
from distrl.roles.description import LaunchedRun, RunAddress, RunDescription
from distrl.roles.framework import select_framework
from distrl.roles.plan import Role
from distrl.roles.trust import Trust, new_key, signature
from distrl.runs.summary import duration

ACTORS = {"1": 1, "4": 4, "16": 16}
STEPS, STEP_S = 20, 0.05
UNROLL_S = STEPS * STEP_S
MOST_P95_S = 1.25
KEY = new_key()
HIDDEN = 1300
"""Units of each of two layers, 1.7 million parameters in all."""
START_S = 240.0
"""Time-out until all actors act."""


class Arrival(NamedTuple):
    """An unroll in the stream: its actor, its weights' version, and its time in seconds since 1970."""

    actor: int
    version: int
    at_s: float


class Drain(threading.Thread):
    """Removes unrolls from the stream and records their times, until stopped; on a connection of its own."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(daemon=True)
        self._backend = backend
        self._stopped = threading.Event()
        self.arrivals: list[Arrival] = []

    def run(self) -> None:
        """Take and acknowledge entries as the learner does, without learning."""
        while not self._stopped.is_set():
            entries = self._backend.unrolls.take(64, 0.2)
            if entries:
                self._backend.unrolls.settle(entries, EntryOutcome.TRAINED)
                self.arrivals += [arrival(entry) for entry in entries]

    def stop(self) -> None:
        """Wait for the end."""
        self._stopped.set()
        self.join(10.0)

    def await_version(self, version: int, actors: int, within_s: float) -> None:
        """Wait until every actor has acted with these weights or newer ones.

        Raises:
            DistrlError: Not within that time.
        """
        deadline = time.monotonic() + within_s
        while len({one.actor for one in list(self.arrivals) if one.version >= version}) < actors:
            if time.monotonic() > deadline:
                raise DistrlError(f"not all of {actors} actors acted with version {version} within {within_s:g} s")
            time.sleep(0.05)


def arrival(entry: StreamEntry) -> Arrival:
    """Return the arrival of an entry, whose id begins with the milliseconds of Redis' clock."""
    assert entry.header is not None  # only these actors push here
    return Arrival(entry.header.actor, entry.header.weights_version, int(entry.entry_id.split("-")[0]) / 1000.0)


def latencies(arrivals: Sequence[Arrival], published: Mapping[int, float], actors: int) -> list[float]:
    """Return the seconds from each publication until each actor began to act with it or with a newer version.

    Args:
        published: Version -> its time in seconds since 1970.
    """
    found = []
    for version, at_s in published.items():
        for actor in range(actors):
            first = min(one.at_s for one in arrivals if one.actor == actor and one.version >= version)
            found.append(max(first - UNROLL_S - at_s, 0.0))
    return found


def configured(actors: int) -> RunConfig:
    """Return the run's configuration, of which only the actors and the network matter."""
    sets = [
        "environment.id=benchmarks.sleeping:Sleeping",
        f"environment.kwargs={{step_s: {STEP_S}}}",
        f"network.middleware_parameters.scheme=[{HIDDEN}, {HIDDEN}]",
        "network.wire_dtype=float16",
        f"actors.count={actors}",
        "actors.environments=1",
        f"actors.unroll_length_steps={STEPS}",
        f"learner.batch_size={4 * actors}",  # room for everybody
        "algorithm.minibatches=1",
        "stop.mean_return=null",
    ]
    return load(preset="cartpole-impala", sets=sets).config


@contextmanager
def actor_processes(run: LaunchedRun) -> Iterator[None]:
    """Start all actors of a run; they end with the block."""
    run.log_dir.mkdir(exist_ok=True)
    launcher = ProcessLauncher(run)
    handles = [launcher.start(Role("actor", actor)) for actor in range(run.config.actors.count)]
    try:
        yield
    finally:
        for handle in handles:
            handle.terminate()
        time.sleep(UNROLL_S)
        for handle in handles:
            handle.kill()
        launcher.close()


def measure(name: str, publications: int) -> Entry:
    """Measure one number of actors."""
    config, where = configured(ACTORS[name]), stamp()
    select_framework(config.learner.backend)
    # Imported here: these load the framework, which actors must not import.
    from distrl.learner import publisher as publishing
    from distrl.learner.origin import Place
    from distrl.learner.preparation import prepare

    random, published, encodings = np.random.default_rng(0), {}, []
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="distrl-broadcast-")))
        url = cleanup.enter_context(EmbeddedRedis.start(maxmemory_bytes=2**31, max_bulk_bytes=2**28)).url
        description = RunDescription(
            run_id="broadcast", run_dir=str(folder), config=config, spec=probe(config.environment)
        )
        run = LaunchedRun(RunAddress(url, "broadcast", Trust(KEY)), description)
        backend = run.open_backend("learner")
        cleanup.callback(backend.close)
        text = description.published()
        backend.create(text, signature(KEY, text))
        backend.add_lane(run.open_backend("feed").engine)
        prepared = prepare(config, description.spec, Place(folder), "broadcast", backend)
        drain = Drain(prepared.backend.receiving)
        publisher = prepared.make_publisher()
        original = publishing.encode_weights

        def counted(*arguments: Any) -> bytes:
            encodings.append(original(*arguments))
            return encodings[-1]

        publishing.encode_weights = counted
        cleanup.callback(setattr, publishing, "encode_weights", original)
        weights = prepared.networks["main"].online.policy_weights()
        cleanup.enter_context(actor_processes(run))
        drain.start()
        cleanup.callback(drain.stop)
        publisher.publish(weights, 1, 0)
        drain.await_version(1, config.actors.count, START_S)
        began = time.monotonic()
        for version in range(2, publications + 2):
            done = version - 2
            each_s = (time.monotonic() - began) / done if done else 2.5 * UNROLL_S
            say(f"  publication {done + 1} of {publications} … about {duration((publications - done) * each_s)} to go")
            time.sleep(UNROLL_S * (1.0 + random.random()))
            published[version] = time.time()  # Redis' clock: it is on this host
            publisher.publish(weights, version, 0)
            drain.await_version(version, config.actors.count, 60.0)
    taken = latencies(drain.arrivals, published, config.actors.count)
    return {
        "name": name,
        **where,
        "actors": config.actors.count,
        "parameters": int(sum(array.size for array in weights.values())),
        "blob_bytes": len(encodings[-1]),
        "publications": publications,
        "encodings": len(encodings) - 1,  # the first version was not timed
        "p50_s": float(np.percentile(taken, 50)),
        "p95_s": float(np.percentile(taken, 95)),
        "max_s": max(taken),
    }


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    heads = ["Actors", "Parameters", "Publications", "Median", "95th percentile", "Longest", "Goal for the 95th, in s"]
    return listed(report, heads, _line)


def _line(one: Entry) -> list[str]:
    return [
        f"{one['actors']}",
        f"{one['parameters']:,} in {one['blob_bytes'] / 1e6:.1f} MB",
        f"{one['publications']}, encoded {one['encodings']} times",
        f"{one['p50_s']:.2f} s",
        f"{one['p95_s']:.2f} s",
        f"{one['max_s']:.2f} s",
        goal(one["p95_s"], most=MOST_P95_S),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    made = parser(__doc__, "broadcast", list(ACTORS))
    made.add_argument("--publications", type=int, default=20, metavar="N", help="timed ones (default: %(default)s)")
    given = made.parse_args(arguments)
    entries = []
    for name in chosen(list(ACTORS), given.only):
        say(f"{name} {'actor starts' if name == '1' else 'actors start'} …")
        entries.append(measure(name, given.publications))
        say(f"  p95 {entries[-1]['p95_s']:.2f} s, longest {entries[-1]['max_s']:.2f} s")
    finish("broadcast", entries, given, block)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
