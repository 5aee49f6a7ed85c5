"""A start is planned once: which run, from which checkpoint, with which notes; a refused one makes nothing."""

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from distrl.config import RunConfig
from distrl.config.load import LoadedConfig
from distrl.data_store.checkpoints import save
from distrl.data_store.start_plan import StartPlan
from distrl.errors import CheckpointError, ConfigError
from distrl.launch.checks import Checked
from distrl.launch.start import _load, opened, plan_start
from distrl.runs.directories import RunRecord
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec("X", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})


@contextmanager
def started(run_dir: Path, resume: str | None = None, *, accepted: bool = True):
    """Start as `train` does before it launches, and yield the plan."""
    loaded = LoadedConfig.of(RunConfig())
    start = plan_start(loaded.config, run_dir, resume, "r1")
    with opened(start, Checked(loaded, SPEC, ()), lambda line: None) as (plan, _, trial):
        yield plan
        trial.accepted = accepted


def checkpoint(run_dir: Path, step: int, *, corrupt: bool = False) -> None:
    meta = {"updates": step, "env_steps": 10 * step, "wall_s": 1.5}
    path = save(run_dir / "checkpoints", step, {"main.online": {"w": np.ones(2)}}, meta, keep=5)
    if corrupt:
        file = path / "main.online.npz"
        file.write_bytes(file.read_bytes()[:-1])


def test_a_new_run(tmp_path):
    run = tmp_path / "run"
    with started(run) as plan:
        assert plan == StartPlan(notes=(f"run r1 in {run}",))
    assert {"config.yaml", "manifest.json", "run.lock", "logs", "checkpoints", "policy"} == {
        path.name for path in run.iterdir()
    }


def test_auto_starts_where_there_is_nothing_and_says_so(tmp_path):
    run = tmp_path / "run"
    with started(run, "auto", accepted=False) as plan:
        assert plan.kind == "new"
        assert plan.notes == (f"run r1 in {run}", f"no checkpoint in {run}: starting from the beginning")
    assert not run.exists()


def test_resuming_nothing_is_an_error_that_makes_nothing(tmp_path):
    typo = tmp_path / "some" / "typo"
    with (
        pytest.raises(CheckpointError, match=r"nothing to resume: .*typo holds no checkpoint"),
        started(typo, str(typo)),
    ):
        pass
    assert not (tmp_path / "some").exists()


@pytest.mark.parametrize("resume", ["auto", "DIR"])
def test_resume_names_the_checkpoint_and_what_it_passed_over(tmp_path, resume):
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 20, corrupt=True)
    with started(tmp_path, resume if resume == "auto" else str(tmp_path)) as plan:
        _, passed, resumed = plan.notes
        assert passed.startswith("passed over ckpt-000000000020: ")
        assert "main.online.npz" in passed
        assert resumed == "resuming from ckpt-000000000010 (update 10)"
        assert (plan.kind, plan.update, plan.env_steps, plan.wall_s) == ("resumed", 10, 100, 1.5)


@pytest.mark.parametrize("resume", ["auto", "DIR"])
def test_a_training_whose_every_checkpoint_is_damaged_is_never_started_anew(tmp_path, resume):
    checkpoint(tmp_path, 10, corrupt=True)
    with (
        pytest.raises(CheckpointError, match="holds checkpoints and none is valid; put a good one back") as caught,
        started(tmp_path, resume if resume == "auto" else str(tmp_path)),
    ):
        pass
    assert "ckpt-000000000010" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_is_checked_and_its_arrays_are_not_kept_while_the_run_trains(tmp_path):
    checkpoint(tmp_path, 10)
    for resume in ("auto", f"{tmp_path}@10"):
        loaded = _load(plan_start(RunConfig(), tmp_path, resume, None))
        assert (loaded.step, loaded.arrays) == (10, {})


def test_a_named_checkpoint_is_the_one_even_if_there_are_newer_ones(tmp_path):
    run, branch = tmp_path / "run", tmp_path / "branch"
    checkpoint(run, 10)
    checkpoint(run, 20)
    with started(branch, f"{run}@10") as plan:
        assert (plan.kind, plan.update) == ("branched", 10)
    with started(run, f"{run}@10") as plan:
        assert (plan.kind, plan.update, plan.back) == ("resumed", 10, None)
        assert plan.notes[1] == "resuming from ckpt-000000000010 (update 10)"
    assert (run / "after-10" / "checkpoints" / "ckpt-000000000020").is_dir()
    checkpoint(run, 10, corrupt=True)
    with pytest.raises(CheckpointError, match="ckpt-000000000010 is not valid"), started(run, f"{run}@10"):
        pass


def test_a_run_that_has_an_id_keeps_it(tmp_path):
    checkpoint(tmp_path, 10)
    (tmp_path / "run.json").write_text(RunRecord(run_id="r7", redis_url=None, pid=0).model_dump_json())
    assert plan_start(RunConfig(), tmp_path, "auto", None).run_id == "r7"
    with pytest.raises(ConfigError, match="has the id r7, not r1; leave --run-id out to resume it"):
        plan_start(RunConfig(), tmp_path, "auto", "r1")
