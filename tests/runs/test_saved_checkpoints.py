import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest

from distrl.data_store.checkpoints import mark_best, save
from distrl.runs.saved_checkpoints import commands, saved_checkpoints


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "run"
    for step in (10, 20, 30):
        meta = {"env_steps": 100 * step, "recent_returns": [1.0, 2.0], "evaluation_mean_return": float(step)}
        save(folder / "checkpoints", step, {"main.online": {"w": np.ones(step)}}, meta, keep=9, best=step == 20)
    return folder


def test_checkpoints_newest_first(run_dir):
    found = saved_checkpoints(run_dir)
    assert [(one.step, one.env_steps, one.is_newest, one.is_best) for one in found] == [
        (30, 3000, True, False),
        (20, 2000, False, True),
        (10, 1000, False, False),
    ]
    assert (found[0].mean_return, found[0].evaluation, found[0].problem) == (1.5, 30.0, "")
    folder = run_dir / "checkpoints" / "ckpt-000000000030"
    others = [path.stat().st_size for path in folder.iterdir() if path.name != "manifest.json"]
    assert found[0].size_bytes == sum(others)


def test_damaged_checkpoints_and_links(run_dir, tmp_path):
    folder = run_dir / "checkpoints"
    (folder / "ckpt-000000000010" / "meta.json").write_text("[]")
    (folder / "ckpt-000000000020" / "manifest.json").unlink()
    meta = folder / "ckpt-000000000030" / "meta.json"
    meta.rename(tmp_path / "meta.json")
    meta.symlink_to(tmp_path / "meta.json")
    (folder / "ckpt-000000000040").symlink_to(folder / "ckpt-000000000010")
    (folder / "best").unlink()
    (folder / "best").symlink_to("/etc/passwd")
    found = {one.step: one.problem for one in saved_checkpoints(run_dir)}
    assert found == {30: "damaged", 20: "a file is missing", 10: "damaged"}
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert saved_checkpoints(run_dir) == []


def test_a_pipe_does_not_hold_its_reader(run_dir):
    meta = run_dir / "checkpoints" / "ckpt-000000000030" / "meta.json"
    meta.unlink()
    os.mkfifo(meta)
    assert saved_checkpoints(run_dir)[0].problem == "damaged"


def test_odd_numbers_are_unknown(run_dir):
    meta = run_dir / "checkpoints" / "ckpt-000000000030" / "meta.json"
    meta.write_text(json.dumps({"env_steps": "x", "recent_returns": [None], "evaluation_mean_return": float("inf")}))
    found = saved_checkpoints(run_dir)[0]
    assert (found.env_steps, found.mean_return, found.evaluation, found.problem) == (None, None, None, "")


def test_no_checkpoints(tmp_path):
    assert saved_checkpoints(tmp_path) == []


def test_a_checkpoint_that_is_marked_later(run_dir):
    mark_best(run_dir / "checkpoints" / "ckpt-000000000010")
    assert [one.step for one in saved_checkpoints(run_dir) if one.is_best] == [10]


def test_commands_are_quoted():
    told = commands(Path("/runs/my run"), 1200, Path("/runs/new"))
    assert shlex.split(told["resume"]) == ["distrl", "train", "--resume", "/runs/my run@1200"]
    assert shlex.split(told["branch"]) == [*shlex.split(told["resume"]), "--run-dir", "/runs/new"]
    assert shlex.split(told["evaluate"]) == ["distrl", "evaluate", "/runs/my run@1200"]
    assert shlex.split(told["export"]) == ["distrl", "export", "/runs/my run@1200"]
    assert shlex.split(commands(Path("/r"), None, Path("/n"))["resume"]) == ["distrl", "train", "--resume", "/r"]


def test_numbers_of_hundreds_of_digits_are_unknown(run_dir):
    meta = run_dir / "checkpoints" / "ckpt-000000000030" / "meta.json"
    meta.write_text(json.dumps({"recent_returns": [10**400], "evaluation_mean_return": 10**400}))
    found = saved_checkpoints(run_dir)[0]
    assert (found.mean_return, found.evaluation) == (None, None)
