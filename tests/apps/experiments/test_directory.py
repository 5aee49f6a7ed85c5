import fcntl
import json
import os
from dataclasses import replace

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.experiments import directory as module
from distrl.apps.experiments.directory import RunResult, SweepDirectory, SweepRun, read_file
from distrl.apps.experiments.sweep import Planned, Sweep
from distrl.errors import ConfigError, DistrlError
from distrl.runs.summary import Summary

PLANNED = Planned(3, {"a": 1}, 2)
SWEEP = Sweep(vary={"network.learning_rate": [1e-4, 1e-3]}, seeds=(1, 2))


@pytest.fixture
def place(tmp_path):
    return SweepDirectory(tmp_path / "sweep")


def finish(place, **changes):
    """A run's summary."""
    facts = {
        **{"run_id": "x", "algorithm": "ppo", "env": "E-v0", "seed": 2, "env_steps": 500, "updates": 5, "episodes": 9},
        **{"mean_return_100": 12.5, "best_mean_return_100": 13.0, "wall_s": 4.0, "time_to_first_update_s": 1.0},
        **{"env_steps_per_s": 1.0, "updates_per_s": 1.0, "trained_steps": 500, "stop_reason": "env_steps"},
        **{"exit_code": 0, "weights_version": 5, "produced": 5, "foreign": 0, "trained": 5, "queued": 0},
        **{"in_flight": 0, "dropped": {}, "lost": 0, "rolled_back": 0, "policy_lag": {}, "bottleneck": "actors"},
        **{"peak_rss_mb": {}, "restarts": 0, **changes},
    }
    place.run(PLANNED).mkdir(parents=True, exist_ok=True)
    Summary(**facts).write(place.run(PLANNED) / "summary.json")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, RunResult("done", 500, 4.0, 12.5)),
        ({"evaluation_mean_return": 14.0, "resumed_wall_s": 3.0}, RunResult("done", 500, 7.0, 14.0, is_evaluated=True)),
        ({"stop_reason": "asked"}, RunResult("done", 500, 4.0, 12.5)),
        ({"stop_reason": "SIGTERM"}, RunResult("interrupted", 500, 4.0, 12.5, "SIGTERM")),
        ({"stop_reason": "Ctrl-C", "exit_code": 130}, RunResult("interrupted", 500, 4.0, 12.5, "Ctrl-C")),
        (
            {"stop_reason": "the learner failed", "exit_code": 3, "error": "not finite", "mean_return_100": None},
            RunResult("failed", 500, 4.0, None, "not finite"),
        ),
    ],
)
def test_the_outcome_is_that_of_the_runs_own_summary(place, changes, expected):
    finish(place, **changes)
    assert place.outcome(PLANNED) == expected


def test_a_run_without_a_summary_was_interrupted_or_has_not_begun(place):
    assert place.outcome(PLANNED) == RunResult("waiting")
    place.run(PLANNED).mkdir(parents=True)
    assert place.outcome(PLANNED) == RunResult("interrupted")
    (place.run(PLANNED) / "summary.json").write_text("{")
    assert place.outcome(PLANNED) == RunResult("interrupted")


def test_what_is_created_is_read_back(place):
    base = load(flags={"--env": "CartPole-v1"}, sets=["stop.env_steps=100"])
    place.create(SWEEP, base)
    assert place.exists
    assert read_file(place.file, Sweep) == (SWEEP, {})
    assert load(file=place.base).config == base.config
    assert (place.base.stat().st_mode & 0o777) == 0o600  # as config.yaml of a run: it may hold secrets


def test_a_folder_with_other_files_is_refused(place):
    place.path.mkdir()
    (place.path / "mine.txt").touch()
    with pytest.raises(ConfigError, match="is not empty; choose another --dir"):
        place.create(SWEEP, load())
    with pytest.raises(ConfigError, match=r"Not a directory; choose another --dir"):
        SweepDirectory(place.path / "mine.txt" / "sweep").create(SWEEP, load())


def test_a_creation_that_was_interrupted_is_done_again(place):
    (place.path / "logs").mkdir(parents=True)
    for name in ("base.yaml", "sweep.lock", ".tmp-sweep.yaml"):
        (place.path / name).touch()
    place.create(SWEEP, load())
    assert place.exists


def test_the_cause_is_in_the_output_of_this_launch(place):
    place.create(SWEEP, load())
    log = place.log(PLANNED)
    assert place.log_bytes(PLANNED) == 0
    log.write_text("distrl: error: of an earlier launch\n")
    start = place.log_bytes(PLANNED)
    assert place.cause(PLANNED, 1, start) == f"exit code 1; its output is in {log}"
    with log.open("a") as file:
        file.write("noise\ndistrl: error: no such \x1b[31mthing\nmore noise\n")
    assert place.cause(PLANNED, 2, start) == "no such ?[31mthing"
    assert place.cause(PLANNED, -9, start) == "killed by signal 9"


