import io

import pytest
from rich.console import Console

from distrl.config import RunConfig
from distrl.runs.progress import History
from distrl.terminal.live import LiveView, panel

CONFIG = RunConfig.model_validate({"stop": {"mean_return": 475, "env_steps": 1_000_000}})
SNAPSHOT = {
    "updates": 1204,
    "env_steps": 320512,
    "episodes": 4312,
    "mean_return_100": 312.43,
    "best_mean_return_100": 330.1,
    "policy_lag_mean": 1.23,
    "policy_lag_max": 5,
    "weights_version": 1205,
    "queue_entries": 4,
    "queue_fill": 0.5,
    "env_steps_per_s": 161203.2,
    "updates_per_s": 602.3,
    "learner_wait_share": 0.62,
    "restarts": 1,
    "bottleneck": "actors",
    "wall_s": 42.0,
}
PANEL_80 = """\
╭─ distrl  CartPole-v1  ·  impala  ·  first ───────────────────────────────────╮
│                                                                              │
│  return        312.4 / 475.0  ━━━━━━━━━━━━━━━━━━            65 %   ETA 14 s  │
│  steps   320,512 / 1,000,000  ━━━━━━━━╸                     32 %  ETA 4.2 s  │
│                                                                              │
│  steps     320,512                    speed     161,203 steps/s              │
│  updates   1,204                                602 updates/s                │
│  episodes  4,312                      queue     ████░░░░ 50% · 4 unrolls     │
│  return    312.4  best 330.1          lag       1.2 mean · 5 max updates     │
│            ▁▂▃▃▄▅▆▆▇█                 restarts  1                            │
│                                                                              │
│  actor  state                                   steps/s  version  last step  │
│  0      acting                                   80,121    1,204  0.0 s ago  │
│  1      waiting: room in the queue               80,121    1,203  0.0 s ago  │
│                                                                              │
│  bottleneck  actors: the learner waits for unrolls 62% of its time           │
│                                                                              │
╰─────────────────────────────────────────────────────────────── 0:42 elapsed ─╯
"""


def actor(number, state="acting"):
    steps = {"env_steps_per_s": 80121.3, "weights_version": 1204 - number, "last_step_age_s": 0.02}
    return {"role": "actor", "id": number, "state": state, **steps}


def history():
    past = History()
    for second in range(10):
        past.add({"wall_s": float(second), "mean_return_100": 200.0 + 12.0 * second})
    return past


def render(width, snapshot=SNAPSHOT, roles=(), config=CONFIG, past=None):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    console.print(panel(snapshot, roles, config, past or History(), name="first", elapsed="0:42"))
    return console.file.getvalue()


def test_the_panel_at_80_columns():
    roles = [actor(0), actor(1, "waiting: room in the queue")]
    assert render(80, roles=roles, past=history()) == PANEL_80


def test_the_panel_at_120_columns_says_the_same():
    lines = render(120, roles=[actor(0), actor(1, "waiting: room in the queue")], past=history()).splitlines()
    assert {len(text) for text in lines} == {120}
    narrow = [word for word in PANEL_80.split() if "━" not in word and "─" not in word]
    assert [word for text in lines for word in text.split() if "━" not in word and "─" not in word] == narrow


@pytest.mark.parametrize("width", [80, 120])
def test_before_the_first_episode_it_says_so(width):
    snapshot = {name: value for name, value in SNAPSHOT.items() if "return" not in name and "lag" not in name}
    text = render(width, snapshot)
    assert "no episode finished yet" in text
    assert "– / 475.0" in text
    assert "ETA –" in text
    assert "nan" not in text
    assert "None" not in text


def test_before_the_first_update_it_tells_who_is_there():
    starting = {"role": "learner", "id": 0, "state": "starting: importing the framework"}
    assert "no role has reported yet" in render(80, snapshot={})
    text = render(80, snapshot={}, roles=[starting, {**actor(0, "starting"), "weights_version": 0}])
    assert "learner starting: importing the framework, 1 actor starting" in text
    assert "bottleneck" not in text


def test_many_actors_are_summed_up():
    roles = [actor(number) for number in range(9)] + [actor(number, "starting") for number in range(9, 12)]
    text = render(80, roles=roles)
    assert "and 1 actor acting, 3 actors starting" in text
    assert "│  8  " not in text


def test_without_stop_conditions():
    assert "no stop condition: runs until it is stopped" in render(80, config=RunConfig())


def test_names_are_text_and_no_markup():
    config = RunConfig.model_validate({"environment": {"id": "[bold]x[/bold]"}})
    assert "distrl  [bold]x[/bold]  ·  impala" in render(80, config=config)


def test_the_view_draws_prints_events_and_gives_the_terminal_back(tmp_path):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None, highlight=False)
    view = LiveView(tmp_path / "first", console)
    view.event("resuming from update-7")
    view.update(SNAPSHOT, [actor(0)], CONFIG)
    drawn = console.file.getvalue()
    assert "resuming from update-7" in drawn
    assert "161,203 steps/s" in drawn
    assert "\x1b[?25l" in drawn  # the cursor is hidden while the panel is there
    view.stop()
    view.stop()
    assert console.file.getvalue().count("\x1b[?25h") == 1  # and shown again, once


def test_a_view_that_was_never_drawn_leaves_nothing():
    console = Console(file=io.StringIO(), force_terminal=True)
    LiveView(None, console).stop()
    assert console.file.getvalue() == ""


def test_evaluations_have_a_row_of_their_own():
    greedy = {"evaluation_mean_return": 478.25, "best_evaluation_return": 490.0, "evaluation_env_steps": 300123}
    rows = render(80, snapshot={**SNAPSHOT, **greedy}).splitlines()
    (row,) = [row for row in rows if "greedy" in row]
    assert row.strip("│ ").split() == ["greedy", "478.2", "best", "490.0", "of", "step", "300,123"]
    assert "greedy" not in render(100)
