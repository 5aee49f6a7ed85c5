import json
import os
import shutil
import sqlite3
import threading

import pytest

from distrl.apps.dashboard import index as module
from distrl.apps.dashboard import index_store
from distrl.apps.dashboard.files import NotThereError, id_of
from distrl.apps.dashboard.index import Index
from distrl.apps.dashboard.index_store import INDEX_NAME
from distrl.errors import ConfigError
from distrl.runs.directories import process_mark


@pytest.fixture
def look(root):
    """Makes an index, and closes it; a second one is as after a restart."""
    made = []

    def make():
        made.append(Index(root))
        return made[-1]

    yield make
    for index in made:
        index.close()


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch):
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    monkeypatch.setattr(module, "RESTS", 0.0)


@pytest.fixture
def opened(monkeypatch):
    """Names of the runs whose files are read."""
    names = []
    real = module.open_run
    monkeypatch.setattr(module, "open_run", lambda folder: names.append(folder.name) or real(folder))
    return names


def test_states(look, make_run, alive):
    make_run("solved", started=1.0, env_steps=123)
    make_run("going/on", ended=False, pid=alive, started=3.0)
    make_run("killed", ended=False, started=2.0)
    make_run("odd", started=0.0)
    found = look().entries()
    assert [(entry.path, entry.name, entry.state) for entry in found] == [
        ("going/on", "on", "running"),
        ("killed", "killed", "gone"),
        ("solved", "solved", "ended"),
        ("odd", "odd", "ended"),
    ]
    going, killed, solved, _ = found
    assert (solved.env, solved.algorithm, solved.seed) == ("CartPole-v1", "impala", 0)
    assert solved.numbers["stop_reason"] == "mean_return"
    assert (going.env, going.algorithm, going.seed) == ("CartPole-v1", "impala", 1)  # of its configuration
    assert killed.numbers == {}


def test_a_record_that_no_process_of_its_user_has_written(look, make_run, alive):
    """It came with an archive, say: its Redis is not connected to."""
    for name, change in {
        "another": {"process": "another-boot:1"},
        "unknown": {"process": ""},
        "group": {"pid": 0},
        "init": {"pid": 1, "process": process_mark(1)},
    }.items():
        path = make_run(name, ended=False, pid=alive) / "run.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        if name == "init" and os.geteuid() == 0:
            os.chown(path, 12345, -1)
    index = look()
    assert {entry.name: entry.state for entry in index.entries()} == dict.fromkeys(
        ("another", "unknown", "group", "init"), "gone"
    )
    assert [index.running(entry) for entry in index.entries()] == [None] * 4


def test_a_run_that_ends_and_one_that_goes_on_again(look, make_run, make_summary, alive):
    folder = make_run("a", ended=False, pid=alive)
    index = look()
    (before,) = index.entries()
    record = index.running(before)
    make_summary(run_id="a").write(folder / "summary.json")
    (after,) = index.entries()
    assert (before.state, after.state, before.id == after.id) == ("running", "ended", True)
    assert index.running(after) is None
    (folder / "run.json").write_text(record.model_copy(update={"run_id": "second"}).model_dump_json())
    assert [entry.state for entry in index.entries()] == ["running"]


def test_what_has_ended_is_read_once_also_after_a_restart(look, make_run, opened):
    for name in ("a", "b"):
        make_run(name)
    first = look()
    entries = first.entries()
    assert first.entries() == entries
    assert look().entries() == entries
    assert sorted(opened) == ["a", "b"]


def test_a_look_at_runs_that_have_not_changed_reads_and_writes_nothing(look, make_run, alive, opened, monkeypatch):
    make_run("ended")
    make_run("going on", ended=False, pid=alive)
    make_run("gone", ended=False)
    index = look()
    index.entries()
    monkeypatch.setattr(index.store, "_write", lambda statement, rows: rows and pytest.fail(statement))
    states = {"ended": "ended", "going on": "running", "gone": "gone"}
    assert {entry.name: entry.state for entry in index.entries()} == states
    assert sorted(opened) == ["ended", "going on", "gone"]


def test_what_has_changed_is_read_again(look, make_run, make_summary, opened):
    folder = make_run("a")
    look().entries()
    make_summary(run_id="a", env_steps=7, stop_reason="asked").write(folder / "summary.json")
    assert [entry.numbers["env_steps"] for entry in look().entries()] == [7]
    assert opened == ["a", "a"]


@pytest.mark.parametrize("damage", ["lost", "no database", "another table", "an odd row", "another version"])
def test_an_index_that_is_lost_or_damaged_is_made_anew(look, make_run, root, damage, opened):
    make_run("a")
    index = look()
    before = index.entries()
    index.close()
    path = root / INDEX_NAME
    if damage == "lost":
        path.unlink()
    elif damage == "no database":
        path.write_bytes(os.urandom(4096))
    else:
        with sqlite3.connect(path) as database:
            statements = {
                "another table": "ALTER TABLE entries RENAME COLUMN stamp TO other",
                "an odd row": "UPDATE entries SET text = '{}'",
                "another version": "PRAGMA user_version = 99",
            }
            database.execute(statements[damage])
        database.close()
    assert look().entries() == before
    assert opened == ["a", "a"]


