"""Actors come and go all the time, as asked: nothing is lost, and nothing is left of those that went."""

import time

import psutil
import pytest

from tests.faults.processes import Taken
from tests.waiting import lasts

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.mark.parametrize(
    ("most", "every_s", "length_s"),
    [
        pytest.param(2, 1.0, 0.0, marks=pytest.mark.long),
        pytest.param(8, 30.0, 600.0, marks=[pytest.mark.endurance, pytest.mark.timeout(1200)]),
    ],
)
def test_scaling_up_and_down_loses_nothing_and_leaves_nothing(
    start_run, unhurried, distrl_command, measured, most, every_s, length_s
):
    run = start_run(*unhurried, "--actors", "1")
    run.wait_for_updates(5)

    def actors():
        return [role for role in run.backend.registry.roles() if role.role == "actor"]

    def scale(count):
        assert distrl_command("scale", str(count), "--run", str(run.run_dir)).returncode == 0
        run.wait_until(
            lambda: len(actors()) == count and all(role.weights_version for role in actors()), f"{count} actors"
        )

    def left_behind():
        """Return counts that one more actor increases: processes, descriptors of the run's command, keys, clients."""
        client = run.backend.engine
        children = psutil.Process(run.process.pid).children()
        clients = client.call("CLIENT", "LIST").count(b"\n")
        return len(children), Taken.by(run.process.pid).descriptors, client.call("DBSIZE"), clients

    scale(most)
    scale(1)
    before = left_behind()
    began, changes = time.monotonic(), 2
    while time.monotonic() - began < length_s:
        due = time.monotonic() + every_s
        scale(most if changes % 2 == 0 else 1)
        changes += 1
        while time.monotonic() < due:
            lasts(0.1)
    scale(1)
    run.wait_until(lambda: all(now <= then for now, then in zip(left_behind(), before, strict=True)), "nothing is left")
    groups = run.backend.engine.call("XINFO", "CONSUMERS", run.backend._run.keys.unrolls, "learner")
    assert len(groups) == 1
    run.wait_for_updates(run.updates + 10)
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 0, 0)
    assert (summary.lost, summary.foreign, summary.rolled_back) == (0, 0, 0)
    measured(17, most=most, changes=changes, unrolls=summary.produced, left_behind=0)
