import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from distrl.config.stop import StopConfig
from distrl.errors import ConfigError
from distrl.runs.summary import REASONS, PolicyLag, Summary, closing_text, conservation, duration

FIELDS = {
    "run_id": "20260102-030405-abcdef",
    "algorithm": "impala",
    "env": "CartPole-v1",
    "seed": 1,
    "env_steps": 412160,
    "updates": 201,
    "episodes": 4312,
    "mean_return_100": 487.25,
    "best_mean_return_100": 490.5,
    "wall_s": 9.84,
    "time_to_first_update_s": 3.2,
    "env_steps_per_s": 62057.3,
    "updates_per_s": 30.3,
    "trained_steps": 411648,
    "stop_reason": "mean_return",
    "exit_code": 0,
    "weights_version": 202,
    "produced": 207,
    "foreign": 0,
    "trained": 201,
    "queued": 3,
    "in_flight": 2,
    "dropped": {"stale": 1, "duplicate": 0, "decode": 0},
    "lost": 0,
    "rolled_back": 0,
    "policy_lag": {"mean": 1.24, "p95": 3, "max": 5},
    "bottleneck": "learner",
    "peak_rss_mb": {"learner": 812.5, "actor 0": 92.1},
    "restarts": 0,
}


def summary(**changes):
    return Summary.model_validate({**FIELDS, **changes})


def test_every_stop_condition_has_words():
    """Lists and sweeps take a run whose stop reason has none for one that was interrupted."""
    assert StopConfig.model_fields.keys() <= REASONS.keys()


def test_the_file_has_every_field_and_reads_back(tmp_path):
    path = tmp_path / "summary.json"
    summary().write(path)
    stored = json.loads(path.read_text())
    evaluations = ("evaluation_mean_return", "evaluation_env_steps", "best_evaluation_return")
    nothing = dict.fromkeys((*evaluations, "learner_idle_share", "actors_blocked_share", "error"))
    none = (
        "resumed_env_steps",
        "resumed_updates",
        "resumed_wall_s",
        "lost_to_failover",
        "failovers",
        "imbalance",
        "stored",
    )
    assert stored == {
        **FIELDS,
        **nothing,
        **dict.fromkeys(none, 0),
        "launch": "",
        "untracked": {},
        "other_evaluation_returns": {},
    }
    assert Summary.read(path) == summary()
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]  # nothing temporary is left


def test_writing_replaces_the_whole_file(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text("x" * 100_000)
    summary(seed=9).write(path)
    assert Summary.read(path).seed == 9


def test_unknown_numbers_are_null_and_never_nan(tmp_path):
    path = tmp_path / "summary.json"
    summary(mean_return_100=None, policy_lag=PolicyLag()).write(path)
    stored = json.loads(path.read_text())
    assert stored["mean_return_100"] is None
    assert stored["policy_lag"] == {"mean": None, "p95": None, "max": None}
    with pytest.raises(ValidationError, match="finite number"):
        summary(mean_return_100=float("nan"))


@pytest.mark.parametrize(
    ("text", "message"), [("{", "the file: Invalid JSON"), ("{}", "run_id: Field required"), (None, "cannot be read")]
)
def test_what_is_not_a_summary(tmp_path, text, message):
    path = tmp_path / "summary.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        Summary.read(path)


def test_the_conservation_law():
    assert summary().imbalance == 0
    assert conservation(summary()) == (
        "207 produced = 201 trained + 3 queued + 2 in flight + 1 dropped (stale 1) · exact"
    )
    off = summary(produced=1209, foreign=2, lost=1, rolled_back=7)
    assert off.imbalance == 1003
    assert conservation(off) == (
        "1,209 produced + 2 foreign = 201 trained + 3 queued + 2 in flight + 1 dropped (stale 1) + 1 lost "
        "· +1,003 unaccounted for; 7 rolled back"
    )


def test_fail_overs_of_redis_are_told():
    over = conservation(summary(produced=210, lost=3, lost_to_failover=2, failovers=1))
    assert " + 3 lost (2 to a fail-over of Redis) · exact; fail-overs of Redis: 1" in over


def test_closing_text_of_a_solved_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_dir = Path("runs/first")
    for folder in ("tensorboard", "checkpoints", "policy", "logs"):
        (run_dir / folder).mkdir(parents=True)
    (run_dir / "summary.json").touch()
    (run_dir / "metrics.csv").touch()
    assert closing_text(summary(), Path("runs/first")) == (
        "solved: the mean return asked for is reached (exit code 0)\n"
        "  return   487.2 mean of the last 100 of 4,312 episodes, best 490.5\n"
        "  speed    412,160 steps and 201 updates in 9.8 s; 62,057 steps/s while training\n"
        "  lag      1.2 updates mean, 5 max\n"
        "  unrolls  207 produced = 201 trained + 3 queued + 2 in flight + 1 dropped (stale 1) · exact\n"
        "  files    runs/first: summary.json, metrics.csv, tensorboard/, checkpoints/, policy/, logs/"
    )
    (run_dir / "tensorboard").rmdir()  # tensorboard.directory may be another one
    (run_dir / "summary.json").unlink()  # a full disk refused it
    (run_dir / "roles.csv").touch()
    (run_dir / "films").mkdir()
    files = "  files    runs/first: metrics.csv, roles.csv, checkpoints/, policy/, films/, logs/"
    assert closing_text(summary(), run_dir).splitlines()[-1] == files


def test_closing_text_of_a_refused_run_names_no_files_unless_a_checkpoint_is_there(tmp_path):
    for code in (2, 6):
        assert "files" in closing_text(summary(stop_reason="ended", exit_code=code, updates=0, produced=0), tmp_path)
    refused = summary(stop_reason="configuration", exit_code=2, accepted=False)
    assert "accepted" not in refused.model_dump_json()
    assert "files" not in closing_text(refused, tmp_path)
    (tmp_path / "checkpoints" / "ckpt-1").mkdir(parents=True)
    assert f"  files    {tmp_path}: " in closing_text(refused, tmp_path)


def test_closing_text_of_a_run_that_failed_at_once():
    failed = summary(
        **{"stop_reason": "stalled", "exit_code": 4, "mean_return_100": None, "best_mean_return_100": None},
        **{"episodes": 0, "policy_lag": {}},
    )
    lines = closing_text(failed, None).splitlines()
    assert lines[0] == "ended early: stalled (exit code 4)"
    assert lines[1] == "  return   no episode finished"
    assert lines[3] == "  lag      no unroll trained"
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("stop_reason", "exit_code", "told"),
    [
        ("Ctrl-C", 130, True),
        ("asked", 0, True),
        ("stalled", 4, True),
        ("updates", 1, True),  # its last updates could not be saved
        ("updates", 0, False),
    ],
)
def test_the_closing_lines_say_how_a_run_goes_on_that_was_not_done(tmp_path, stop_reason, exit_code, told):
    stopped, run_dir = summary(stop_reason=stop_reason, exit_code=exit_code), tmp_path / "my run"
    line = f"  go on    distrl train --resume '{run_dir}'"
    assert line not in closing_text(stopped, run_dir)  # there is no checkpoint
    (run_dir / "checkpoints" / "ckpt-000000000001").mkdir(parents=True)
    assert (closing_text(stopped, run_dir).splitlines()[-1] == line) == told


