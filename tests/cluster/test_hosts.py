"""A training over several hosts: hosts are cut off, lose power and join, and everything stays accounted for."""

import sys
import time

import pytest

from distrl.memory_backend.keys import FIRST_JOINED, RunKeys
from tests.faults.arguments import environment, sets
from tests.faults.hosts import REDIS_PORT
from tests.faults.proxy import Proxy
from tests.faults.training import Run
from tests.waiting import lasts, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.usefixtures("needs_hosts"), pytest.mark.row("S10")]

PARTITION_S = 60.0
SILENT_S = 15
"""A role that is silent for so long is forgotten (`environment.step_timeout_s`): well before the partition ends."""

SLEEPING = ["--env", "benchmarks.sleeping:Sleeping", "--set", "environment.kwargs={step_s: 0.01, features: 64}"]
SHAPE = sets("actors.environments=1", "actors.unroll_length_steps=16", "learner.batch_size=1")
PATIENT = sets(f"environment.step_timeout_s={SILENT_S}", "memory.give_up_s=150")


@pytest.fixture
def start_run(network, redis_host, tmp_path):
    """Start a training on a host of its own."""
    runs = []

    def start(*arguments):
        host = network.host("learner")
        prefix = host.enter("env", "-C", str(tmp_path))
        url = f"redis://{redis_host.address}:{REDIS_PORT}"
        runs.append(Run(tmp_path / "run", *arguments, "--redis-url", url, cwd=tmp_path, prefix=prefix))
        return runs[-1]

    yield start
    for run in runs:
        run.end()


@pytest.fixture
def join(tmp_path):
    """Start `distrl actor` or `distrl actors` on a host."""

    def start(run, host, *options, command="actor", redis_url=None):
        address = ["--redis-url", redis_url or run.record["redis_url"], "--run-id", run.record["run_id"]]
        arguments = [sys.executable, "-m", "distrl", command, *address, *map(str, options)]
        with (tmp_path / f"{host.name}.log").open("wb") as log:
            return host.start(*arguments, variables=environment(**run.key), stdout=log, stderr=log)

    return start


def used(run, actor):
    """Return the number of unrolls of the actor's first life that the learner has settled."""
    return run.backend.unrolls.highest().get((actor, 1), -1) + 1


def assert_all_used_once(run):
    """Every unroll up to the highest settled one of its producer is in exactly one of the ledger's counts.

    Both are raised in one transaction, and no learner was started again. If an unroll were trained on twice, or left
    out without being counted, the sums would differ.
    """
    keys = RunKeys(run.record["run_id"])
    told, highest = run.backend.engine.transaction(
        [("HGETALL", keys.ledger), ("ZRANGE", keys.highest, 0, -1, "WITHSCORES")]
    )
    ledger = {name.decode(): int(count) for name, count in told.items()}
    assert "foreign" not in ledger
    once = {"trained", "lost", *(name for name in ledger if name.startswith("dropped."))} - {"dropped.duplicate"}
    assert sum(ledger.get(name, 0) for name in once) == sum(int(float(score)) + 1 for score in highest[1::2])


def role_memory_mb(run):
    """Return (kind, id) -> resident memory by its newest heartbeat, and that of Redis by its own count."""
    found = {(role.role, role.id): role.rss_mb for role in run.backend.registry.roles()}
    redis = run.backend.engine.call("INFO", "memory")["used_memory_rss"] / 1e6
    return found | {("redis", 0): redis}


def test_three_hosts_are_cut_off_for_a_minute_each_in_another_way(network, redis_host, start_run, join):
    run = start_run(*SLEEPING, *SHAPE, *PATIENT, "--actors", "1")
    hosts = {FIRST_JOINED: network.host("unplugged"), 11: network.host("unheard"), 12: network.host("deaf")}
    actors = {number: join(run, hosts[number], "--id", number) for number in (11, 12)}
    actors[FIRST_JOINED] = join(run, hosts[FIRST_JOINED], "--count", 1, command="actors")
    wait_until(lambda: all(used(run, number) >= 20 for number in hosts), "every host's unrolls are trained on")
    lasts(10.0)  # until the processes have their size
    before = role_memory_mb(run)
    network.unplug(hosts[FIRST_JOINED])
    network.lose(hosts[11], redis_host)
    network.lose(redis_host, hosts[12])
    began, updates, most = time.monotonic(), run.updates, before
    trained = {number: used(run, number) for number in hosts}
    while time.monotonic() - began < PARTITION_S:
        lasts(1.0)
        now = role_memory_mb(run)
        most = {role: max(size, now.get(role, 0.0)) for role, size in most.items()}
    assert run.updates > updates + 100  # with the actor that is left
    assert {("actor", number) for number in hosts}.isdisjoint(now)  # they are forgotten meanwhile
    # One unroll may have been on its way, one in the stream, and one in the learner's hands.
    assert all(used(run, number) <= trained[number] + 3 for number in hosts)

    network.plug(hosts[FIRST_JOINED])
    network.find(hosts[11], redis_host)
    network.find(redis_host, hosts[12])
    wait_until(lambda: all(used(run, number) >= trained[number] + 20 for number in hosts), "all go on as they were")
    assert all(actor.poll() is None for actor in actors.values())
    assert_all_used_once(run)
    after = role_memory_mb(run)
    print({role: (size, most[role], after[role]) for role, size in before.items()})
    assert all(max(most[role], after[role]) <= 1.1 * size for role, size in before.items())

    run.backend.registry.set_control(stop="asked")
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.restarts, summary.imbalance) == (0, "asked", 0, 0)
    assert (summary.lost, summary.foreign, summary.rolled_back) == (0, 0, 0)
    assert summary.dropped["duplicate"] <= len(hosts)  # each may have repeated the push that was cut
    assert sum(summary.dropped.values()) == summary.dropped["duplicate"] + summary.dropped["stale"]
    assert [actor.wait(timeout=60.0) for actor in actors.values()] == [0, 0, 0]
    assert run.told.count("joined by hand, has been silent") == len(hosts)


