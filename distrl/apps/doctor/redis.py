"""`distrl doctor`, findings about Redis: the given one, or the one that a run would start."""

import os
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from distrl.apps.doctor.compression import compression
from distrl.apps.doctor.findings import Finding
from distrl.config.memory import MemoryConfig
from distrl.errors import DistrlError, MemoryBackendError, OutageError
from distrl.memory_backend.backend import connect_engine
from distrl.memory_backend.embedded_redis import EmbeddedRedis, find_server
from distrl.memory_backend.engine import Engine
from distrl.memory_backend.local import PREFIX as LOCAL
from distrl.memory_backend.redis_address import RedisAddress, parse_address

PINGS = 200
ECHOES = 20
LONGEST_S = 3.0
"""Bound on the time of each series of calls: over a slow network, fewer are made."""
SLOW_S = 0.005
FULL_SHARE = 0.8
CLOCK_S = 60.0
LAG_S = 10
BACKLOG_QUEUES = 4
"""Replication backlog in full queues: enough that a replica which was away for a moment is not copied anew."""
GB, MB = 1e9, 1e6
STEP_BYTES = {"CartPole": 33, "Atari frames": 8_500}
"""Bytes of a step in the unrolls of two presets, by `python -m benchmarks.compression`: a small and a large one."""
Info = Mapping[str, Any]


def examine_redis(url: str | None) -> Iterator[Finding]:
    """Check a Redis, or one that is started for this as a run without `memory.url` does."""
    try:
        if url is None:
            binary = find_server()
            with EmbeddedRedis.start(maxmemory_bytes=2**26, max_bulk_bytes=2**20) as own:
                yield from _examined(own.url, f"{binary}, started for this")
        elif url.startswith(LOCAL):
            yield Finding("error", "Redis", f"{url} is no Redis", "name one: redis://, rediss:// or unix://")
        else:
            yield from _examined(url, "")
    except DistrlError as error:
        yield Finding("error", "Redis", str(error))


def _examined(url: str, what: str) -> Iterator[Finding]:
    address = parse_address(url)
    client = connect_engine(url, name="doctor", give_up_s=3.0)
    try:
        info: Info | None = _told(client, "INFO")
        if info is None:
            advice = "check its version, memory, eviction policy, persistence and replicas yourself"
            yield Finding("warning", "Redis", f"answers at {client.url}, and does not allow INFO", advice)
        else:
            yield server(info, client.url, what)
            yield memory(int(info["used_memory"]), int(info.get("maxmemory", 0)), info.get("maxmemory_policy"))
            if not what:  # one of the run's own keeps nothing and has no replica
                yield persistence(info)
                yield replication(info, _replica_buffer(client))
        if not what:
            yield encryption(address)
        yield latency(client)
        speeds = bytes_per_s(client)
        yield throughput(speeds)
        if not address.is_here:  # else there is no network to relieve
            yield compression(speeds[1])
        yield clock(client)
    finally:
        client.close()


def _told(client: Engine, *command: str) -> Any:
    """Return the reply to a command, or None where it is forbidden, as in managed services or for some users."""
    try:
        return client.call(*command)
    except OutageError:
        raise
    except MemoryBackendError:
        return None


def server(info: Info, url: str, what: str) -> Finding:
    """Report version, mode and role; the connection has refused a Sentinel, a replica and another's node already."""
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    version = info.get("valkey_version", info.get("redis_version"))
    kind = "a Cluster" if info.get("redis_mode") == "cluster" else info.get("role", "of unknown role")
    return Finding("ok", "Redis", f"{name} {version}{f' ({what})' if what else f' at {url}'}, {kind}")


def memory(used: int, limit: int, policy: str | None) -> Finding:
    """Check the memory in use; without a limit (0) the machine's memory is the limit."""
    if not limit:
        return Finding("ok", "Redis' memory", f"{used / GB:.2f} GB used, no limit")
    told = f"{used / GB:.2f} of {limit / GB:.2f} GB used, eviction: {policy or 'not known'}"
    if used > FULL_SHARE * limit:
        return Finding("warning", "Redis' memory", told, "raise its maxmemory, or remove runs that have ended")
    return Finding("ok", "Redis' memory", told)


def encryption(address: RedisAddress) -> Finding:
    """Check that the connection is encrypted unless it stays on this machine."""
    if address.encrypted:
        return Finding("ok", "Redis' TLS", "encrypted, and its certificate is valid for this host")
    if address.is_here:
        return Finding("ok", "Redis' TLS", "not encrypted, and does not leave this machine")
    advice = "the password, observations and weights can be read on the way: rediss:// (SECURITY.md)"
    return Finding("warning", "Redis' TLS", "not encrypted", advice)


def persistence(info: Info) -> Finding:
    """Report what a restart of Redis keeps, and whether it can write it."""
    failing = {"rdb_last_bgsave_status": "the last snapshot", "aof_last_write_status": "the append-only file"}
    failed = [what for field, what in failing.items() if info.get(field, "ok") != "ok"]
    if failed:
        advice = "Redis may refuse writes (MISCONF): see its log, often a full disk"
        return Finding("error", "Redis' persistence", f"{' and '.join(failed)} could not be written", advice)
    if int(info.get("aof_enabled", 0)):
        return Finding("ok", "Redis' persistence", "append-only file: a run survives a restart of Redis")
    told = "no append-only file: a restart of Redis ends a run, which goes on from its newest checkpoint"
    return Finding("ok", "Redis' persistence", told)


