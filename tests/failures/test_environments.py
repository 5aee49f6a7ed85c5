"""Environments that hang or raise in the middle of a run: actors are replaced within a budget, and the run says why."""

import os
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.redis]

# Importable from the working directory of the run, as a user's own environment would be.
MODULE = '''
import os
import time

from distrl.environments.toy import StepCounter


class HangsOnce(StepCounter):
    """The first of all instances to come to its 400th step hangs there; nobody after it does."""

    def __init__(self, flag):
        super().__init__(truncate_at_steps=20, terminate_at_steps=None)
        self._flag, self._all = flag, 0

    def step(self, action):
        self._all += 1
        if self._all == 400:
            try:
                os.close(os.open(self._flag, os.O_CREAT | os.O_EXCL))
                time.sleep(3600)
            except FileExistsError:
                pass
        return super().step(action)


class Raises(StepCounter):
    """Good enough for the probe, and then broken."""

    def step(self, action):
        if self._steps == 3:
            raise ValueError("the dice are loaded")
        return super().step(action)
'''
SMALL = ["--set", "actors.environments=4", "--set", "learner.batch_size=1", "--set", "actors.unroll_length_steps=16"]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "my_environments.py").write_text(MODULE)
    return tmp_path


def test_an_actor_whose_environment_hangs_is_killed_counted_and_replaced(start_run, module):
    flag = module / "hung"
    run = start_run(
        *("--env", "my_environments:HangsOnce", "--set", f"environment.kwargs={{flag: {flag}}}", *SMALL),
        *("--set", "environment.step_timeout_s=2", "--set", "stop.minutes=10"),
    )
    run.wait_for_updates(1)
    run.wait_until(flag.exists, "one environment hangs")
    run.wait_until(lambda: "started again (restart 1)" in run.told, "its actor is replaced")
    run.wait_until(
        lambda: 2 in {role.incarnation for role in run.backend.registry.roles() if role.role == "actor"},
        "the successor has registered",
    )
    run.wait_for_updates(run.updates + 50)
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance, summary.lost) == (0, 1, 0, 0)
    assert "(environment.step_timeout_s)); starting again" in run.told


def test_an_environment_that_keeps_raising_ends_the_run_with_its_own_words(start_run, module):
    run = start_run("--env", "my_environments:Raises", *SMALL, "--set", "actors.restart_budget=1", "--actors", "1")
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (3, 3, "restart budget spent")
    assert (summary.restarts, summary.imbalance) == (1, 0)
    (line,) = [line for line in run.errors.read_text().splitlines() if line.startswith("distrl: error: ")]
    assert line.endswith("my_environments:Raises failed in step: ValueError: the dice are loaded)")
    # The log has the whole of it.
    log = (run.run_dir / "logs" / "actor-0.log").read_text()
    assert 'raise ValueError("the dice are loaded")' in log


def test_an_environment_that_cannot_start_is_exit_2_with_its_own_traceback(distrl_command, module):
    (module / "broken.py").write_text(
        "from distrl.environments.toy import StepCounter\n"
        "class Broken(StepCounter):\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        raise OSError('no ROM here')\n"
    )
    began = time.monotonic()
    done = distrl_command("train", "--env", "broken:Broken", "--run-dir", "run")
    assert done.returncode == 2
    first, *below = done.stderr.splitlines()
    assert first == "distrl: error: environment broken:Broken failed in reset: OSError: no ROM here"
    assert any("raise OSError('no ROM here')" in line for line in below)
    assert not os.path.exists(module / "run")
    assert time.monotonic() - began < 15
