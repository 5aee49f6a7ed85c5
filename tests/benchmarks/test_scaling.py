import pytest

from benchmarks import scaling
from benchmarks.measurement import FailedError
from distrl.config.load import load

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.1}


def rows(*told):
    return [{"wall_s": str(wall), "actors_up": str(up), "env_steps": str(steps)} for wall, up, steps in told]


def test_the_rate_is_from_a_while_after_all_are_at_work():
    told = rows((1, 1, 10), (2, 2, 100), (5, 2, 400), (6, 2, 1000), (7, 1, 1100), (9, 2, 1600))
    assert scaling.steady_rate(told, 2) == (200.0, 3.0)


@pytest.mark.parametrize("told", [rows((1, 1, 0), (9, 1, 9)), rows((1, 2, 0), (6, 2, 5), (7, 2, 9)), []])
def test_too_short_a_training_has_no_rate(told):
    with pytest.raises(FailedError, match="2 actors were not all at work long enough"):
        scaling.steady_rate(told, 2)


def entry(launcher, actors, rate):
    shares = {"learner_idle_share": 0.9, "actors_blocked_share": None}
    return {
        **WHERE,
        "name": f"{launcher}-{actors}",
        "launcher": launcher,
        "actors": actors,
        "env_steps_per_s": rate,
        **shares,
    }


def test_linear_is_as_many_times_one_actor_of_the_same_launcher():
    entries = [entry("processes", 1, 90.0), entry("processes", 16, 1368.0), entry("ray", 16, 1500.0)]
    assert scaling.linear(entries) == {"processes-1": 1.0, "processes-16": 0.95}
    lines = scaling.block({"command": "c", "results": entries}).splitlines()
    assert lines[-3:] == [
        "| 1 actor, processes | 90.0 | 1.000 | – | 90% | – |",
        "| 16 actors, processes | 1,368.0 | 0.950 | ≥ 0.95, met | 90% | – |",
        "| 16 actors, ray | 1,500.0 | – | – | 90% | – |",
    ]
    assert scaling.block({"command": "c", "results": []}) == "Not measured yet."


@pytest.mark.parametrize("name", scaling.NAMES)
def test_every_training_is_a_configuration(name):
    launcher, _, actors = name.partition("-")
    config = load(preset="cartpole-impala", sets=scaling.sets(launcher, int(actors), 10.0)).config
    assert config.launch.launcher == ("ray" if launcher == "ray" else "process")
    assert config.environment.kwargs == {"step_s": 0.01}
    assert config.unrolls_at_once * config.memory.queue_batches >= int(actors)
    assert config.stop.mean_return is config.stop.env_steps is None