def test_a_folder_that_was_never_there_is_no_trouble_and_one_that_goes_is(tmp_path, make_run, look, root, caplog):
    index = Index(tmp_path / "none")
    assert index.entries() == []
    index.close()
    assert caplog.messages == []
    run, index = make_run("a"), look()
    assert len(index.entries()) == 1
    shutil.rmtree(root)
    assert (run.exists(), index.entries()) == (False, [])
    assert f"{root}: No such file or directory" in caplog.messages


def test_where_nothing_can_be_written_the_index_is_in_memory(look, make_run, root, caplog):
    make_run("a")
    (root / INDEX_NAME).mkdir()
    assert [entry.name for entry in look().entries()] == ["a"]
    assert "kept in memory" in caplog.text


def test_a_run_alone_leaves_no_index_behind(make_run):
    folder = make_run("a")
    index = Index(folder)
    assert [(entry.path, entry.name) for entry in index.entries()] == [("", "a")]
    assert index.directory(index.entries()[0]) / "run.json" == folder / "run.json"
    index.close()
    assert not (folder / INDEX_NAME).exists()


def test_runs_that_are_removed(look, make_run, root, opened):
    folder = make_run("a")
    index = look()
    (entry,) = index.entries()
    assert index.configuration(entry)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert index.entries() == []
    assert index._configurations == {}
    with pytest.raises(NotThereError, match="no run has that id"):
        index.entry(entry.id)
    with sqlite3.connect(root / INDEX_NAME) as database:
        assert database.execute("SELECT count(*) FROM entries").fetchone() == (0,)
    database.close()


@pytest.mark.parametrize("name", ["run.json", "summary.json", "config.yaml"])
def test_links_and_pipes_in_place_of_files(look, make_run, tmp_path, name):
    folder = make_run("a")
    elsewhere = tmp_path / name
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    (entry,) = look().entries()
    assert (entry.state, entry.problem) == ("damaged", f"{name} is not a file of the run's own")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert [entry.state for entry in look().entries()] == ["damaged"]


def test_a_link_to_a_run_is_not_followed(look, make_run, root, tmp_path):
    folder = make_run("a")
    folder.rename(tmp_path / "outside")
    (root / "b").symlink_to(tmp_path / "outside")
    assert look().entries() == []


def test_damaged_records_are_listed_with_what_is_wrong(look, make_run):
    (make_run("a") / "run.json").write_text("{}")
    (entry,) = look().entries()
    assert entry.state == "damaged"
    assert entry.problem.endswith("run.json is damaged: run_id: Field required")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"seed": %s}' % ("9" * 400), "\x00"], ids=["torn", "list", "number", "0"]
)
def test_a_damaged_summary_is_a_row_on_every_page(page, make_run, content):
    make_run("a")
    (make_run("b") / "summary.json").write_text(content)
    client, bad = page(), id_of("b")
    (row,) = [one for one in client.get("/api/runs").json()["runs"] if one["id"] == bad]
    assert (row["state"], row["problem"].startswith("summary.json is damaged: ")) == ("damaged", True)
    assert client.get(f"/api/runs/{bad}").json()["run"]["problem"] == row["problem"]
    assert client.get(f"/api/compare?id={id_of('a')}&id={bad}").status_code == 200


def test_configurations_are_kept(look, make_run, monkeypatch):
    folder = make_run("a")
    index = look()
    (entry,) = index.entries()
    values = index.configuration(entry)
    assert values["algorithm.name"].value == "impala"
    monkeypatch.setattr(module, "read_settings", lambda _: pytest.fail("read again"))
    assert index.configuration(entry) == values
    index.read_again([])  # as the next scan, which saves
    assert look().configuration(entry) == values
    monkeypatch.undo()
    (folder / "config.yaml").write_text("seed: 5\n")
    assert index.configuration(entry) == {"seed": (5, "")}


def test_a_run_without_a_manifest_and_one_with_a_damaged_one(look, make_run, alive):
    folder = make_run("a", ended=False, pid=alive)
    (folder / "manifest.json").unlink()
    index = look()
    (entry,) = index.entries()
    assert (entry.state, entry.env, entry.problem) == ("running", "", None)
    (folder / "manifest.json").write_text("{}")
    (entry,) = index.entries()
    assert (entry.state, entry.env) == ("running", "")
    assert "manifest.json is damaged" in entry.problem


def test_the_list_parses_no_yaml_and_what_cannot_be_read_is_not_tried_again(look, make_run, monkeypatch, alive):
    text = "\n".join(f"key{number}: {number}" for number in range(50_000))
    make_run("a", ended=False, pid=alive, config=text)
    make_run("b", ended=False, config=text)
    tried = []
    real = module.read_settings
    monkeypatch.setattr(module, "read_settings", lambda path: tried.append(path.parent.name) or real(path))
    index = look()
    entries = index.entries()
    assert sorted(entry.state for entry in entries) == ["gone", "running"]
    assert tried == []
    for _ in range(3):
        with pytest.raises(ConfigError, match="more than 262,144"):
            index.configuration(entries[0])
    assert len(tried) == 1


