import asyncio
import json

import pytest

from distrl.dashboard import stream as module
from distrl.dashboard.files import id_of
from distrl.dashboard.index import Index
from distrl.dashboard.payloads import Runs
from distrl.dashboard.stream import ListWatch, RunWatch, Streams
from distrl.memory_backend.backend import QueueCaps
from distrl.memory_backend.redis_backend import RedisBackend
from distrl.memory_backend.registry_interface import RoleStatus


@pytest.fixture
def runs(root, monkeypatch):
    monkeypatch.setattr("distrl.dashboard.index.FRESH_S", 0.0)
    monkeypatch.setattr("distrl.dashboard.index.RESTS", 0.0)
    monkeypatch.setattr("distrl.dashboard.live.LOOK_S", 0.0)
    made = Runs(Index(root))
    yield made
    made.live.let_go(0.0)
    made.index.close()


@pytest.mark.redis
def test_a_run_tells_what_is_new(runs, make_run, make_summary, alive, redis_url):
    folder = make_run("job", ended=False, pid=alive, redis_url=redis_url, run_id="sse")
    backend = RedisBackend.open(redis_url, "sse", QueueCaps(8, 1000), name="test", give_up_s=1.0)
    backend.create("{}")
    watch = RunWatch(runs, id_of("job"))
    first = dict(watch.changes())
    assert first["run"] == {"state": "running", "started": 1000.0}
    assert first["events"] == {"events": []}
    backend.registry.add_snapshot({"updates": 9, "bottleneck": "actors", "learner_wait_share": 0.25})
    backend.registry.beat(RoleStatus("actor", 0, 1, "h", 5, "acting"))
    (folder / "logs" / "events.log").write_text("2026-01-02 03:04:05 something\n")
    second = dict(watch.changes())
    assert second["snapshot"]["snapshot"]["updates"] == 9
    assert second["snapshot"]["verdict"] == "actors: the learner waits for unrolls 25% of its time"
    assert [role["state"] for role in second["live"]["roles"]] == ["acting"]
    assert second["events"] == {"events": [{"time": "2026-01-02 03:04:05", "text": "something"}]}
    assert set(dict(watch.changes())) == {"live"}
    make_summary(run_id="sse").write(folder / "summary.json")
    assert watch.changes() == [("run", {"state": "ended", "started": 1000.0})]
    assert watch.changes() == []
    backend.delete()
    backend.close()


def test_a_run_that_is_removed(runs, make_run):
    folder = make_run("a")
    watch = RunWatch(runs, id_of("a"))
    watch.changes()
    folder.rename(folder.parent.parent / "elsewhere")
    assert watch.changes() == [("gone", {"error": "no run has that id; it may have been removed"})]
    assert watch.changes() == []


def test_the_list_tells_what_has_changed(runs, make_run):
    make_run("a")
    watch = ListWatch(runs)
    assert watch.changes() == []
    folder = make_run("b")
    ((name, told),) = watch.changes()
    assert (name, [row["name"] for row in told["changed"]], told["gone"]) == ("runs", ["b"], [])
    folder.rename(folder.parent.parent / "elsewhere")
    assert watch.changes() == [("runs", {"changed": [], "gone": [id_of("b")]})]
    assert watch.changes() == []


def test_messages_on_the_wire(monkeypatch):
    monkeypatch.setattr(module, "CADENCE_S", 0.0)
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.0)

    class Watch:
        def __init__(self):
            self.left = [[("runs", {"gone": ["ä\n"]})], [], None]

        def changes(self):
            found = self.left.pop(0)
            return [] if found is None else found

    watch = Watch()
    streams = Streams(stopping=lambda: not watch.left)

    async def collected():
        return [text async for text in streams._messages(watch)]

    first, message, *beats = asyncio.run(collected())
    assert first == "retry: 2000\n\n"
    event, data, *_ = message.split("\n")
    assert (event, json.loads(data.removeprefix("data: "))) == ("event: runs", {"gone": ["ä\n"]})
    assert set(beats) == {": still here\n\n"}
    assert streams._open == 0


def test_a_burst_of_pages_does_not_pass_the_limit(runs, monkeypatch):
    monkeypatch.setattr(module, "MOST_STREAMS", 1)
    streams = Streams(lambda: False)

    async def first_words():
        one, other = (streams._messages(ListWatch(runs)) for _ in range(2))  # both answered, none begun
        told = [await anext(one, None), await anext(other, None)]
        await one.aclose()
        return told

    assert asyncio.run(first_words()) == ["retry: 2000\n\n", None]
    assert streams._open == 0
