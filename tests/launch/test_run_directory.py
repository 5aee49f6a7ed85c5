"""A run's directory is made, protected against a second run, and resumed only when there is something to resume."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distrl.data_store.checkpoints import save
from distrl.errors import CheckpointError, ConfigError
from distrl.launch.run_directory import Opened, open_run_directory, write_run_json
from distrl.metrics.runs import process_mark


def checkpoint(run_dir: Path, step: int, *, corrupt: bool = False) -> None:
    path = save(run_dir / "checkpoints", step, {"main.online": {"w": np.ones(2)}}, {"updates": step}, keep=5)
    if corrupt:
        file = path / "main.online.npz"
        file.write_bytes(file.read_bytes()[:-1])


def test_a_new_run_makes_its_directories_and_never_overwrites_another(tmp_path: Path):
    run = tmp_path / "run"
    with open_run_directory(run, None) as opened:
        assert opened == Opened()
        assert sorted(path.name for path in run.iterdir() if path.is_dir()) == ["checkpoints", "logs", "policy"]
        write_run_json(run, "r1", "unix:///x")
    with pytest.raises(ConfigError, match="already holds a run; add --resume auto"), open_run_directory(run, None):
        pass


def test_run_json_is_private_and_the_summary_of_an_earlier_launch_goes(tmp_path: Path):
    (tmp_path / "summary.json").write_text("{}")
    write_run_json(tmp_path, "r1", "redis://:secret@host")
    assert (tmp_path / "run.json").stat().st_mode & 0o777 == 0o600
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["run_id"], record["pid"], record["process"]) == ("r1", os.getpid(), process_mark(os.getpid()))
    assert not (tmp_path / "summary.json").exists()


def test_auto_starts_where_there_is_nothing_and_says_so(tmp_path: Path):
    with open_run_directory(tmp_path / "run", "auto") as opened:
        assert opened.notes == (f"no checkpoint in {tmp_path / 'run'}: starting from the beginning",)


def test_resuming_nothing_is_an_error_that_makes_nothing(tmp_path: Path):
    with (
        pytest.raises(CheckpointError, match=r"nothing to resume: .*typo holds no checkpoint"),
        open_run_directory(tmp_path / "typo", "typo"),
    ):
        pass
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("resume", ["auto", "DIR"])
def test_resume_names_the_checkpoint_and_what_it_passed_over(tmp_path: Path, resume):
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 20, corrupt=True)
    with open_run_directory(tmp_path, resume) as opened:
        passed, resumed = opened.notes
        assert passed.startswith("passed over ckpt-000000000020: ")
        assert "main.online.npz" in passed
        assert resumed == "resuming from ckpt-000000000010 (update 10)"


@pytest.mark.parametrize("resume", ["auto", "DIR"])
def test_a_training_whose_every_checkpoint_is_damaged_is_never_started_anew(tmp_path: Path, resume):
    checkpoint(tmp_path, 10, corrupt=True)
    with (
        pytest.raises(CheckpointError, match="holds checkpoints and none is valid; put a good one back") as caught,
        open_run_directory(tmp_path, resume),
    ):
        pass
    assert "ckpt-000000000010" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nobody_else_trains_in_it_until_its_process_has_ended(tmp_path: Path):
    checkpoint(tmp_path, 10)
    holder = "import sys; from pathlib import Path; from distrl.launch.run_directory import open_run_directory as o\n"
    holder += "with o(Path(sys.argv[1]), 'auto'): print('in', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        with pytest.raises(ConfigError, match="has not ended; stop it first: distrl stop "):  # noqa: SIM117
            with open_run_directory(tmp_path, "auto"):
                pass
        process.kill()
    with open_run_directory(tmp_path, "auto") as opened:
        (resumed,) = opened.notes
        assert resumed == "resuming from ckpt-000000000010 (update 10)"
