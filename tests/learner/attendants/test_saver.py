"""Saver: requested checkpoints are written and marked as such; how it saves otherwise is in test_session."""

from types import SimpleNamespace

import pytest

from distrl.learner.attendants.saver import Saver
from distrl.learner.state import LearnerState
from distrl.memory_backend.records import Demand


class Checkpoints:
    """Stands for the checkpointer; nothing is behind."""

    behind = False

    def __init__(self):
        self.wanted = None
        self.saved = 0

    def holds(self, updates):
        return self.saved >= updates

    def finish(self):
        return None


@pytest.fixture
def registry(run):
    return run.backend.registry


@pytest.fixture
def saver(registry, tmp_path):
    return Saver(
        checkpointer=Checkpoints(),
        learner=SimpleNamespace(state=LearnerState(run_id="r")),
        network=None,
        run_dir=tmp_path,
        registry=registry,
        reporter=SimpleNamespace(report=None),
        tell=lambda updates: None,
        strict=False,
        mirror=None,
    )


def test_a_checkpoint_holds_what_was_learned_when_it_was_asked_for(saver, registry):
    saver.learner.state.updates = 7
    registry.demand("checkpoint")
    saver.want(registry.control().checkpoint)
    assert saver.checkpointer.wanted == 7
    saver.learner.state.updates = 9
    saver.want(registry.control().checkpoint)
    assert saver.checkpointer.wanted == 7  # not what came later
    assert registry.control().checkpoint == Demand(1, 0)
    saver.checkpointer.saved = 8
    saver.want(registry.control().checkpoint)
    assert registry.control().checkpoint == Demand(1, 1)
    assert saver.checkpointer.wanted is None


def test_a_second_demand_waits_for_a_checkpoint_of_its_own(saver, registry):
    saver.learner.state.updates = 7
    registry.demand("checkpoint")
    saver.want(registry.control().checkpoint)
    saver.learner.state.updates = 50
    registry.demand("checkpoint")
    saver.checkpointer.saved = 7
    saver.want(registry.control().checkpoint)
    assert registry.control().checkpoint == Demand(2, 1)
    saver.want(registry.control().checkpoint)
    assert saver.checkpointer.wanted == 50
    saver.checkpointer.saved = 50
    saver.want(registry.control().checkpoint)
    assert registry.control().checkpoint == Demand(2, 2)


def test_at_the_end_everybody_has_a_checkpoint(saver, registry):
    registry.demand("checkpoint")
    saver.end("asked")
    assert not registry.control().checkpoint.pending


@pytest.mark.parametrize(
    ("reason", "begun", "stored"), [("asked", False, 0), ("asked", True, 1), ("updates", False, 1)]
)
def test_a_launch_that_is_refused_stores_nothing_at_its_end(saver, reason, begun, stored):
    """An actor that ends with 2 before the first unroll: the learner, which waits in its session, is asked to stop."""
    calls = []
    saver.mirror = SimpleNamespace(begun=lambda: begun, finish=calls.append)
    saver.end(reason)
    assert len(calls) == stored
