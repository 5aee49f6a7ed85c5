import pytest

from distrl.errors import ConfigError
from distrl.runs.directories import open_run
from distrl.runs.listing import entry, entry_name, ordered, selected
from tests.run_folders import make_run

DEAD = 2**22 + 1  # beyond what Linux gives out


def listed(folder, **told):
    return entry(open_run(make_run(folder, **told)), folder.name)


def test_a_run_that_ended_is_told_by_its_summary(tmp_path):
    one = listed(tmp_path / "a", rows=())
    assert (one.name, one.state, one.outcome, one.exit_code) == ("a", "ended", "solved", 0)
    assert (one.env, one.algorithm, one.seed) == ("CartPole-v1", "impala", 1)
    assert (one.env_steps, one.mean_return_100, one.best_mean_return_100) == (3000, 20.0, 25.0)
    assert (one.env_steps_per_s, one.wall_s, one.started) == (62057.3, 9.84, 1000.0)
    assert (one.policy_lag_mean, one.policy_lag_max, one.bottleneck) == (1.24, 5, "learner")
    assert (one.time_to_first_update_s, one.peak_rss_mb) == (3.2, 905.0)


def test_a_resumed_run_is_listed_with_the_steps_and_the_time_of_all_launches(tmp_path):
    one = listed(tmp_path / "a", summary={"resumed_env_steps": 1000, "resumed_wall_s": 100.0}, rows=())
    assert (one.env_steps, one.wall_s, one.env_steps_per_s) == (3000, 109.84, 62057.3)


def test_a_run_that_goes_on_is_told_by_its_last_row_and_its_manifest(tmp_path):
    one = listed(tmp_path / "a", summary=None, manifest={})
    assert (one.state, one.outcome, one.exit_code) == ("running", "running", None)
    assert (one.env, one.algorithm, one.seed) == ("Acrobot-v1", "ppo", 7)
    assert (one.env_steps, one.updates, one.episodes) == (3000, 30, 50)
    assert (one.mean_return_100, one.best_mean_return_100, one.env_steps_per_s, one.wall_s) == (20.0, 20.0, 1000.0, 3.5)
    assert (one.policy_lag_mean, one.policy_lag_max, one.bottleneck) == (1.5, 4.0, "actors")
    assert (one.time_to_first_update_s, one.peak_rss_mb) == (None, None)


def test_a_run_that_is_gone_has_no_speed(tmp_path):
    one = listed(tmp_path / "a", summary=None, pid=DEAD)
    assert (one.state, one.env_steps, one.env_steps_per_s, one.env) == ("gone", 3000, None, None)


def test_a_run_before_its_first_row(tmp_path):
    one = listed(tmp_path / "a", summary=None, rows=(), started=0.0)
    assert (one.env_steps, one.mean_return_100, one.bottleneck, one.started) == (None, None, None, None)


@pytest.mark.parametrize(
    ("summary", "outcome", "kinds"),
    [
        ({}, "solved", {"ended", "solved"}),
        ({"stop_reason": "env_steps"}, "steps spent", {"ended"}),
        ({"stop_reason": "asked"}, "stopped", {"ended", "stopped"}),
        ({"stop_reason": "non-finite training", "exit_code": 5}, "non-finite training", {"ended", "failed"}),
        ({"stop_reason": "Ctrl-C", "exit_code": 130}, "Ctrl-C", {"ended", "interrupted"}),
    ],
)
def test_outcomes_in_a_word_or_two(tmp_path, summary, outcome, kinds):
    one = listed(tmp_path / "a", summary=summary)
    assert (one.outcome, one.kinds) == (outcome, kinds)


@pytest.mark.parametrize(
    ("place", "path", "name"),
    [("runs", "runs/a", "a"), ("runs", "runs/sweep/a", "sweep/a"), ("runs/a", "runs/a", "a")],
)
def test_names_are_those_below_the_folder_that_was_looked_into(tmp_path, place, path, name):
    assert entry_name(tmp_path / path, [tmp_path / "elsewhere", tmp_path / place]) == name


@pytest.fixture
def some(tmp_path):
    return [
        listed(tmp_path / "b", started=30.0, summary={"seed": 2}),
        listed(tmp_path / "a", started=10.0, summary={"env": "Pong-v5", "mean_return_100": None, "seed": 10}),
        listed(tmp_path / "c", started=20.0, summary={"algorithm": "ppo", "mean_return_100": 3.0, "exit_code": 4}),
        listed(tmp_path / "d", started=40.0, summary=None, pid=DEAD, rows=()),
    ]


def names(entries):
    return "".join(one.name for one in entries)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, "bacd"),
        ({"env": "Pong-v5"}, "a"),
        ({"env": "CartPole*"}, "bc"),
        ({"algorithm": "ppo"}, "c"),
        ({"algorithm": "imp*", "env": "C*"}, "b"),
        ({"kind": "ended"}, "bac"),
        ({"kind": "solved"}, "ba"),
        ({"kind": "failed"}, "c"),
        ({"kind": "gone"}, "d"),
        ({"kind": "running"}, ""),
    ],
)
def test_filters(some, asked, found):
    assert names(selected(some, **asked)) == found


def test_an_unknown_state_names_the_nearest():
    with pytest.raises(ConfigError, match="unknown state 'runing'; did you mean running"):
        [*selected([], kind="runing")]


@pytest.mark.parametrize(
    ("by", "order"),
    [("started", "dbca"), ("name", "abcd"), ("seed", "cbad"), ("return", "bcda"), ("algorithm", "bacd")],
)
def test_newest_and_best_come_first_names_from_the_least_and_what_is_not_known_last(some, by, order):
    assert names(ordered(some, by)) == order


def test_an_unknown_column_names_the_nearest():
    with pytest.raises(ConfigError, match="runs cannot be sorted by 'step'; did you mean steps"):
        ordered([], "step")
