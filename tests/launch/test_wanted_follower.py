"""Other processes follow the number of actors that a run wants, until it ends."""

from dataclasses import replace

import pytest

from distrl.errors import OutageError
from distrl.launch import wanted_follower
from distrl.launch.wanted_follower import follow_wanted
from distrl.memory_backend.records import SupervisorStatus

SUPERVISOR = SupervisorStatus("h", 1, 1, actors=2, actors_wanted=2, wanted_because="fed")


def follow(backend, *script, follows=lambda actors: True):
    """Return the calls, and why it ended; between two looks the next line of the script runs."""
    lines, calls = iter(script), []

    def act(actors, why):
        calls.append((actors, why))
        return follows(actors)

    return calls, follow_wanted(backend, act, pause=lambda _: next(lines)())


def beats(backend, **changes):
    return lambda: backend.registry.beat_supervisor(replace(SUPERVISOR, **changes))


def test_each_number_is_followed_once_until_the_run_ends(backend):
    calls, ended = follow(
        backend,
        beats(backend),
        beats(backend, wanted_because="still fed"),
        beats(backend, actors_wanted=6, wanted_because="hungry"),
        beats(backend, actors_wanted=None),
        beats(backend, actors_wanted=2, wanted_because="fed"),
        lambda: backend.registry.set_control(stop="asked"),
    )
    assert calls == [(2, "fed"), (6, "hungry"), (2, "fed")]
    assert ended == "the run ends: asked"


@pytest.mark.parametrize(("bounds", "cut"), [({}, [1000, 1]), ({"min_actors": 3, "max_actors": 8}, [8, 3])])
def test_a_number_beyond_the_bounds_is_cut(backend, bounds, cut):
    """An actor host that is taken over can write any number, but no bounds."""
    backend.registry.set_control(autoscale=True, **bounds)
    calls, _ = follow(
        backend,
        *[beats(backend, actors_wanted=number) for number in (10**9, 10**8, -1)],
        lambda: backend.registry.set_control(stop="asked"),
    )
    assert calls == [(actors, "the bounds have changed") for actors in cut]


def test_a_number_that_is_not_followed_is_repeated_until_it_is(backend):
    answers = iter([False, False, True])
    calls, _ = follow(
        backend,
        beats(backend),
        *[lambda: None] * 4,
        lambda: backend.registry.set_control(stop="asked"),
        follows=lambda actors: next(answers),
    )
    assert calls == [(2, "fed")] * 3


def test_it_ends_when_an_operator_ends_autoscaling(backend):
    backend.registry.set_control(autoscale=True)
    calls, ended = follow(backend, beats(backend), lambda: backend.registry.set_control(autoscale=False))
    assert (calls, ended) == ([(2, "fed")], "autoscaling was ended")


def test_it_ends_with_a_run_whose_keys_are_gone(backend):
    assert follow(backend, beats(backend), backend.delete) == ([(2, "fed")], "the run has ended")


@pytest.mark.parametrize("patience_s", [60.0, -1.0])
def test_an_outage_is_waited_out_for_a_while(backend, monkeypatch, patience_s):
    monkeypatch.setattr(wanted_follower, "PATIENCE_S", patience_s)

    def fails():
        raise OutageError("Redis does not answer")

    def goes():
        monkeypatch.setattr(backend.registry, "control", fails)

    def comes():
        monkeypatch.undo()
        beats(backend)()

    script = (goes, lambda: None, comes, lambda: backend.registry.set_control(stop="asked"))
    if patience_s < 0:
        with pytest.raises(OutageError):
            follow(backend, *script)
    else:
        assert follow(backend, *script) == ([(2, "fed")], "the run ends: asked")
