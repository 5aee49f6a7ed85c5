import json
import os
from contextlib import contextmanager

import pytest

from distrl.apps.commands import main
from distrl.errors import MemoryBackendError
from distrl.launch import chaos
from distrl.launch.chaos import Kill
from distrl.memory_backend.backend import connect
from distrl.memory_backend.ledger import Ledger
from distrl.memory_backend.stream import QueueCaps
from distrl.runs.directories import Run


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    """A run that goes on, whose backend is the twin."""
    monkeypatch.delenv("DISTRL_REDIS_URL", raising=False)
    twin = connect("local:", "r1", QueueCaps(entries=8, bytes=1000), name="test", give_up_s=1.0)
    twin.create("{}")

    @contextmanager
    def opened_backend(found):
        yield twin

    monkeypatch.setattr(Run, "backend", opened_backend)
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "r1", "redis_url": "redis://h:1/0", "pid": os.getpid()}))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("kills", "code", "told"),
    [
        (
            [Kill("actor 0", 1, 2.0), Kill("actor 1", 2, 3.25)],
            0,
            "2 killed, 2 back, the slowest after 3.2 s; every unroll is accounted for",
        ),
        (
            [Kill("actor 0", 1, 2.0), Kill("learner", 2, None)],
            1,
            "2 killed, 1 back, the slowest after 2.0 s; every unroll is accounted for",
        ),
        ([], 0, "0 killed, 0 back; every unroll is accounted for"),
    ],
)
def test_who_did_not_come_back_is_exit_1(run_dir, monkeypatch, capsys, kills, code, told):
    asked = []

    class Scripted:
        def __init__(self, backend, kinds, within, choice):
            asked.append((kinds, within))

        def run(self, every, seconds, tell):
            asked.append((every, seconds))
            return kills

    monkeypatch.setattr(chaos, "Chaos", Scripted)
    command = ["chaos", run_dir, "--kill", "actor", "--kill", "learner", "--every", "5s", "--for", "0.5m"]
    assert main.main(command) == code
    assert asked == [({"actor", "learner"}, 15.0), (5.0, 30.0)]
    assert capsys.readouterr().out.startswith(told)


def test_of_a_run_whose_redis_is_gone_the_tally_is_told_all_the_same(run_dir, monkeypatch, capsys):
    class Ends:
        def __init__(self, *_):
            pass

        def run(self, every, seconds, tell):
            return [Kill("actor 0", 1, 2.0)]

    def gone(ledger):
        raise MemoryBackendError("Redis is unreachable")

    monkeypatch.setattr(chaos, "Chaos", Ends)
    monkeypatch.setattr(Ledger, "counts", gone)
    assert main.main(["chaos", run_dir, "--kill", "actor"]) == 0
    assert capsys.readouterr().out.startswith("1 killed, 1 back, the slowest after 2.0 s; see distrl status for")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which run?"),
        (["RUN"], "--kill is missing: name learner, actor, inference, evaluator"),
        (["RUN", "--kill", "redis"], "--kill redis: name learner, actor, inference, evaluator"),
    ],
)
def test_wrong_words_are_exit_2(run_dir, capsys, arguments, words):
    assert main.main(["chaos", *(run_dir if word == "RUN" else word for word in arguments)]) == 2
    assert words in capsys.readouterr().err