def replication(info: Info, buffer_bytes: int | None) -> Finding:
    """Check that replicas can follow a stream of long entries.

    Args:
        buffer_bytes: Output buffer at which Redis drops a replica, 0 for none; None if Redis does not say.
    """
    # A replica whose connection has just broken is still counted, but not listed.
    names = (f"slave{number}" for number in range(int(info.get("connected_slaves", 0))))
    replicas = [info[name] for name in names if name in info]
    if not replicas:
        return Finding("ok", "Redis' replicas", "none")
    wanted = BACKLOG_QUEUES * int(MemoryConfig.model_fields["queue_bytes"].default)
    backlog, lag_s = int(info.get("repl_backlog_size", 0)), max(int(one.get("lag", 0)) for one in replicas)
    limit = {None: "not known", 0: "none"}.get(buffer_bytes, f"{(buffer_bytes or 0) / MB:,.0f} MB")
    told = (
        f"{len(replicas)}, at most {lag_s} s behind; backlog {backlog / MB:,.0f} MB, limit of the output buffer {limit}"
    )
    advice = []
    if any(one.get("state") != "online" for one in replicas):
        advice.append("a replica is being copied: wait until it is online")
    if lag_s > LAG_S:
        advice.append("a fail-over would lose what the replicas lack: check their network and processors")
    if backlog < wanted:
        advice.append(f"a replica that is away for a moment is copied anew: repl-backlog-size {wanted // 2**20}mb")
    if buffer_bytes and buffer_bytes < wanted:
        advice.append(f"a slow replica is dropped: client-output-buffer-limit replica {wanted // 2**20}mb 0 0")
    return Finding("warning" if advice else "ok", "Redis' replicas", told, "; ".join(advice))


def _replica_buffer(client: Engine) -> int | None:
    told = _told(client, "CONFIG", "GET", "client-output-buffer-limit")
    words = told[1].split() if told else []  # a service that hides the setting returns no item
    return int(words[words.index(b"slave") + 1]) if b"slave" in words else None


def latency(client: Engine) -> Finding:
    """Measure round trips, one after the other: an unroll needs three."""
    spent_s = sorted(_times_s(client, PINGS, "PING"))
    median_s, slow_s = spent_s[len(spent_s) // 2], spent_s[int(0.99 * len(spent_s))]
    told = f"{1e3 * median_s:.2f} ms, 99th percentile {1e3 * slow_s:.2f} ms"
    if median_s > SLOW_S:
        advice = "every unroll waits for three round trips: make unrolls longer, or run Redis nearer to the roles"
        return Finding("warning", "Redis' latency", told, advice)
    return Finding("ok", "Redis' latency", told)


def bytes_per_s(client: Engine) -> tuple[float, float]:
    """Measure how fast values of 0.1 MB and of 1 MB go to Redis and back, one after the other and without a key."""
    found = []
    for size in (100_000, 1_000_000):
        # Of random letters: a tunnel on the way may compress, and redis-py reads the reply to PING as text.
        value = b64encode(os.urandom(3 * size // 4))
        spent_s = _times_s(client, ECHOES, "PING", value)
        found.append(len(spent_s) * size / sum(spent_s))
    return found[0], found[1]


def _times_s(client: Engine, most: int, *command: str | bytes) -> list[float]:
    """Return the seconds that each of `most` calls took, or of those, at least one, that began within `LONGEST_S`."""
    spent_s: list[float] = []
    while len(spent_s) < most and sum(spent_s) < LONGEST_S:
        began = time.perf_counter()
        client.call(*command)
        spent_s.append(time.perf_counter() - began)
    return spent_s


def throughput(speeds: tuple[float, float]) -> Finding:
    """Report the speeds, in bytes per second, and the rate of steps that one connection of that speed feeds."""
    short, long = speeds
    feeds = ", ".join(f"{_rounded(long / size):,} steps/s of {name}" for name, size in STEP_BYTES.items())
    told = f"{short / MB:,.0f} MB/s by 0.1 MB, {long / MB:,.0f} MB/s by 1 MB, there and back"
    return Finding("ok", "Redis' throughput", f"{told}: one connection feeds {feeds}")


def _rounded(number: float) -> int:
    """Return a number to two significant digits."""
    return int(float(f"{number:.1e}"))


def clock(client: Engine) -> Finding:
    """Compare Redis' clock with ours. No function depends on it, but logs of several machines are compared by it."""
    began = time.time()
    seconds, microseconds = client.call("TIME")
    ahead_s = int(seconds) + int(microseconds) / 1e6 - (began + time.time()) / 2.0
    told = f"Redis' is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
    if abs(ahead_s) > CLOCK_S:
        return Finding(
            "warning", "clock", told, "set the clocks (NTP); distrl does not depend on it, reading logs does"
        )
    return Finding("ok", "clock", told)