def test_the_list_has_every_run_and_the_time(place):
    place.create(SWEEP, load())
    assert place.index() == ([], 0.0)
    place.write_index([SweepRun(PLANNED, RunResult("failed", 10, 2.04, None, "it broke"))], 1.5)
    tree = json.loads((place.path / "sweep.json").read_text())
    assert tree == {
        "format": 1,
        "minutes": 1.5,
        "planned": None,
        "runs": [
            {
                **{"run": "0003", "seed": 2, "settings": {"a": 1}, "state": "failed", "mean_return": None},
                **{"env_steps": 10, "wall_s": 2.0, "error": "it broke"},
            }
        ],
    }
    # It failed before it left a summary, which nothing but the list knows; later its own summary counts.
    failed = RunResult("failed", error="it broke")
    assert place.index() == ([SweepRun(PLANNED, failed)], 1.5)
    finish(place)
    assert place.index() == ([SweepRun(PLANNED, RunResult("done", 500, 4.0, 12.5))], 1.5)
    (place.path / "sweep.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"sweep\.json is damaged"):
        place.index()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file: Invalid JSON"),
        ("7", "the file: Input should be an object"),
        ('{"runs": [{"run": "x"}]}', "runs.0.run: String should match pattern"),
        ('{"runs": [{"run": "0001", "seed": "one"}]}', "runs.0.seed: Input should be a valid integer"),
        ('{"runs": [{"run": "0001", "settings": [1]}]}', "runs.0.settings: Input should be an object"),
        ('{"runs": [{"run": "0001", "error": {}}]}', "runs.0.error: Input should be a valid string"),
        ('{"runs": [], "minutes": NaN}', "minutes: Input should be a finite number"),
        ('{"runs": [], "minutes": -1}', "minutes: Input should be greater than or equal to 0"),
        ("[" * 10_000, "the file: Invalid JSON"),
    ],
)
def test_a_damaged_list_is_one_line(place, text, told):
    place.create(SWEEP, load())
    (place.path / "sweep.json").write_text(text)
    with pytest.raises(ConfigError) as refused:
        place.index()
    assert str(refused.value).startswith(f"{place.path}/sweep.json: file sweep.json is damaged: {told}")
    assert str(refused.value).endswith("; restore it, or remove it: the runs stay")


def test_without_a_list_the_runs_that_have_a_directory_have_begun(place):
    place.create(SWEEP, load())
    finish(place)
    planned = [replace(PLANNED, number=number) for number in (1, 2, 3, 4)]
    (place.path / "0001").mkdir()
    assert place.index(planned) == (
        [SweepRun(planned[0], RunResult("interrupted")), SweepRun(planned[2], RunResult("done", 500, 4.0, 12.5))],
        0.0,
    )


def test_the_end_of_a_sweep_names_checkpoints_that_lie_elsewhere(place, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_dir, folder, said = place.run(PLANNED), tmp_path / "saved-by-distrl-0003-x", []
    with place.locked(said.append):
        for update, saved in ((1, run_dir), (2, folder)):
            (saved / "checkpoints" / f"ckpt-{update:012}").mkdir(parents=True)
            (saved / "manifest.json").write_text('{"run_id": "r1"}')
    how = f"cp -r {folder}/checkpoints {run_dir}"
    assert said == [f"run 0003: its newest checkpoint is in {folder}; it goes on from there after: {how}"]


def test_a_full_disk_is_one_line_that_says_how_to_go_on(place, monkeypatch):
    place.create(SWEEP, load())

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "put_file", full)
    with pytest.raises(DistrlError, match=r"No space left on device; make room and go on with: distrl sweep .*/sweep$"):
        place.write_index([], 0.0)


def test_a_second_launch_waits_for_the_lock_and_then_says_so(place, monkeypatch):
    place.create(SWEEP, load())
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    said = []
    refused = pytest.raises(ConfigError, match="another process works on the sweep")
    with place.locked(said.append), refused, place.locked(said.append):
        pass
    assert said == ["waiting for the runs of an earlier launch to end …"]
    with place.locked(said.append) as lock:
        assert os.fstat(lock).st_ino == (place.path / "sweep.lock").stat().st_ino
        with (place.path / "sweep.lock").open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_file_has_what_varies_and_what_runs_share(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text("preset: cartpole-ppo\nset: {stop.env_steps: 9}\nvary: {network.learning_rate: [1e-3, 1e-4]}\n")
    described, shared = read_file(file, Sweep)
    assert described.vary["network.learning_rate"].values == (1e-3, 1e-4)
    assert shared == {"preset": "cartpole-ppo", "set": {"stop.env_steps": 9}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff", "is not UTF-8 text"),
        (b"vary: [1", "sweep.yaml"),
        (b"[1]", "sweep.yaml"),
        (b"budjet: {}", "did you mean budget"),
        (b"preset: 5", "preset .* must be a name, not 5"),
        (b"config: ''", "config .* must be a name, not ''"),
        (None, "name the file of a sweep, or a sweep's directory"),
    ],
)
def test_bad_files_are_one_line(tmp_path, content, told):
    file = tmp_path / "sweep.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=told) as caught:
        read_file(file, Sweep)
    assert "\n" not in str(caught.value)
