import pytest

from distrl.apps.dashboard import changes as module
from distrl.apps.dashboard.changes import ListWatch, RunWatch, Watches
from distrl.apps.dashboard.files import NotThereError, id_of
from distrl.apps.dashboard.list_view import ListView
from distrl.apps.dashboard.payloads import Runs
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.stream import QueueCaps


@pytest.fixture
def runs(root, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.index.FRESH_S", 0.0)
    monkeypatch.setattr("distrl.apps.dashboard.index.RESTS", 0.0)
    monkeypatch.setattr("distrl.apps.dashboard.live_runs.LOOK_S", 0.0)
    made = Runs(root)
    yield made
    made.live.let_go(0.0)
    made.index.close()


@pytest.mark.redis
def test_a_run_tells_what_is_new(runs, make_run, make_summary, alive, redis_url):
    folder = make_run("job", ended=False, pid=alive, redis_url=redis_url, run_id="sse")
    backend = connect(redis_url, "sse", QueueCaps(8, 1000), name="test", give_up_s=1.0)
    backend.create("{}")
    watch = RunWatch(runs, id_of("job"))
    first = dict(watch.changes())
    assert first["run"] == {"state": "running", "started": 1000.0, "words": ("running",)}
    assert first["events"] == {"events": []}
    backend.registry.add_snapshot({"updates": 9, "bottleneck": "actors", "learner_wait_share": 0.25})
    backend.registry.beat(RoleStatus("actor", 0, 1, "h", 5, "acting"))
    (folder / "logs" / "events.log").write_text("2026-01-02 03:04:05 something\n")
    second = dict(watch.changes())
    assert second["snapshot"]["snapshot"]["updates"] == 9
    assert second["head"]["head"]["details"] == ("Bottleneck: actors: the learner waits for unrolls 25% of its time",)
    assert [role["state"] for role in second["live"]["roles"]] == ["acting"]
    (event,) = second["events"]["events"]
    assert (event["time"], event["text"], event["severity"]) == ("2026-01-02 03:04:05", "something", "info")
    assert set(dict(watch.changes())) == {"live"}
    make_summary(run_id="sse").write(folder / "summary.json")
    assert watch.changes() == [("run", {"state": "ended", "started": 1000.0, "words": ("solved", "ended")})]
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
    watch = ListWatch(runs, ListView(limit=10))
    first = dict(watch.changes())
    assert first["query"] == {"problem": None}
    assert [row["name"] for row in first["rows"]["changed"]] == ["a"]
    assert first["rows"]["changed"][0]["spark"] == ([100.0, 200.0, 300.0], [10.0, 20.0, 30.0])
    assert first["list"]["lines"] == [{"run": id_of("a")}]
    folder = make_run("b", started=2000.0)
    told = dict(watch.changes())
    assert [row["name"] for row in told["rows"]["changed"]] == ["b"]
    assert told["list"]["lines"] == [{"run": id_of("b")}, {"run": id_of("a")}]
    folder.rename(folder.parent.parent / "elsewhere")
    told = dict(watch.changes())
    assert (set(told), told["list"]["lines"]) == ({"list"}, [{"run": id_of("a")}])
    assert watch.changes() == []


def test_a_list_tells_only_what_it_shows(runs, make_run):
    for number in range(4):
        make_run(f"run {number}", started=float(number))
    watch = ListWatch(runs, ListView(limit=1, offset=1))
    assert [row["name"] for row in dict(watch.changes())["rows"]["changed"]] == ["run 2"]
    make_run("run 4", ended=False)
    told = dict(watch.changes())
    assert [row["name"] for row in told["rows"]["changed"]] == ["run 3"]
    assert (told["list"]["matched"], told["list"]["counts"]) == (5, {"gone": 1, "solved": 4})


def test_a_query_that_cannot_be_answered_is_one_line_until_it_can(runs, make_run):
    make_run("a", config="seed: 1\n")
    watch = ListWatch(runs, ListView(query="lr>0", limit=10))
    ((name, told),) = watch.changes()
    assert (name, told["problem"][:35]) == ("query", "no number or setting is named 'lr';")
    assert watch.changes() == []
    make_run("b")
    told = dict(watch.changes())
    assert told["query"] == {"problem": None}
    assert [row["name"] for row in told["rows"]["changed"]] == ["b"]


def test_a_page_gets_what_it_has_not_got(runs, make_run):
    make_run("a")
    watches = Watches(runs)

    def told(answer):
        return [name for name, _ in answer["changes"]]

    first = watches.changes(id_of("a"), "")
    assert (first["fresh"], told(first)) == (True, ["run", "serving", "events"])
    second = watches.changes(id_of("a"), first["mark"])
    assert (second["fresh"], told(second)) == (False, [])
    # An answer that was lost on its way: its mark never comes, and everything is told again.
    again = watches.changes(id_of("a"), first["mark"])
    assert (again["fresh"], told(again)) == (True, ["run", "serving", "events"])
    assert watches.changes(id_of("a"), again["mark"])["fresh"] is False
    # Another server, or another question.
    assert Watches(runs).changes(id_of("a"), again["mark"])["fresh"] is True
    assert watches.changes(ListView(), again["mark"])["changes"][0][0] == "query"
    with pytest.raises(NotThereError):
        watches.changes("none", "")


def test_what_an_error_has_kept_from_a_page_is_told_again(runs, make_run, make_summary, monkeypatch):
    folder = make_run("a", ended=False)
    watches = Watches(runs)
    mark = watches.changes(id_of("a"), "")["mark"]
    make_summary(run_id="a").write(folder / "summary.json")
    with monkeypatch.context() as broken:
        broken.delattr(module.files, "events")
        with pytest.raises(AttributeError):
            watches.changes(id_of("a"), mark)
    assert ("run", {"state": "ended", "started": 1000.0, "words": ("solved", "ended")}) in watches.changes(
        id_of("a"), mark
    )["changes"]


def test_pages_that_are_remembered_are_bounded(runs, monkeypatch):
    monkeypatch.setattr(module, "MOST_WATCHES", 2)
    watches = Watches(runs)
    marks = [watches.changes(ListView(), "")["mark"] for _ in range(3)]
    assert [watches.changes(ListView(), mark)["fresh"] for mark in (marks[2], marks[1], marks[0])] == [
        False,
        False,
        True,
    ]


def test_over_http(page, make_run):
    make_run("a")
    client = page()
    first = client.get("/api/changes").json()
    assert dict(first["changes"])["rows"]["changed"][0]["name"] == "a"
    assert client.get(f"/api/changes?since={first['mark']}").json()["changes"] == []
    assert client.get("/api/changes?run=none").status_code == 404
    assert client.get("/api/session").json()["at"] >= first["at"]


def test_rows_that_are_remembered_are_bounded(runs, make_run, monkeypatch):
    for name in "abcd":
        make_run(name)
    monkeypatch.setattr(module, "MOST_ROWS", 10)
    watches = Watches(runs)
    marks = [watches.changes(ListView(sort=sort), "")["mark"] for sort in ("started", "-started", "name")]
    fresh = [
        watches.changes(ListView(sort=sort), mark)["fresh"]
        for sort, mark in zip(("-started", "name"), marks[1:], strict=True)
    ]
    assert fresh == [False, False]
    assert watches.changes(ListView(sort="started"), marks[0])["fresh"] is True
