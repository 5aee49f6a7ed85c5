"""Fetching from a store: the newest valid checkpoint, whole; and what stays of the directory's own."""

import numpy as np
import pytest

from distrl.data_store import checkpoints, fetching
from distrl.data_store.fetching import fetch_files, fetch_newest, own_position, write_writer, written
from distrl.data_store.stored_run import CheckpointPosition, StoredRun
from distrl.errors import CheckpointError
from tests.data_store.stores import KINDS, held, make_store, saved, store_steps


@pytest.fixture(params=KINDS)
def run(request, tmp_path):
    return StoredRun(make_store(request.param, tmp_path), "r")


@pytest.fixture
def here(tmp_path):
    """Return the directory into which is fetched."""
    return tmp_path / "here"


def fetch(run, here, files=()):
    return fetch_newest(run, here, files, lambda line: None)


@pytest.mark.row("D63", "T08")
def test_into_an_empty_directory(run, here, tmp_path):
    writer = store_steps(run, tmp_path / "other", 1, 2)
    writer.store(saved(tmp_path / "other", 3), 3, {}, best=True, keep=5)
    writer.store(saved(tmp_path / "other", 4), 4, {}, best=False, keep=5)
    run.objects.put("r/metrics.csv", b"rows")
    run.objects.put("r/policy/weights.msgpack", b"w")
    fetched = fetch(run, here, ("metrics.csv", "policy/", "none.txt", "nothing/"))
    assert (fetched.position, fetched.writer, fetched.rejected) == (CheckpointPosition(1, 4), 1, [])
    assert held(here) == 4.0
    assert checkpoints.best_path(here / "checkpoints").name == "ckpt-000000000003"
    assert written(here) == ("r", 1)
    assert (here / "metrics.csv").read_bytes() == b"rows"
    assert (here / "policy" / "weights.msgpack").read_bytes() == b"w"
    assert sorted(path.name for path in (here / "checkpoints").iterdir()) == [
        *("best", "ckpt-000000000003", "ckpt-000000000004", "writer")
    ]


def test_nothing_where_the_directory_is_as_new(run, here, tmp_path):
    store_steps(run, tmp_path / "other", 3)
    saved(here, 3)
    write_writer(here, "r", 1)
    assert fetch(run, here).position is None
    saved(here, 7)
    assert fetch(run, here).position is None
    assert held(here) == 7.0


def test_nothing_from_an_empty_store(run, here):
    assert fetch(run, here).position is None
    assert not here.exists()


