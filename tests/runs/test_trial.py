"""A run's directory after a launch that was refused: as it was, byte by byte."""

import os
from contextlib import contextmanager, nullcontext

import pytest

from distrl.data_store.atomic import put_file
from distrl.errors import ConfigError
from distrl.runs import trial
from distrl.runs.directories import RunRecord
from distrl.runs.run_directory import locked, require_free
from distrl.runs.trial import TAIL_BYTES, Trial
from tests.tree import tree


@pytest.fixture
def run_dir(tmp_path):
    """A run that has ended."""
    run = tmp_path / "run"
    for folder in ("logs", "policy", "checkpoints/ckpt-9", "tensorboard"):
        (run / folder).mkdir(parents=True)
    for name in ("config.yaml", "summary.json", "policy/graph.onnx", "checkpoints/best", "checkpoints/ckpt-9/state"):
        (run / name).write_text(f"old {name}\n")
    (run / "run.key").write_text("old key\n")
    (run / "run.key").chmod(0o600)
    (run / "run.lock").touch()
    (run / "metrics.csv").write_bytes(b"updates\n" + b"1\n" * TAIL_BYTES + b"torn")
    (run / "logs" / "events.log").write_text("old events\n")
    (run / "notes.txt").write_text("the operator's\n")
    (run / "logs" / "job.log").write_text("the job's\n")
    return run


def replace(path, text):
    new = path.with_name(".tmp-x")
    new.write_text(text)
    new.replace(path)


@contextmanager
def on_trial(run_dir, trial):
    with locked(run_dir) as made, trial.of(run_dir, new=made):
        yield


def launch(run):
    """Write as a launch does: replace, remove, append, cut a torn row off, move, and make."""
    replace(run / "config.yaml", "new")
    replace(run / "run.key", "a longer key\n")
    (run / "summary.json").unlink()
    with (run / "logs" / "events.log").open("a") as log:
        log.write("refused\n")
    os.truncate(run / "metrics.csv", (run / "metrics.csv").stat().st_size - 4)
    aside = run / "after-5"
    aside.mkdir()
    (run / "checkpoints" / "ckpt-9").rename(aside / "ckpt-9")
    (run / "policy" / "graph.onnx").rename(aside / "graph.onnx")
    replace(run / "policy" / "graph.onnx", "new")
    replace(run / "checkpoints" / "best", "ckpt-5\n")
    (run / "logs" / "actor-0.log").write_text("new")
    (run / "tensorboard" / "events.out.tfevents.7").write_text("new")


def test_what_a_refused_launch_has_written_is_undone(run_dir):
    before = tree(run_dir)
    with Trial(print).of(run_dir, new=frozenset()):
        launch(run_dir)
        assert tree(run_dir) != before
    assert tree(run_dir) == before


def test_what_an_accepted_launch_has_written_stays(run_dir):
    trial = Trial(print)
    with trial.of(run_dir, new=frozenset()):
        launch(run_dir)
        after = tree(run_dir)
        trial.accepted = True
    assert tree(run_dir) == after


def test_files_of_others_are_left_alone_also_where_they_change_meanwhile(run_dir):
    """Such as the log of a submitted job, to which the training prints why it is refused."""
    with Trial(print).of(run_dir, new=frozenset()):
        for name in ("notes.txt", "logs/job.log"):
            with (run_dir / name).open("a") as file:
                file.write("more\n")
        (run_dir / "job.json").write_text("{}")
    assert (run_dir / "notes.txt").read_text() == "the operator's\nmore\n"
    assert (run_dir / "logs" / "job.log").read_text() == "the job's\nmore\n"
    assert (run_dir / "job.json").exists()


