"""The end of a training in one process: environments that fail or hang in `close`, and the time that is up."""

import threading
from types import SimpleNamespace

import pytest

from distrl.environments.worlds.toy import Identity
from distrl.launch import deterministic
from distrl.launch.deterministic import InlineEvaluator
from distrl.metrics.counters import Waits
from tests.launch.test_deterministic import Training


class Fails(Identity):
    """Fails when it is closed after a step."""

    stepped = False

    def step(self, action):
        self.stepped = True
        return super().step(action)

    def close(self):
        if self.stepped:
            raise RuntimeError("the arm sticks")


class Hangs(Fails):
    """Never returns from there."""

    def close(self):
        if self.stepped:
            threading.Event().wait()


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ("Fails", "RuntimeError: the arm sticks"),
        ("Hangs", "TimeoutError: it has not ended within 0.05 s"),
    ],
)
def test_an_environment_that_does_not_close_costs_a_line(tmp_path, monkeypatch, capsys, environment, told):
    monkeypatch.setattr(deterministic, "CLOSE_S", 0.05)
    run = Training(tmp_path, "run", "impala")
    run.config["environment"]["id"] = f"{__name__}:{environment}"
    reason, snapshot = run.train(2)
    assert (reason, snapshot["updates"]) == ("updates", 2)
    assert capsys.readouterr().out == f"environment {__name__}:{environment} failed in close: {told}\n"


@pytest.mark.parametrize(
    ("minutes", "now", "within_s"),
    [
        (2.0, 0.0, 90.0),  # of 120 s, 30 were over before
        (2.0, 89.0, 1.0),
        (2.0, 91.0, 5.0),  # the last one
        (None, 0.0, float("inf")),
    ],
)
def test_an_evaluation_ends_with_the_minutes_and_the_last_one_has_its_time(monkeypatch, minutes, now, within_s):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(deterministic, "time", SimpleNamespace(monotonic=lambda: clock.now))
    asked = []
    config = SimpleNamespace(stop=SimpleNamespace(minutes=minutes), evaluation=SimpleNamespace(last_within_s=5.0))
    evaluator = SimpleNamespace(evaluate_if_due=asked.append)
    attendant = InlineEvaluator(evaluator, lambda: False, config, 30.0, Waits())
    clock.now = now
    attendant.attend(None)
    (stop,) = asked
    clock.now = now + min(within_s, 1e9) - 0.5
    assert not stop()
    clock.now += 0.5
    assert stop() == (minutes is not None)


def test_minutes_end_a_training_within_a_long_evaluation(tmp_path):
    run = Training(tmp_path, "run", "impala")
    run.config["evaluation"] = {"every_env_steps": 4, "episodes": 10**8, "last_within_s": 0.1}
    run.stop = {"minutes": 0.01}
    reason, snapshot = run.train(10**6)
    assert (reason, snapshot["stop_reason"], snapshot["evaluation_mean_return"]) == ("minutes", "minutes", None)
    assert run.backend.ledger.counts().imbalance == 0
