"""RUN, RUN@STEP and RUN@best name checkpoints; a wrong name is one line with the steps that there are."""

from pathlib import Path

import numpy as np
import pytest

from distrl.data_store.checkpoints import load, mark_best, save, step_of
from distrl.data_store.named_checkpoints import CheckpointName, parse
from distrl.errors import CheckpointError, ConfigError


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints of updates 10 (the best) and 20, whose weights are these numbers."""
    for step in (10, 20):
        arrays = {"main.online": {"w": np.full(2, step, np.float32)}}
        save(tmp_path / "run" / "checkpoints", step, arrays, {}, keep=5, best=step == 10)
    return tmp_path / "run"


def weights(name):
    (number,) = set(load(parse(str(name)).find()).arrays["main.online"]["w"])
    return number


@pytest.mark.row("G23")
def test_saved_at_10_and_20_the_run_is_20_and_10_is_10(run):
    assert weights(run) == 20
    assert weights(f"{run}@10") == 10
    assert weights(f"{run}@20") == 20
    assert weights(f"{run}@best") == 10
    mark_best(parse(f"{run}@20").find())
    assert weights(f"{run}@best") == 20


def test_a_name_is_a_run_and_a_mark_unless_the_directory_has_it(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse("run") == CheckpointName(Path("run"))
    assert parse("run@007") == CheckpointName(Path("run"), 7)
    assert parse("run@best") == CheckpointName(Path("run"), "best")
    assert parse("run/@10") == CheckpointName(Path("run"), 10)
    assert [str(parse(name)) for name in ("run", "run@10", "run@best")] == ["run", "run@10", "run@best"]
    assert parse("me@home/run@10") == CheckpointName(Path("me@home/run"), 10)
    run.rename(tmp_path / "run@10")
    assert parse("run@10") == CheckpointName(Path("run@10"))
    assert parse("run@10@20") == CheckpointName(Path("run@10"), 20)


@pytest.mark.parametrize("mark", ["newest", "", "-1", "1e3", "٣"])
def test_a_mark_is_a_number_or_best(run, mark):
    with pytest.raises(ConfigError, match="does not exist; after a run's directory and @ comes a checkpoint's number"):
        parse(f"{run}@{mark}")


def test_an_unknown_step_names_those_that_there_are(run):
    with pytest.raises(ConfigError) as refused:
        parse(f"{run}@15").find()
    assert str(refused.value) == f"{run} has no checkpoint of update 15; there are 10, 20"
    for step in range(100, 130):
        save(run / "checkpoints", step, {}, {}, keep=99)
    with pytest.raises(ConfigError, match=r"there are 110, 111, .*, 129 and 12 earlier ones$"):
        parse(f"{run}@15").find()


def test_a_run_without_checkpoints_or_best_says_so(run, tmp_path):
    for name in (str(tmp_path / "no"), f"{tmp_path / 'no'}@10"):
        with pytest.raises(ConfigError, match="no has no checkpoint: there is none in"):
            parse(name).find()
    (run / "checkpoints" / "best").write_text("ckpt-1")
    with pytest.raises(CheckpointError, match="best is damaged: it names no checkpoint"):
        parse(f"{run}@best").find()
    (run / "checkpoints" / "best").unlink()
    with pytest.raises(ConfigError, match="has no best checkpoint: none is marked before 100 episodes"):
        parse(f"{run}@best").find()


def test_a_checkpoint_that_is_being_replaced_is_found(run):
    path = parse(f"{run}@20").find()
    path.rename(path.with_name(f"{path.name}.replaced"))
    assert step_of(parse(f"{run}@20").find()) == 20
    with pytest.raises(ValueError, match="does not have the name of a checkpoint"):
        step_of(run)