def test_the_list_is_answered_while_a_configuration_is_parsed(look, make_run, monkeypatch):
    make_run("a")
    began, go_on = threading.Event(), threading.Event()
    index = look()
    (entry,) = index.entries()
    monkeypatch.setattr(module, "read_settings", lambda _: began.set() or (go_on.wait(60) and []))
    waiting = threading.Thread(target=index.configuration, args=(entry,))
    waiting.start()
    try:
        assert began.wait(60)
        listed = []
        asking = threading.Thread(target=lambda: listed.append(index.entries()), daemon=True)
        asking.start()
        asking.join(60)
        assert listed == [[entry]]
    finally:
        go_on.set()
        waiting.join()


def test_runs_of_a_sweep_have_its_name(look, make_run, root):
    for path in ("rates/0001", "other/0002"):
        make_run(path)
    (root / "rates" / "sweep.yaml").write_text("vary: {}\n")
    assert {entry.path: entry.name for entry in look().entries()} == {"rates/0001": "rates/0001", "other/0002": "0002"}


def test_runs_of_one_name_are_told_apart(look, make_run):
    for path in ("lr1/seed1", "lr2/seed1", "lr2/seed2", "x/lr1/seed1"):
        make_run(path)
    index = look()
    entries = {entry.path: entry for entry in index.entries()}
    assert {path: entry.name for path, entry in entries.items()} == {
        "lr1/seed1": "runs/lr1/seed1",
        "lr2/seed1": "runs/lr2/seed1",
        "lr2/seed2": "seed2",
        "x/lr1/seed1": "x/lr1/seed1",
    }
    again = {entry.path: entry for entry in index.entries()}
    assert all(again[path] is entry for path, entry in entries.items())  # rows that have not changed cost nothing


def test_a_file_that_could_not_be_read_for_a_moment_is_read_again(look, make_run, monkeypatch):
    make_run("a")
    real = module.open_run

    def refuse(folder):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(module, "open_run", refuse)
    index = look()
    (entry,) = index.entries()
    assert (entry.state, entry.problem) == ("damaged", "a file of the run cannot be read: Too many open files")
    monkeypatch.setattr(module, "open_run", real)
    (entry,) = index.entries()
    assert (entry.state, entry.problem) == ("ended", None)


def test_an_error_that_was_not_foreseen_is_one_damaged_row(look, make_run, monkeypatch, caplog):
    make_run("a")
    make_run("b")
    real = module.open_run
    monkeypatch.setattr(module, "open_run", lambda folder: 1 // 0 if folder.name == "a" else real(folder))
    index = look()
    for _ in range(2):
        assert {entry.name: entry.state for entry in index.entries()} == {"a": "damaged", "b": "ended"}
    assert caplog.text.count("Traceback") == 1  # and is not tried again before its files change


def test_looks_that_take_long_are_taken_seldom(look, make_run, monkeypatch):
    clock = {"monotonic": 0.0, "thread_time": 0.0}
    monkeypatch.setattr(module.time, "monotonic", lambda: clock["monotonic"])
    monkeypatch.setattr(module.time, "thread_time", lambda: clock["thread_time"])
    monkeypatch.setattr(module, "FRESH_S", 1.0)
    monkeypatch.setattr(module, "RESTS", 100.0)
    index = look()
    looks = []

    def slow():
        looks.append(clock["monotonic"])
        clock["thread_time"] += 0.03

    monkeypatch.setattr(index, "_look", slow)
    for tenth in range(100):
        clock["monotonic"] = tenth / 10
        index.entries()
    assert looks == [0.0, 3.0, 6.0, 9.0]


def test_a_run_that_was_made_since_the_last_scan_is_found(look, make_run, monkeypatch):
    for name, value in (("FRESH_S", 1e9), ("QUICK_S", 1e9)):
        monkeypatch.setattr(module, name, value)
    index, scans = look(), []
    assert index.entries() == []
    real = index._look
    monkeypatch.setattr(index, "_look", lambda: scans.append(1) or real())
    make_run("a")
    assert index.entry(id_of("a")).path == "a"
    make_run("b")
    assert [entry.path for entry in index.some([id_of("b"), id_of("nowhere"), id_of("a")])] == ["b", "a"]
    for number in [*range(20), *range(20)]:
        with pytest.raises(NotThereError):
            index.entry(f"{number:016}")
    assert len(scans) < module.MOST_SOUGHT


def test_an_index_from_an_archive_with_a_view_is_made_anew(root, make_run):
    make_run("a")
    with sqlite3.connect(root / INDEX_NAME) as database:
        rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i, i FROM n"
        database.execute(f"CREATE VIEW entries AS {rows}")  # without end
        database.execute(f"PRAGMA user_version = {index_store._VERSION}")
    database.close()
    found = Index(root)
    assert [entry.name for entry in found.entries()] == ["a"]
    found.close()
