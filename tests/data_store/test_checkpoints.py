"""Checkpoints: what was saved comes back; what was damaged does not; a crash at any moment costs nothing."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from distrl.data_store import npz
from distrl.data_store.checkpoints import _Hashed, best_path, load, load_newest, newest_first, save
from distrl.errors import CheckpointError

META = {"updates": 7, "best": None, "applied": [[0, 1, 5]], "run_id": "r"}


def arrays(value=1.0):
    return {
        "main.online": {"dense/kernel": np.full((2, 3), value, "float32"), "dense/bias": np.arange(3.0)},
        "main.optimizer": {"iteration": np.int64(12)},
    }


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def steps(directory):
    return [int(name.removeprefix("ckpt-")) for name in names(directory) if name.startswith("ckpt-")]


def value_of(loaded):
    return float(loaded.arrays["main.online"]["dense/kernel"][0, 0])


def test_the_size_of_a_memory_counts_bytes():
    file = io.BytesIO()
    hashed = _Hashed(file)
    hashed.write(memoryview(np.zeros((2, 3), "float32")))
    assert hashed.bytes == len(file.getvalue()) == 24


@pytest.mark.row("Q07")
def test_round_trip(tmp_path):
    path = save(tmp_path / "checkpoints", 42, arrays(0.5), META, keep=5)
    assert path == tmp_path / "checkpoints" / "ckpt-000000000042"
    loaded = load_newest(tmp_path / "checkpoints")
    assert (loaded.step, loaded.meta, loaded.path, loaded.rejected) == (42, META, path, [])
    assert {group: list(named) for group, named in loaded.arrays.items()} == {
        "main.online": ["dense/kernel", "dense/bias"],
        "main.optimizer": ["iteration"],
    }
    np.testing.assert_array_equal(loaded.arrays["main.online"]["dense/kernel"], np.full((2, 3), 0.5, "float32"))
    assert loaded.arrays["main.optimizer"]["iteration"] == 12
    assert loaded.arrays["main.optimizer"]["iteration"].dtype == np.int64


def test_manifest_names_libraries_sizes_and_hashes(tmp_path):
    path = save(tmp_path, 1, arrays(), META, keep=1)
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["schema_version"] == 1
    assert manifest["libraries"]["numpy"] == np.__version__
    assert manifest["libraries"]["python"] == sys.version.split()[0]
    assert sorted(manifest["files"]) == ["main.online.npz", "main.optimizer.npz", "meta.json"]
    assert manifest["files"]["meta.json"]["bytes"] == (path / "meta.json").stat().st_size
    assert len(manifest["files"]["main.online.npz"]["sha256"]) == 64


def test_numpy_reads_a_group(tmp_path):
    path = save(tmp_path, 1, arrays(2.0), META, keep=1)
    with np.load(path / "main.online.npz", allow_pickle=False) as group:
        assert group["dense/kernel"].sum() == 12.0


@pytest.mark.row("Q01")
def test_seven_saves_keep_five_and_the_best(tmp_path):
    for step in range(1, 8):
        save(tmp_path, step, arrays(step), META, keep=5, best=step == 1)
    assert steps(tmp_path) == [1, 3, 4, 5, 6, 7]
    assert best_path(tmp_path) == tmp_path / "ckpt-000000000001"
    assert value_of(load(best_path(tmp_path))) == 1.0
    save(tmp_path, 8, arrays(8), META, keep=5, best=True)
    assert steps(tmp_path) == [4, 5, 6, 7, 8]
    assert best_path(tmp_path) == tmp_path / "ckpt-000000000008"


def test_nothing_there(tmp_path):
    assert load_newest(tmp_path / "missing") is None
    assert load_newest(tmp_path) is None
    assert best_path(tmp_path) is None


@pytest.mark.parametrize("mark", [b"", b"\xff\n", b"../ckpt-000000000001\n"])
def test_a_damaged_mark_of_the_best_is_no_mark(tmp_path, mark):
    save(tmp_path, 1, arrays(), META, keep=1, best=True)
    (tmp_path / "best").write_bytes(mark)
    assert best_path(tmp_path) is None
    save(tmp_path, 2, arrays(), META, keep=1)
    assert steps(tmp_path) == [2]


@pytest.mark.row("G13")
@pytest.mark.parametrize("keep", [1, 2])
def test_two_saves_are_as_many_as_are_kept(tmp_path, keep):
    for step in (3, 4):
        save(tmp_path, step, arrays(float(step)), META, keep=keep)
    assert steps(tmp_path) == [3, 4][-keep:]
    assert value_of(load_newest(tmp_path)) == 4.0


def test_the_same_step_is_replaced(tmp_path):
    save(tmp_path, 3, arrays(1.0), META, keep=2)
    save(tmp_path, 3, arrays(2.0), META, keep=2)
    assert names(tmp_path) == ["ckpt-000000000003"]
    assert value_of(load_newest(tmp_path)) == 2.0


def test_steps_beyond_the_one_saved_do_not_count_as_kept(tmp_path):
    """After a fall back to step 5, a damaged 9 is still there; saving 6 with keep=1 must not remove 6."""
    save(tmp_path, 5, arrays(5), META, keep=2)
    damaged = save(tmp_path, 9, arrays(9), META, keep=2)
    (damaged / "meta.json").unlink()
    save(tmp_path, 6, arrays(6), META, keep=1)
    assert steps(tmp_path) == [6, 9]
    assert load_newest(tmp_path).step == 6


# --- damage -----------------------------------------------------------------------------------------------------------


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def edit(change):
    def edited(path):
        manifest = json.loads(path.read_text())
        change(manifest)
        path.write_text(json.dumps(manifest))

    return edited


DAMAGE = {
    "a flipped bit": ("main.online.npz", flip, "main.online.npz does not match its sha256"),
    "a flipped bit in meta": ("meta.json", flip, "meta.json does not match its sha256"),
    "cut short": ("main.online.npz", lambda path: os.truncate(path, 100), "main.online.npz has 100 bytes instead of"),
    "longer": ("meta.json", lambda path: path.write_bytes(path.read_bytes() + b" "), "meta.json has more bytes"),
    "a file is gone": ("main.optimizer.npz", Path.unlink, "No such file"),
    "no manifest": ("manifest.json", Path.unlink, "No such file"),
    "an empty manifest": ("manifest.json", lambda path: os.truncate(path, 0), "Expecting value"),
    "a manifest of zeros": ("manifest.json", lambda path: path.write_bytes(bytes(500)), "Expecting value"),
    "another manifest": ("manifest.json", lambda path: path.write_text("[]"), "list indices"),
    "files as a list": ("manifest.json", edit(lambda m: m.update(files=["meta.json"])), "no attribute 'items'"),
    "no meta": ("manifest.json", edit(lambda m: m["files"].pop("meta.json")), "KeyError: 'meta.json'"),
    "another schema": ("manifest.json", edit(lambda m: m.update(schema_version=2)), "schema version 2"),
    "another step": ("manifest.json", edit(lambda m: m.update(step=8)), "that of step 8"),
    "outside": (
        "manifest.json",
        edit(lambda m: m["files"].update({"../../x.npz": {}})),
        "no checkpoint has: '../../x.npz'",
    ),
}


@pytest.mark.row("D26")
@pytest.mark.parametrize("name", DAMAGE)
def test_damage_falls_back_to_the_one_before(tmp_path, name):
    save(tmp_path, 1, arrays(1.0), META, keep=5)
    damaged = save(tmp_path, 2, arrays(2.0), META, keep=5)
    file, damage, reason = DAMAGE[name]
    damage(damaged / file)
    with pytest.raises(CheckpointError, match=rf"^checkpoint {damaged} is not valid: [^\n]*{reason}") as raised:
        load(damaged)
    loaded = load_newest(tmp_path)
    assert (loaded.step, value_of(loaded)) == (1, 1.0)
    assert loaded.rejected == [(damaged, str(raised.value))]


def test_all_damaged_is_an_error_with_every_reason(tmp_path):
    for step in (1, 2):
        (save(tmp_path, step, arrays(), META, keep=5) / "meta.json").unlink()
    with pytest.raises(CheckpointError, match=r"ckpt-000000000002 is not valid: .*; .*ckpt-000000000001 is not valid"):
        load_newest(tmp_path)


def test_an_array_of_objects_is_refused_although_its_hash_is_right(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "encode", forged_encode)
    path = save(tmp_path, 1, {"main.online": {"a": np.array([{}], object)}}, META, keep=1)
    with pytest.raises(CheckpointError, match="array 'a' has dtype object"):
        load(path)


def forged_encode(named):
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **named)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arrays": {"Main": {}}}, "lower-case words"),
        ({"arrays": {"../main": {}}}, "lower-case words"),
        ({"arrays": {"main": {"a": np.array([None])}}}, "dtype object"),
        ({"arrays": {"main": {"../a": np.zeros(1)}}}, "'../a' is not made of"),
        ({"meta": {"loss": float("nan")}}, "not JSON compliant"),
        ({"step": -1}, "step -1"),
        ({"keep": 0}, "keep 0"),
    ],
)
def test_what_cannot_be_saved_leaves_nothing_behind(tmp_path, given, message):
    arguments = {"step": 1, "arrays": arrays(), "meta": META, "keep": 1} | given
    with pytest.raises(ValueError, match=message):
        save(tmp_path, **arguments)
    assert names(tmp_path) == []


# --- crashes ----------------------------------------------------------------------------------------------------------

CRASHING_SAVES = textwrap.dedent(
    """
    import os, shutil, signal, sys
    from pathlib import Path
    import numpy as np
    from distrl.data_store import checkpoints

    directory, step = Path(sys.argv[1]), int(sys.argv[2])
    calls = 0

    def dying(call, when):
        def wrapped(*args, **kwargs):
            global calls
            calls += 1
            if calls == when:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)
        return wrapped

    def save(when):
        os.fsync, os.rename, os.replace = (dying(call, when) for call in (os.fsync, os.rename, os.replace))
        shutil.rmtree = dying(shutil.rmtree, when)
        arrays = {"main": {"weight": np.full(1000, 2.0)}}
        checkpoints.save(directory / str(when), step, arrays, {"updates": 2}, keep=1, best=True)
        return calls

    for when in range(1, 30):
        child = os.fork()
        if child == 0:
            os._exit(save(when))
        status = os.waitpid(child, 0)[1]
        print(status)
        if os.WIFEXITED(status):
            break
    """
)


def crashes(directory, step):
    """Return how processes ended that save value 2.0 in folders 1, 2, …; the last one survives.

    Each meets kill -9 before its call of this number that changes the disk. The exit code is the number of calls.
    """
    root = Path(__file__).parents[2]
    command, environment = [sys.executable, "-c", CRASHING_SAVES, str(directory), str(step)], {"PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(status) for status in done.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 1], ids=["a new step", "the same step again"])
def test_kill_at_any_moment_of_a_save(tmp_path, step):
    """Fills the disk, then dies before the first, second, … fsync, rename or removal until a save survives."""
    for when in range(1, 30):
        save(tmp_path / str(when), 1, {"main": {"weight": np.full(1000, 1.0)}}, {"updates": 1}, keep=1, best=True)
    *killed, survived = crashes(tmp_path, step)
    assert killed == [signal.SIGKILL] * len(killed)
    assert os.WEXITSTATUS(survived) == len(killed) > 8  # every one of the calls has been the last one
    for when in range(1, len(killed) + 2):
        directory = tmp_path / str(when)
        loaded = load_newest(directory)
        value = loaded.arrays["main"]["weight"][0]
        assert (value, loaded.meta["updates"], loaded.rejected) in [(1.0, 1, []), (2.0, 2, [])]
        if when <= len(killed):
            assert best_path(directory).is_dir()
            save(directory, 3, {"main": {"weight": np.full(1000, 3.0)}}, {}, keep=1, best=True)
            assert names(directory) == ["best", "ckpt-000000000003"]
    assert value == 2.0


def test_single_groups_are_read_alone(tmp_path):
    for step in (1, 2):
        path = save(tmp_path, step, arrays(step), META, keep=5)
    (path / "main.optimizer.npz").write_bytes(b"damaged")
    assert load(path, ()).arrays == {}
    assert load(path, ()).meta == META
    found = load(path, ["main.online", "other.online"])
    assert (list(found.arrays), value_of(found)) == (["main.online"], 2.0)
    with pytest.raises(CheckpointError, match=r"main\.optimizer\.npz"):
        load(path)
    assert [each.name[-1] for each in newest_first(tmp_path)] == ["2", "1"]
    assert newest_first(tmp_path / "none") == []