def test_a_host_loses_power_and_another_joins_from_far_away(network, redis_host, start_run, join):
    run = start_run(*SLEEPING, *SHAPE, *PATIENT, "--actors", "1")
    doomed, steady = network.host("doomed"), network.host("steady")
    actors = {number: join(run, host, "--id", number) for number, host in {10: doomed, 11: steady}.items()}
    wait_until(lambda: all(used(run, number) >= 20 for number in actors), "both hosts' unrolls are trained on")
    network.lose_power(doomed)
    proxy = Proxy(network.address, REDIS_PORT, (redis_host.address, REDIS_PORT))
    try:
        proxy.delay_s = 0.05
        far = join(run, network.host("far"), "--id", 12, redis_url=f"redis://{network.address}:{REDIS_PORT}")
        wait_until(lambda: used(run, 12) >= 20, "the new host's unrolls are trained on")
        for fault in ("loses_replies", "cut"):
            trained = used(run, 12)
            if fault == "cut":
                proxy.cut()
            else:
                proxy.loses_replies = True
                lasts(1.0)
                proxy.loses_replies = False
            wait_until(lambda trained=trained: used(run, 12) >= trained + 10, "it goes on")
        wait_until(lambda: "actor 10, joined by hand, has been silent" in run.told, "the host is given up")
        assert run.state("actor", 10) == "absent"
        assert_all_used_once(run)
        assert actors[11].poll() is None
        run.backend.registry.set_control(stop="asked")
        summary = run.finish()
        assert [far.wait(timeout=60.0), actors[11].wait(timeout=60.0)] == [0, 0]
    finally:
        proxy.close()
    assert (summary.exit_code, summary.stop_reason, summary.restarts, summary.imbalance) == (0, "asked", 0, 0)
    assert (summary.lost, summary.foreign, summary.rolled_back) == (0, 0, 0)
    assert sum(summary.dropped.values()) == summary.dropped["duplicate"] + summary.dropped["stale"]


def test_weights_cross_the_network_once_for_all_actors_of_a_host(network, redis_host, start_run, join):
    # An update takes a second and two unrolls of each actor, so that every actor needs every version.
    slow = [
        "--algorithm",
        "tests.faults.learners:Sleepy",
        *sets("algorithm.max_staleness_updates=null", "learner.batch_size=20"),
    ]
    large = sets("network.middleware_parameters={scheme: [1000, 1000], activation: tanh}")
    run = start_run(*SLEEPING, *SHAPE, *slow, *large, "--no-actors", "--run-id", "large")
    hosts = {1: network.host("one"), 8: network.host("eight")}
    parents = [join(run, host, "--count", count, command="actors") for count, host in hosts.items()]

    def acting():
        return sum(role.host in ("one", "eight") and role.weights_version > 0 for role in run.backend.registry.roles())

    wait_until(lambda: acting() == sum(hosts), "nine actors act")
    before = {count: host.received_bytes for count, host in hosts.items()}
    version = run.backend.weights.version()
    wait_until(lambda: run.backend.weights.version() >= version + 15, "fifteen versions")
    received = {count: host.received_bytes - before[count] for count, host in hosts.items()}
    weights = len(run.backend.weights.fetch().blob)
    print(
        f"received, {weights:,} bytes a version: by one actor's host {received[1]:,}, by eight actors' {received[8]:,}"
    )
    assert received[1] >= 10 * weights  # most of what it receives
    assert received[8] <= 1.2 * received[1]
    run.backend.registry.set_control(stop="asked")
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 0, 0)
    assert (summary.lost, summary.foreign, summary.rolled_back) == (0, 0, 0)
    assert [parent.wait(timeout=60.0) for parent in parents] == [0, 0]