def test_the_closing_lines_name_the_newest_checkpoint_wherever_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_dir, folder = tmp_path / "run", tmp_path / "saved-by-distrl-run-x"
    for update, place in ((1, run_dir), (2, folder)):
        (place / "checkpoints" / f"ckpt-{update:012}").mkdir(parents=True)
        (place / "manifest.json").write_text('{"run_id": "r1"}')
    text = closing_text(summary(stop_reason="updates", exit_code=1), run_dir)
    assert text.splitlines()[-1] == f"  go on    distrl train --resume {folder}"


def test_a_goal_that_was_reached_is_not_called_early():
    text = closing_text(summary(stop_reason="updates", exit_code=1), None)
    assert text.startswith("the budget of updates is spent, but the run failed (exit code 1)\n")


def test_a_resumed_launch_counts_what_it_has_done_itself_and_tells_the_totals_apart():
    text = closing_text(summary(resumed_env_steps=400_000, resumed_updates=190), None)
    assert "  speed    12,160 steps and 11 updates in 9.8 s; 62,057 steps/s while training; " in text
    assert "with the earlier launches 412,160 steps and 201 updates\n" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.84, "9.8 s"),
        (9.97, "10.0 s"),
        (59.4, "59 s"),
        (59.6, "1:00"),
        (125, "2:05"),
        (3725, "1:02:05"),
        (172_799, "47:59:59"),
        (311_392, "3 d 14 h"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_evaluations_have_a_line_of_their_own():
    greedy = {"evaluation_mean_return": 481.0, "evaluation_env_steps": 400123, "best_evaluation_return": 495.5}
    text = closing_text(summary(stop_reason="evaluation_return", **greedy), None)
    assert text.startswith("solved: an evaluation reached the mean return asked for (exit code 0)\n")
    assert "\n  greedy   481.0 mean of the evaluation at 400,123 steps, best 495.5\n" in text
    assert "greedy" not in closing_text(summary(), None)
    assert "others" not in text
    found = summary(**greedy, other_evaluation_returns={"hard": 12.5, "never": None, "other": 200.0})
    told = "others   hard 12.5 · other 200.0, means of that evaluation in other environments"
    assert f"best 495.5\n  {told}\n" in closing_text(found, None)
    assert found.snapshot()["evaluation_in_hard_mean_return"] == 12.5
    assert "evaluation_in_never_mean_return" not in found.snapshot()


def test_the_closing_lines_tell_who_waited():
    text = closing_text(summary(learner_idle_share=0.02, actors_blocked_share=0.5), None)
    assert "\n  waits    learner 2%, actors 50% of the time\n" in text
    assert "waits" not in closing_text(summary(), None)
