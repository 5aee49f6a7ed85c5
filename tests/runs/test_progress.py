import pytest

from distrl.config.stop import StopConfig
from distrl.metrics.snapshot import number
from distrl.runs.progress import Goal, History, goals, sparkline


def stopping(**stop):
    return StopConfig.model_validate(stop)


def rising(count, step_s=1.0, gain=10.0):
    history = History()
    for index in range(count):
        history.add({"wall_s": index * step_s, "mean_return_100": gain * index})
    return history


def test_without_conditions_there_is_no_goal():
    assert goals({"env_steps": 5}, stopping(), History()) == []


def test_budgets_divide_what_is_left_by_the_rate():
    snapshot = {"env_steps": 250_000, "env_steps_per_s": 5_000.0, "updates": 30, "updates_per_s": 2.0, "wall_s": 90.0}
    steps, updates, minutes = goals(snapshot, stopping(env_steps=1_000_000, updates=40, minutes=3), History())
    assert (steps.name, steps.fraction, steps.eta_s) == ("steps", 0.25, 150.0)
    assert (updates.name, updates.fraction, updates.eta_s) == ("updates", 0.75, 5.0)
    assert (minutes.name, minutes.now, minutes.fraction, minutes.eta_s) == ("minutes", 1.5, 0.5, 90.0)


def test_a_budget_of_episodes_is_a_goal():
    (goal,) = goals({"episodes": 30, "episodes_per_s": 2.0}, stopping(episodes=40), History())
    assert (goal.name, goal.now, goal.target, goal.fraction, goal.eta_s) == ("episodes", 30.0, 40, 0.75, 5.0)


def test_a_metric_of_the_environment_is_a_goal_by_its_own_name():
    wanted = stopping(metrics={"x/y": 8.0})
    (goal,) = goals({"info_x_y_100": 2.0}, wanted, History())
    assert (goal.name, goal.now, goal.target, goal.fraction, goal.unit) == ("x/y", 2.0, 8.0, 0.25, "return")


def test_a_return_is_extrapolated_from_its_slope():
    (goal,) = goals({"mean_return_100": 90.0}, stopping(mean_return=475), rising(10))  # 10 per second
    assert (goal.now, goal.target, goal.unit) == (90.0, 475.0, "return")
    assert goal.eta_s == pytest.approx(38.5)


@pytest.mark.parametrize("history", [History(), rising(4), rising(10, gain=-1.0), rising(10, gain=0.0)])
def test_a_return_without_a_rising_slope_has_no_eta(history):
    (goal,) = goals({"mean_return_100": 90.0}, stopping(mean_return=475), history)
    assert goal.eta_s is None


def test_before_the_first_episode_the_return_is_unknown():
    (goal,) = goals({"env_steps": 10}, stopping(mean_return=475), History())
    assert (goal.now, goal.fraction, goal.eta_s) == (None, 0.0, None)


def test_no_rate_and_endless_waits_have_no_eta_and_what_is_reached_has_none_left():
    assert goals({"env_steps": 5, "env_steps_per_s": 0.0}, stopping(env_steps=10), History())[0].eta_s is None
    assert goals({"env_steps": 5, "env_steps_per_s": 1e-6}, stopping(env_steps=10), History())[0].eta_s is None
    reached = goals({"env_steps": 12, "env_steps_per_s": 3.0}, stopping(env_steps=10), History())[0]
    assert (reached.fraction, reached.eta_s) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("now", "target", "fraction"),
    [
        (None, 10.0, 0.0),
        (5.0, 10.0, 0.5),
        (-5.0, 10.0, 0.0),
        (15.0, 10.0, 1.0),
        (-200.0, -100.0, 0.0),
        (-90.0, -100.0, 1.0),
    ],
)
def test_fractions(now, target, fraction):
    assert Goal("return", now, target, None).fraction == fraction


def test_slope_by_least_squares_of_the_newest_points():
    history = History()
    for wall_s, value in enumerate([0.0, 2.0, 1.0, 3.0, 4.0]):
        history.add({"wall_s": float(wall_s), "mean_return_100": value})
    # mean t 2, mean v 2: sum (t-2)(v-2) = 4 + 0 + 0 + 1 + 4 = 9, sum (t-2)^2 = 10
    assert history.slope_per_s() == pytest.approx(0.9)


def test_history_takes_each_snapshot_once():
    history = History()
    for _ in range(10):
        history.add({"wall_s": 1.0, "mean_return_100": 5.0})
    history.add({"wall_s": 2.0, "mean_return_100": None})
    history.add({})
    assert history.slope_per_s() is None
    assert history.sparkline(10) == ""


def test_sparkline():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([3, 3, 3]) == "▁▁▁"
    assert sparkline([1]) == ""
    assert rising(50).sparkline(8) == "▁▂▃▄▅▆▇█"


def test_number():
    assert number(3) == 3.0
    assert number(None) is None
    assert number("actors") is None


def test_a_mean_return_asked_of_evaluations_is_a_goal():
    wanted = stopping(evaluation_return=200.0)
    (goal,) = goals({"evaluation_mean_return": 50.0}, wanted, History())
    assert (goal.name, goal.now, goal.target, goal.fraction, goal.unit) == ("evaluation", 50.0, 200.0, 0.25, "return")