def _truncated(content):
    return content[: len(content) // 2]


def _changed(content):
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.row("D63", "T08")
@pytest.mark.parametrize("name", ["main.online.npz", "meta.json", "manifest.json"])
@pytest.mark.parametrize("harm", [_truncated, _changed, lambda content: None], ids=["truncated", "changed", "missing"])
def test_a_damaged_newest_is_passed_over(run, here, tmp_path, name, harm):
    store_steps(run, tmp_path / "other", 1, 2)
    path = f"r/checkpoints/000001-000000000002/{name}"
    content = harm(run.objects.get(path))
    if content is None:
        run.objects.remove([path])
    elif name == "manifest.json" and harm is _changed:
        run.objects.put(path, content.replace(b'"bytes"', b'"bites"'))
    else:
        run.objects.put(path, content)
    fetched = fetch(run, here)
    assert fetched.position == CheckpointPosition(1, 1)
    assert held(here) == 1.0
    unfinished = name == "manifest.json" and content is None  # no checkpoint at all
    assert len(fetched.rejected) == (0 if unfinished else 1)
    assert unfinished or ("000001-000000000002" in fetched.notes[0] and fetched.notes[0].startswith("passed over"))


def test_none_is_valid(run, here, tmp_path):
    store_steps(run, tmp_path / "other", 1, 2)
    for step in (1, 2):
        run.objects.put(f"r/checkpoints/000001-{step:012d}/meta.json", b"{}")
    with pytest.raises(CheckpointError, match=r"holds checkpoints, and none is valid: .*; "):
        fetch(run, here)
    saved(here, 1)
    write_writer(here, "r", 1)
    assert [name.rpartition("/")[2] for name, _ in fetch(run, here).rejected] == ["000001-000000000002"]
    assert held(here) == 1.0


@pytest.mark.row("T08")
def test_a_branch_that_another_writer_has_overtaken_is_moved_aside(run, here, tmp_path):
    store_steps(run, tmp_path / "other", 10)
    saved(here, 10)
    saved(here, 99)  # never stored, before the other host took over
    write_writer(here, "r", 1)
    store_steps(run, tmp_path / "other", 20)
    assert fetch(run, here).position == CheckpointPosition(2, 20)
    assert held(here) == 20.0
    assert own_position(here, "r") == CheckpointPosition(2, 20)
    aside = here / "checkpoints.of-writer-1"
    assert [path.name for path in checkpoints.newest_first(aside)] == ["ckpt-000000000099", "ckpt-000000000010"]


def test_checkpoints_of_another_run_do_not_count(run, here, tmp_path):
    store_steps(run, tmp_path / "other", 10)
    saved(here, 500)
    write_writer(here, "another", 9)
    assert fetch(run, here).position == CheckpointPosition(1, 10)
    assert held(here) == 10.0


def test_a_checkpoint_that_goes_while_it_is_read(run, here, tmp_path, monkeypatch):
    writer = store_steps(run, tmp_path / "other", 1, 2)
    load = checkpoints.load

    def load_late(path, groups=None):
        if path.name.endswith("2") and path.parent.name == ".tmp-store":
            for step in (3, 4, 5):
                writer.store(saved(tmp_path / "other", step), step, {}, best=False, keep=2)
            (path / "meta.json").unlink()
        return load(path, groups)

    monkeypatch.setattr(checkpoints, "load", load_late)
    assert fetch(run, here).position == CheckpointPosition(1, 5)


def with_memories(run, folder, *steps, memory="replay", damage=None):
    """Store checkpoints with all replay memories, and damage one of the newest one in the store; return its name."""
    writer = store_steps(run, folder)
    for step in steps:
        into = folder / "checkpoints"
        replays = {
            name: checkpoints.save_replay(into, step, {name: np.full(8, step)}, name) for name in checkpoints.REPLAYS
        }
        path = checkpoints.save(into, step, {"main.online": {"w": np.full(8, step)}}, {}, keep=5, replays=replays)
        writer.store(path, step, checkpoints.replay_paths(path), best=step == steps[0], keep=5)
    name = f"r/checkpoints/000001-{steps[-1]:012d}/{memory}.npz"
    if damage is not None:
        run.objects.put(name, damage(run.objects.get(name)))
    return name


def test_a_replay_memory_comes_along(run, here, tmp_path):
    name = with_memories(run, tmp_path / "other", 1, 2)
    fetch(run, here)
    assert memories_in(here) == ["replay-000000000002-data.npz", "replay-000000000002.npz"]
    live, recorded = name, name.replace("replay.npz", "replay-data.npz")
    for stored, fetched in ((live, "replay-000000000002.npz"), (recorded, "replay-000000000002-data.npz")):
        assert (here / "checkpoints" / fetched).read_bytes() == run.objects.get(stored)


def memories_in(here):
    return sorted(path.name for path in (here / "checkpoints").rglob("replay*"))


@pytest.mark.parametrize(
    ("memory", "damage"), [("replay", _truncated), ("replay", _changed), ("replay-data", _changed)]
)
def test_a_checkpoint_with_a_damaged_memory_is_passed_over(run, here, tmp_path, memory, damage):
    with_memories(run, tmp_path / "other", 1, 2, memory=memory, damage=damage)
    fetched = fetch(run, here)
    assert fetched.position == CheckpointPosition(1, 1)
    assert [reason.rpartition("npz ")[2] for _, reason in fetched.rejected] == [
        "is not the one that the checkpoint's manifest names"
    ]
    assert memories_in(here) == ["replay-000000000001-data.npz", "replay-000000000001.npz"]


def test_a_memory_that_an_earlier_version_saved_is_left_out(run, here, tmp_path):
    """Its manifest does not name it, so that nothing says whether it is whole."""
    folder = tmp_path / "other"
    writer = store_steps(run, folder)
    checkpoints.save_replay(folder / "checkpoints", 1, {"m": np.zeros(8)})
    path = checkpoints.save(folder / "checkpoints", 1, {"main.online": {"w": np.zeros(8)}}, {}, keep=5)
    writer.store(path, 1, {"replay": checkpoints.replay_path(path)}, best=False, keep=5)
    name = "r/checkpoints/000001-000000000001/replay.npz"
    assert run.objects.get(name) is None
    run.objects.put(name, checkpoints.replay_path(path).read_bytes())  # as that version stored it
    told = []
    assert fetch_newest(run, here, [], told.append).position == CheckpointPosition(1, 1)
    assert told == [
        "checkpoint 000001-000000000001: its replay memory is left out; an earlier version saved it unverified"
    ]
    assert not memories_in(here)


def test_a_damaged_memory_of_the_directory_is_not_stored(run, tmp_path):
    recorded = checkpoints.save_replay(tmp_path, 1, {"m": np.zeros(8)})
    path = checkpoints.save(tmp_path, 1, {}, {}, keep=5, replays={"replay": recorded})
    checkpoints.replay_path(path).write_bytes(b"memory")
    writer = store_steps(run, tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"replay-000000000001\.npz is not as the manifest"):
        writer.store(path, 1, {"replay": checkpoints.replay_path(path)}, best=False, keep=5)
    assert run.look().newest is None


def test_names_that_lead_elsewhere_are_passed_over(run, here):
    if not run.objects.url.startswith("memory"):
        pytest.skip("a disk has no such names")
    for name in ("r/logs//etc/x.log", "r/logs/../x.log", "r/logs/a.log"):
        run.objects._files.store[f"/{run.objects.url.partition('://')[2]}/{name}"] = run.objects._files.open(
            "memory://x", "wb"
        )
    fetch_files(run, here, ["logs/"])
    assert [path.name for path in here.rglob("*") if path.is_file()] == ["a.log"]


def test_a_long_download_reports_its_progress(run, here, tmp_path, monkeypatch):
    store_steps(run, tmp_path / "other", 1)
    monkeypatch.setattr(fetching, "PATIENCE_S", 0.0)
    lines = []
    fetch_newest(run, here, (), lines.append)
    assert lines[-1].startswith("fetching checkpoint 000001-000000000001: 100% of ")
    assert lines[-1].endswith(" s left")
