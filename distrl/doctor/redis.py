"""`distrl doctor`, findings about Redis: the given one, or the one that a run would start."""

import time
from collections.abc import Iterator

from distrl.doctor.findings import Finding
from distrl.errors import DistrlError
from distrl.memory_backend.backend import connect_engine
from distrl.memory_backend.embedded_redis import EmbeddedRedis, find_server
from distrl.memory_backend.engine import Engine
from distrl.memory_backend.local import PREFIX as LOCAL

PINGS = 200
SLOW_S = 0.005
FULL_SHARE = 0.8
CLOCK_S = 60.0
GB = 1e9


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
    client = connect_engine(url, name="doctor", give_up_s=3.0)
    try:
        info = client.call("INFO")
        yield Finding("ok", "Redis", f"{info['redis_version']}{f' ({what})' if what else f' at {client.url}'}")
        yield memory(int(info["used_memory"]), int(info.get("maxmemory", 0)))
        yield latency(client)
        yield clock(client)
    finally:
        client.close()


def memory(used: int, limit: int) -> Finding:
    """Check the memory in use; without a limit (0) the machine's memory is the limit."""
    if not limit:
        return Finding("ok", "Redis' memory", f"{used / GB:.2f} GB used, no limit")
    told = f"{used / GB:.2f} of {limit / GB:.2f} GB used"
    if used > FULL_SHARE * limit:
        return Finding("warning", "Redis' memory", told, "raise its maxmemory, or remove runs that have ended")
    return Finding("ok", "Redis' memory", told)


def latency(client: Engine) -> Finding:
    """Measure round trips, one after the other: an unroll needs three."""
    spent_s = []
    for _ in range(PINGS):
        began = time.perf_counter()
        client.call("PING")
        spent_s.append(time.perf_counter() - began)
    spent_s.sort()
    median_s, slow_s = spent_s[PINGS // 2], spent_s[int(0.99 * PINGS)]
    told = f"{1e3 * median_s:.2f} ms, 99th percentile {1e3 * slow_s:.2f} ms"
    if median_s > SLOW_S:
        advice = "every unroll waits for three round trips: make unrolls longer, or run Redis nearer to the roles"
        return Finding("warning", "Redis' latency", told, advice)
    return Finding("ok", "Redis' latency", told)


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
