import sys
import threading
import time
from datetime import datetime

import pytest

from distrl.config import RunConfig
from distrl.runs.progress import History
from distrl.terminal import console
from distrl.terminal.console import ListenedView, PlainView, QuietView, UntilGoneView, line, make_view
from distrl.terminal.live import LiveView
from tests import run_folders
from tests.waiting import PATIENCE_S

CONFIG = RunConfig.model_validate({"actors": {"count": 2}, "stop": {"mean_return": 475, "env_steps": 1_000_000}})
SNAPSHOT = {
    "updates": 1204,
    "env_steps": 320512,
    "mean_return_100": 312.43,
    "policy_lag_mean": 1.23,
    "policy_lag_max": 5,
    "queue_fill": 0.5,
    "env_steps_per_s": 161203.2,
    "actors_up": 2,
    "bottleneck": "actors",
    "wall_s": 42.0,
}
ACTOR = {"role": "actor", "id": 0, "state": "starting"}


def summary():
    return run_folders.summary(run_id="r", stop_reason="asked", mean_return_100=None)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_line_of_everything():
    assert line(SNAPSHOT, CONFIG, History()) == (
        "steps 320,512 of 1,000,000 · 161,203/s · return 312.4 of 475.0 · updates 1,204 · lag 1.2 max 5 · queue 50% "
        "· actors 2/2 · bottleneck actors · about 4.2 s to go"
    )


def test_before_the_first_episode_the_line_says_so():
    text = line({"updates": 3, "env_steps": 100, "bottleneck": "-", "mean_return_100": None}, RunConfig(), History())
    assert text == "steps 100 · 0/s · no episode finished yet · updates 3 · queue 0% · actors 0/2"
    assert "nan" not in text


@pytest.mark.row("D47")
def test_plain_lines_come_every_few_seconds_and_events_at_once():
    clock, lines = Clock(), []
    view = PlainView(every_s=5.0, clock=clock, write=lines.append)
    view.update({}, [], CONFIG)
    for _ in range(12):  # 6 s
        clock.now += 0.5
        view.update(SNAPSHOT, [], CONFIG)
    clock.now += 0.25
    view.event("actor 1 ended (signal 9); starting again in 0.5 s")
    assert lines[0] == "  0.0 s  no role has reported yet"
    assert [text[:9] for text in lines] == ["  0.0 s  ", "  0.5 s  ", "  5.5 s  ", "  6.2 s  "]
    assert lines[1].startswith("  0.5 s  steps 320,512 of 1,000,000 · 161,203/s · return 312.4")
    assert lines[3] == "  6.2 s  actor 1 ended (signal 9); starting again in 0.5 s"


def test_lines_of_a_log_begin_with_date_and_time():
    lines = []
    PlainView(dated=True, write=lines.append).event("actor 1 ended")
    (text,) = lines
    stamp, rest = text[:25], text[25:]
    assert rest == " actor 1 ended"
    assert abs(datetime.fromisoformat(stamp).timestamp() - time.time()) < 600


@pytest.mark.parametrize("view_class", [PlainView, QuietView])
def test_the_end_is_told(view_class, tmp_path):
    lines = []
    view = view_class(tmp_path / "first", write=lines.append)
    view.close(summary())
    view.stop()
    (text,) = lines
    assert text.startswith("stopped as asked (exit code 0)\n  return   no episode finished\n")
    assert str(tmp_path / "first") in text


@pytest.mark.row("D47")
def test_quiet_says_events_and_no_progress():
    lines = []
    view = QuietView(write=lines.append)
    view.update(SNAPSHOT, [ACTOR], CONFIG)
    view.event("actor 1 ended")
    assert lines == ["actor 1 ended"]


def test_which_view(monkeypatch, capsys):
    assert type(make_view()._view) is PlainView  # under test stdout is no terminal
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert type(make_view()._view) is LiveView
    assert type(make_view(plain=True)._view) is PlainView
    assert type(make_view(dated=True)._view) is PlainView
    assert type(make_view(quiet=True)._view) is QuietView
    make_view(plain=True).event("hello")
    assert capsys.readouterr().out == "  0.0 s  hello\n"


def test_nothing_is_shown_once_the_terminal_is_gone(monkeypatch, tmp_path):
    """EIO of a terminal that was closed, or EPIPE of a pipe: nothing of it reaches the run."""
    told = []

    def write(text):
        told.append(text)
        raise BrokenPipeError

    with (tmp_path / "out").open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        view = UntilGoneView(QuietView(write=write))
        stdout.write("what is left in the buffer")
        for text in ("a", "b"):
            view.event(text)
        view.stop()
    assert told == ["a"]
    assert (tmp_path / "out").read_text() == ""  # it went nowhere, and did not fail


def test_other_errors_of_a_view_are_errors():
    def write(text):
        raise KeyError(text)

    with pytest.raises(KeyError):
        UntilGoneView(QuietView(write=write)).event("a")


def test_evaluations_are_in_the_line_with_what_is_asked_of_them():
    tree = {"evaluation": {"every_env_steps": 1000}, "stop": {"evaluation_return": 475}}
    greedy = {**SNAPSHOT, "evaluation_mean_return": 450.25}
    assert "return 312.4 · greedy 450.2 of 475.0 · updates" in line(greedy, RunConfig.model_validate(tree), History())
    assert "return 312.4 of 475.0 · greedy 450.2 · updates" in line(greedy, CONFIG, History())


def test_a_callback_that_does_not_return_is_reported_while_it_lasts(monkeypatch):
    monkeypatch.setattr(console, "SLOW_S", 0.01)
    lines, reported = [], threading.Event()

    def report(line):
        lines.append(line)
        reported.set()

    def slow(snapshot):
        assert reported.wait(PATIENCE_S)

    view = ListenedView(QuietView(write=report), [slow], lambda: None)
    view.update({"wall_s": 1.0}, [], None)
    assert [line.partition(" has not returned for 0.01 s: ")[0] for line in lines] == [
        "the callback test_a_callback_that_does_not_return_is_reported_while_it_lasts.<locals>.slow"
    ]
