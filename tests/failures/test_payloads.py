"""Garbage under the keys of a run is ignored, and the user is told of it."""

import pytest

from distrl.memory_backend.keys import RunKeys, entry_fields
from distrl.types import UnrollHeader

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.redis]


def test_garbage_under_every_key_is_ignored_and_told_of(start_run, unhurried):
    """Another program that writes to a run's keys neither ends it nor silences an actor."""
    run = start_run(*unhurried)
    run.wait_for_updates(3)
    keys, client = RunKeys(run.backend._run.keys.run_id), run.backend.engine
    for stream in (keys.metrics, keys.requests, keys.evaluations):
        for fields in (("json", "{"), ("nothing", ""), ("by", b"\xff", "json", '{"updates": "many"}')):
            client.call("XADD", stream, "*", *fields)
    client.call("HSET", keys.actors, "actor:9", '{"role": "actor"}', b"\xff", "")
    client.call("HSET", keys.control, "target_actors", -3, "set network.learning_rate", "{", "checkpoint.asked", "soon")
    client.call("ZADD", keys.highest, 1, "nonsense")
    incarnation = int(client.call("HGET", keys.incarnations, 0))
    for sequence in (10**9, 10**17):
        fields = entry_fields(UnrollHeader(0, incarnation, sequence, 1, 2048), b"")
        client.call("XADD", keys.unrolls, "*", *(part for field in fields.items() for part in field))
    before = run.backend.unrolls.highest()[0, incarnation]
    run.wait_until(lambda: run.backend.unrolls.highest()[0, incarnation] > before + 4, "actor 0 is trained on")
    run.wait_until(lambda: "ignored what operators ask" in run.told, "the supervisor has looked")
    run.process.terminate()
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.imbalance, summary.lost) == (0, 0, 0, 0), run.told
    assert (summary.foreign, summary.restarts, sum(summary.dropped.values())) == (2, 0, 2)
    told = [line.split("ignored ")[1] for line in run.output.read_text().splitlines() if "another program" in line]
    for kind in ("numbers", "a request", "a heartbeat", "what operators ask", "an evaluation"):
        assert sum(line.startswith(f"{kind} in Redis") for line in told) == 1, told
