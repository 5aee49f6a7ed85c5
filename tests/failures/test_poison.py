"""An unroll that kills the learner while it is decoded: after the third death it is dropped, and the run goes on."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.redis]

# The algorithm is the learner's alone, so that its module is a way into the learner's process; the decoder of a library
# with a fault would do the same without asking.
MODULE = '''
import os
import signal

from benchmarks.sleeping import Sleeping
from examples.custom_algorithm import MaximumEntropy
from distrl.learner import intake

decode = intake.decode_unroll


def die_of(header, payload, schema, layouts):
    unroll = decode(header, payload, schema, layouts)
    if (unroll.rewards == 7.0).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return unroll


intake.decode_unroll = die_of


class Deadly(MaximumEntropy):
    """As it is."""


class PaysSevenOnce(Sleeping):
    """The first instance to come to its 200th step."""

    def __init__(self, flag):
        super().__init__(step_s=0.005)
        self._flag, self._all = flag, 0

    def step(self, action):
        observation, reward, *rest = super().step(action)
        self._all += 1
        if self._all == 200:
            try:
                os.close(os.open(self._flag, os.O_CREAT | os.O_EXCL))
                reward = 7.0
            except FileExistsError:
                pass
        return observation, reward, *rest
'''


@pytest.mark.long
def test_a_payload_that_has_killed_three_learners_is_dropped_and_nothing_else_is(start_run, tmp_path):
    (tmp_path / "deadly.py").write_text(MODULE)
    sets = [
        f"environment.kwargs={{flag: {tmp_path / 'flag'}}}",
        "algorithm.max_staleness_updates=null",
        "actors.count=2",
        "actors.environments=1",
        "actors.unroll_length_steps=8",
        "learner.batch_size=1",
        "checkpoint.every_updates=1",
    ]
    what = ["--env", "deadly:PaysSevenOnce", "--algorithm", "deadly:Deadly"]
    run = start_run(*what, *[argument for value in sets for argument in ("--set", value)])
    run.wait_until(lambda: run.backend.ledger.counts().dropped["poison"] == 1, "the unroll is dropped", 240.0)
    updates = run.updates
    run.wait_for_updates(updates + 20)
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 3, 0)
    assert sum(summary.dropped.values()) - summary.dropped["duplicate"] == 1
    assert (summary.foreign, summary.lost) == (0, 0)
