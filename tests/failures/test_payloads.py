"""Foreign entries of the stream are counted, kept for the operator, and never executed."""

import pickle
from pathlib import Path

import msgpack
import msgpack_numpy
import pytest

from distrl.memory_backend.keys import RunKeys, entry_fields
from distrl.types import UnrollHeader

pytestmark = [pytest.mark.slow, pytest.mark.redis]


class Touches:
    """Unpickling one creates a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self):
        return Path.touch, (self._path,)


def crafted(array: dict[bytes, object]) -> bytes:
    """An unroll's tree with `array` where the observations are."""
    return msgpack.packb({"observations": {"observation": array}, "actions": None})


@pytest.mark.row("D61", "T05")
def test_payloads_that_would_execute_code_are_counted_kept_and_never_decoded(start_run, unhurried, tmp_path):
    trap = tmp_path / "executed"
    pickled = crafted({b"nd": True, b"kind": b"O", b"shape": [1], b"type": "|O", b"data": pickle.dumps(Touches(trap))})
    objects = crafted({b"nd": True, b"kind": b"", b"shape": [1], b"type": "|O", b"data": bytes(8)})
    # The trap is real: the library's own decoder walks into it.
    msgpack.unpackb(pickled, object_hook=msgpack_numpy.decode)
    assert trap.exists()
    trap.unlink()

    run = start_run(*unhurried)
    run.wait_for_updates(3)
    keys, client = RunKeys(run.backend._run.keys.run_id), run.backend.engine
    for sequence, payload in enumerate((pickled, objects)):
        fields = entry_fields(UnrollHeader(99, 1, sequence, 1, 2048), payload)
        client.call("XADD", keys.unrolls, "*", *(part for field in fields.items() for part in field))
    run.wait_until(lambda: run.backend.ledger.counts().dropped["decode"] == 2, "both are counted")
    dead = [fields for _, fields in client.call("XRANGE", keys.dead, "-", "+")]
    assert [(fields[b"reason"], fields[b"payload"], fields[b"actor"]) for fields in dead] == [
        (b"decode", pickled, b"99"),
        (b"decode", objects, b"99"),
    ]
    run.wait_for_updates(run.updates + 20)  # training goes on
    run.process.terminate()
    summary = run.finish()
    assert not trap.exists()
    assert (summary.exit_code, summary.imbalance, summary.foreign, summary.restarts) == (0, 0, 2, 0)
    assert summary.dropped == {"stale": 0, "duplicate": 0, "decode": 2, "schema": 0, "nonfinite": 0, "poison": 0}


@pytest.mark.long
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
