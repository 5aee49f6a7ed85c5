"""A run's directory is made, and protected against a second run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distrl.data_store.checkpoints import save
from distrl.errors import ConfigError, naming
from distrl.runs.directories import process_mark
from distrl.runs.run_directory import (
    branches,
    is_directory_of,
    locked,
    named_directory,
    require_free,
    run_id_of,
    run_to_resume,
    usable,
    write_run_json,
)


def checkpoint(run_dir: Path, step: int) -> None:
    save(run_dir / "checkpoints", step, {"main.online": {"w": np.ones(2)}}, {"updates": step}, keep=5)


def test_a_new_run_makes_its_directories_and_never_overwrites_another(tmp_path: Path):
    run = tmp_path / "run"
    with locked(run) as made:
        assert made == {run, *(run / name for name in ("checkpoints", "logs", "policy", "run.lock"))}
        assert sorted(path.name for path in run.iterdir() if path.is_dir()) == ["checkpoints", "logs", "policy"]
        write_run_json(run, "r1", "a", "unix:///x")
    with pytest.raises(ConfigError, match="already holds a run; add --resume auto"):
        require_free(run, None)


def test_run_json_is_private_and_the_summary_of_an_earlier_launch_goes(tmp_path: Path):
    (tmp_path / "summary.json").write_text("{}")
    write_run_json(tmp_path, "r1", "a", "redis://host")
    assert (tmp_path / "run.json").stat().st_mode & 0o777 == 0o600
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["run_id"], record["launch"]) == ("r1", "a")
    assert (record["pid"], record["process"]) == (os.getpid(), process_mark(os.getpid()))
    assert not (tmp_path / "summary.json").exists()


def test_a_directory_is_that_of_its_newest_launch(tmp_path: Path):
    assert (run_id_of(tmp_path), is_directory_of(tmp_path, "r1", "a")) == (None, False)
    write_run_json(tmp_path, "r1", "a", None)
    assert run_id_of(tmp_path) == "r1"
    found = [is_directory_of(tmp_path, *named) for named in (("r1", "a"), ("r1", "b"), ("r2", "a"))]
    assert found == [True, False, False]
    (tmp_path / "run.json").write_text("{")
    assert not is_directory_of(tmp_path, "r1", "a")
    with pytest.raises(ConfigError, match=r"run\.json is damaged"):
        run_id_of(tmp_path)


def test_nobody_else_trains_in_it_until_its_process_has_ended(tmp_path: Path):
    checkpoint(tmp_path, 10)
    holder = "import sys; from pathlib import Path; from distrl.runs.run_directory import locked\n"
    holder += "with locked(Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        with pytest.raises(ConfigError, match="has not ended; stop it first: distrl stop "):  # noqa: SIM117
            with locked(tmp_path):
                pass
        process.kill()
    with locked(tmp_path) as made:
        assert not made


def test_without_its_lock_file_a_run_is_protected_all_the_same(tmp_path: Path):
    with locked(tmp_path):
        (tmp_path / "run.lock").unlink()
        for refused in (lambda: require_free(tmp_path, "auto"), lambda: locked(tmp_path).__enter__()):
            with pytest.raises(ConfigError, match="has not ended; stop it first: distrl stop "):
                refused()
    require_free(tmp_path, "auto")
    assert not (tmp_path / "run.lock").exists()  # to look changes nothing


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "file") for name in ("metrics.csv", "run.lock", "config.yaml", "logs/events.log", "logs/learner.log")),
        *((name, "folder") for name in ("checkpoints", "policy", "logs")),
    ],
)
def test_what_has_the_place_of_a_file_or_a_folder_is_named_before_anything_is_done(tmp_path: Path, name, kind):
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    place.mkdir() if kind == "file" else place.write_text("")
    with pytest.raises(ConfigError) as told:
        require_free(tmp_path, "auto")
    assert str(told.value) == f"{place} is not a {kind}; move it away, or mend it"


def test_a_disk_that_refuses_at_the_start_is_an_error_of_one_line_with_the_path(tmp_path: Path):
    with pytest.raises(ConfigError) as told, usable(tmp_path), naming(tmp_path / "config.yaml"):
        raise OSError(28, "No space left on device")  # as write() does, without a path
    where = tmp_path / "config.yaml"
    assert str(told.value) == f"{where} cannot be used: No space left on device; choose another --run-dir, or mend it"


def test_a_named_checkpoint_must_be_there(tmp_path: Path):
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 20)
    with pytest.raises(ConfigError, match="has no checkpoint of update 15; there are 10, 20"):
        require_free(tmp_path, f"{tmp_path}@15")


def test_a_new_run_begins_with_a_named_checkpoint_of_another_only_where_there_is_none(tmp_path: Path):
    run, other = tmp_path / "run", tmp_path / "other"
    checkpoint(run, 10)
    assert (branches(other, f"{run}@10"), branches(run, f"{run}@10"), branches(run, str(run))) == (True, False, False)
    checkpoint(other, 3)
    with pytest.raises(ConfigError, match="other already holds checkpoints; choose another --run-dir"):
        require_free(other, f"{run}@10")
    write_run_json(other, "r1", "a", None)
    with pytest.raises(ConfigError, match="other already holds a run; add --resume auto"):
        require_free(other, f"{run}@10")
    assert (named_directory(other, f"{run}@10"), named_directory(None, f"{run}@10")) == (other, run)
    assert (run_to_resume(other, f"{run}@10"), run_to_resume(other, "auto"), run_to_resume(other, None)) == (
        run,
        other,
        None,
    )