def test_links_are_neither_followed_nor_written_to(run_dir, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "graph.onnx").write_text("another's")
    (run_dir / "films").symlink_to(tmp_path / "elsewhere")
    with Trial(print).of(run_dir, new=frozenset()):
        (tmp_path / "elsewhere" / "graph.onnx").write_text("another's, changed")
    assert (tmp_path / "elsewhere" / "graph.onnx").read_text() == "another's, changed"
    assert (run_dir / "films").is_symlink()


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "a note"])
def test_a_refused_new_run_leaves_what_was_there(tmp_path, there):
    run = tmp_path / "run"
    if there != "nothing":
        run.mkdir()
    if there == "a note":
        (run / "note.txt").write_text("keep\n")
    before = tree(tmp_path)
    with on_trial(run, Trial(print)):
        (run / "config.yaml").write_text("new")
        (run / "logs" / "learner.log").write_text("new")
    assert tree(tmp_path) == before


def test_a_new_run_is_not_begun_inside_another(run_dir):
    (run_dir / "run.json").write_text('{"tool": "another"}')
    require_free(run_dir / "checkpoints", None)
    (run_dir / "run.json").write_text(RunRecord(run_id="r", redis_url=None, pid=0).model_dump_json())
    for inside in (run_dir / "checkpoints", run_dir / "policy" / "deep"):
        with pytest.raises(ConfigError, match=f"lies in the directory of a run, {run_dir}; choose another --run-dir"):
            require_free(inside, None)
    require_free(run_dir.parent / "other", None)
    require_free(run_dir / "after-5", str(run_dir / "after-5"))  # what was set aside goes on there


def test_a_directory_whose_name_is_no_utf_8_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"odd\\udcff: the name is no UTF-8; choose another --run-dir"):
        require_free(tmp_path / "odd\udcff", None)


def test_a_run_that_trains_is_not_touched_by_a_launch_that_finds_its_lock(run_dir):
    with locked(run_dir):
        (run_dir / "config.yaml").write_text("of the run that trains")
        before = tree(run_dir)
        with pytest.raises(ConfigError, match="has not ended"), on_trial(run_dir, Trial(print)):
            pass
        assert tree(run_dir) == before


def test_what_others_make_meanwhile_stays(run_dir):
    others = ("films/mine.webm", "policy/notes.txt", "policy/graph.onnx.old", "tensorboard/mine")
    with on_trial(run_dir, Trial(print)):
        (run_dir / "films").mkdir()
        for name in others:
            (run_dir / name).write_text("of another")
        (run_dir / "logs" / "learner.log").write_text("new")
    assert {(run_dir / name).read_text() for name in others} == {"of another"}
    assert not (run_dir / "logs" / "learner.log").exists()


def test_checkpoints_that_were_set_aside_for_those_of_a_store_come_back(run_dir):
    before = tree(run_dir)
    with on_trial(run_dir, Trial(print)):
        (run_dir / "checkpoints").rename(run_dir / "checkpoints.of-writer-1")
        (run_dir / "checkpoints" / "ckpt-9").mkdir(parents=True)
        (run_dir / "checkpoints" / "ckpt-9" / "state").write_text("the store's, which is longer than before")
        (run_dir / "logs" / "events.log").unlink()
        (run_dir / "logs" / "events.log").write_text("the store's")
    assert tree(run_dir) == before


@pytest.mark.parametrize("raises", [True, False])
def test_a_disk_that_refuses_leaves_one_path_says_so_and_hides_no_error(run_dir, monkeypatch, raises):
    def full(path, *arguments, **options):
        if path.name == "config.yaml":
            raise OSError(28, "No space left on device")
        put_file(path, *arguments, **options)

    monkeypatch.setattr(trial, "put_file", full)
    summary = (run_dir / "summary.json").read_text()

    told = []

    def launch():
        with on_trial(run_dir, Trial(told.append)):
            for name in ("config.yaml", "summary.json"):
                (run_dir / name).unlink()
                (run_dir / name).write_text("new")
            if raises:
                raise ConfigError("refused")

    with pytest.raises(ConfigError, match="refused") if raises else nullcontext():
        launch()
    assert (run_dir / "summary.json").read_text() == summary
    assert told == [f"not put back as it was before this launch: {run_dir / 'config.yaml'}"]
