"""A target's requests from the run's own host; tests/cluster/test_jobs.py sends them on a Ray cluster."""

from contextlib import contextmanager

import pytest

from distrl.apps.jobs import run_requests
from distrl.errors import ConfigError
from distrl.runs.directories import Run


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """A run that keeps what it was asked for."""
    calls = []

    class Recorder:
        def __getattr__(self, name):
            return lambda *given, **named: calls.append((name, *given, *named.values()))

    @contextmanager
    def steering(run, by):
        yield Recorder()

    monkeypatch.setattr(Run, "steering", steering)
    (tmp_path / "run.json").write_text('{"run_id": "r1", "redis_url": null, "pid": 0}')
    return calls


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (["scale", "6", "0"], ("scale", 6, False)),
        (["scale", "6", "1"], ("scale", 6, True)),
        (["autoscale", "-", "8", "0"], ("autoscale", None, 8)),
        (["autoscale", "-", "-", "1"], ("fix_actors",)),
        (["stop"], ("stop",)),
    ],
)
def test_requests_reach_the_run(sent, tmp_path, words, call):
    assert run_requests.main([str(tmp_path), *words]) == 0
    assert sent == [call]


def test_errors_are_one_marked_line(sent, tmp_path, capsys):
    assert run_requests.main([str(tmp_path / "none"), "stop"]) == ConfigError.exit_code
    assert run_requests.main([str(tmp_path), "scale"]) == ConfigError.exit_code
    assert capsys.readouterr().out.splitlines() == [
        "refused: it has not begun to train; repeat the command in a few seconds",
        "refused: no request: scale ",
    ]
