"""Environments that hang or raise in the middle of a run: actors are replaced within a budget, and the run says why."""

import os
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.redis]

# Importable from the working directory of the run, as a user's own environment would be.
MODULE = '''
import ctypes
import os
import threading

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from distrl.environments.worlds.toy import StepCounter
from tests.waiting import lasts


class HangsOnce(StepCounter):
    """The first of all instances to come to its 400th step hangs there; no later one does."""

    def __init__(self, flag):
        super().__init__(truncate_at_steps=20, terminate_at_steps=None)
        self._flag, self._all = flag, 0

    def step(self, action):
        lasts(0.001)  # leaves the processor to those who judge
        self._all += 1
        if self._all == 400:
            try:
                os.close(os.open(self._flag, os.O_CREAT | os.O_EXCL))
                threading.Event().wait()
            except FileExistsError:
                pass
        return super().step(action)


class HangsInConstruction(StepCounter):
    """While a file is there, the next instance removes it and hangs, holding the interpreter."""

    def __init__(self, flag):
        super().__init__(truncate_at_steps=20, terminate_at_steps=None)
        if os.path.exists(flag):
            os.remove(flag)
            ctypes.PyDLL(None).sleep(3600)

    def step(self, action):
        lasts(0.001)
        return super().step(action)


class HangsInReset(StepCounter):
    """The second of all first resets, which is an actor's and not the probe's, hangs; no later one does."""

    def __init__(self, flag):
        super().__init__()
        self._flag, self._fresh = flag, True

    def reset(self, *, seed=None, options=None):
        if self._fresh:
            self._fresh = False
            for number in (1, 2):
                try:
                    os.close(os.open(f"{self._flag}{number}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                if number == 2:
                    threading.Event().wait()
                break
        return super().reset(seed=seed, options=options)


class Strange(StepCounter):
    """Its hundredth step is not what its space says, or is no step at all."""

    def __init__(self, how):
        super().__init__(truncate_at_steps=7, terminate_at_steps=None)
        self._how, self._all = how, 0
        if how == "space":
            self.observation_space = Discrete(8)
        if how in WHOLE:
            self.observation_space = Box(0, 100, (1,), np.int8)

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        return self._declared(observation), info

    def step(self, action):
        observation, reward, *rest = super().step(action)
        self._all += 1
        if self._all < 100:
            return self._declared(observation), reward, *rest
        return strange(self._how, observation), np.nan if self._how == "reward" else reward, *rest

    def _declared(self, observation):
        if self._how == "space":
            return np.int64(observation[0])
        return observation.astype(self.observation_space.dtype)


WHOLE = {"dtype": 0.5, "range": 300}


def strange(how, observation):
    """In place of an observation, or of those of a vector."""
    if how == "raises":
        raise ValueError("the dice are loaded")
    if how == "hangs":
        threading.Event().wait()
    if how == "space":
        return np.int64(8) if len(observation) == 1 else np.full(len(observation), 8)
    if how in WHOLE:
        return np.full(observation.shape, WHOLE[how])
    if how == "shape":
        return np.zeros((*observation.shape[:-1], 2), np.float32)
    return observation * np.nan if how == "nan" else observation


class StrangeVector(VectorEnv):
    """The same, `num_envs` at once: its hundredth step is of all of them."""

    def __init__(self, num_envs, how):
        single = Strange(how)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.observation_space = batch_space(single.observation_space, num_envs)
        self.action_space = batch_space(single.action_space, num_envs)
        self._how, self._all = how, 0

    def reset(self, *, seed=None, options=None):
        self._steps = 0
        return self._declared(np.zeros((self.num_envs, 1), np.float32)), {}

    def step(self, actions):
        self._all += 1
        self._steps = self._steps % 8 + 1
        observations = np.full((self.num_envs, 1), self._steps % 8, np.float32)
        paid, never = np.ones(self.num_envs), np.zeros(self.num_envs, bool)
        rest = (never, np.full(self.num_envs, self._steps == 7), {})
        if self._all < 100:
            return self._declared(observations), paid, *rest
        return strange(self._how, observations), paid * np.nan if self._how == "reward" else paid, *rest

    def _declared(self, observations):
        if self._how == "space":
            return observations[:, 0].astype(np.int64)
        return observations.astype(self.single_observation_space.dtype)


class StrangeVectors(Strange):
    vector_entry_point = StrangeVector


class Raises(StepCounter):
    """Raises at step 3 or 4 of each episode, but not in the first of all processes, which is the probe's."""

    def __init__(self, flag):
        super().__init__()
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            with open(flag, "w") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            pass
        self._good = open(flag).read() == str(os.getpid())

    def step(self, action):
        if self._steps == 2 + os.getpid() % 2 and not self._good:
            raise ValueError(f"the dice are loaded at {self._steps}")
        return super().step(action)
'''
LONG_S = 240.0
SMALL = ["--set", "actors.environments=4", "--set", "learner.batch_size=1", "--set", "actors.unroll_length_steps=16"]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "my_environments.py").write_text(MODULE)
    return tmp_path


def test_an_actor_whose_environment_hangs_is_killed_counted_and_replaced(start_run, module):
    flag = module / "hung"
    run = start_run(
        *("--env", "my_environments:HangsOnce", "--set", f"environment.kwargs={{flag: {flag}}}", *SMALL),
        *("--set", "environment.step_timeout_s=8", "--set", "stop.minutes=10"),
    )
    run.wait_for_updates(1)
    run.wait_until(flag.exists, "one environment hangs")
    run.wait_until(lambda: "started again (restart 1)" in run.told, "its actor is replaced")
    run.wait_until(
        lambda: 2 in {role.incarnation for role in run.backend.registry.roles() if role.role == "actor"},
        "the successor has registered",
    )
    run.wait_for_updates(run.updates + 5)
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance, summary.lost) == (0, 1, 0, 0)
    assert "(environment.step_timeout_s)); starting again" in run.told


def children(run) -> list[psutil.Process]:
    return psutil.Process(run.process.pid).children(recursive=True)


@pytest.mark.long
def test_workers_of_a_hanging_environment_end_with_their_actor(start_run, module):
    """With a process for each environment, the supervisor knows the actor alone."""
    flag = module / "hung"
    run = start_run(
        *("--env", "my_environments:HangsOnce", "--set", f"environment.kwargs={{flag: {flag}}}", *SMALL),
        *("--set", "environment.vectorization=async", "--set", "environment.step_timeout_s=20"),
        *("--set", "stop.minutes=10", "--actors", "1"),
    )
    run.wait_until(flag.exists, "one environment hangs", LONG_S)
    before = children(run)
    assert len(before) >= 2 + 4  # learner, actor, environments
    run.wait_until(lambda: "started again (restart 1)" in run.told, "its actor is replaced", LONG_S)
    updates = run.updates
    run.wait_until(lambda: run.updates > updates + 50, "training goes on", LONG_S)
    run.process.terminate()
    summary = run.finish(LONG_S)
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 1, 0)
    run.wait_until(lambda: not any(run.alive(process.pid) for process in before), "all workers have ended")


@pytest.mark.long
def test_an_environment_may_take_longer_to_be_made_than_a_step(start_run):
    """In the trial before the launch, and in both actors."""
    slow = ["--env", "tests.faults.environments:Slow", "--set", "environment.kwargs={making_s: 10}"]
    run = start_run(
        *(*slow, "--set", "environment.step_timeout_s=8", "--set", "learner.batch_size=1", "--set", "stop.updates=20"),
        *("--set", "actors.environments=1", "--set", "actors.unroll_length_steps=16"),
    )
    summary = run.finish()
    assert (run.process.returncode, summary.updates, summary.restarts, summary.imbalance) == (0, 20, 0, 0)


@pytest.mark.long
def test_an_actor_that_hangs_in_construction_is_replaced_before_the_run_stalls(start_run, module):
    """The only actor, so that no update is made meanwhile."""
    flag = module / "construction"
    run = start_run(
        *("--env", "my_environments:HangsInConstruction", "--set", f"environment.kwargs={{flag: {flag}}}", *SMALL),
        *("--set", "environment.step_timeout_s=8", "--set", "learner.stall_timeout_s=60", "--set", "stop.minutes=10"),
        *("--actors", "1"),
    )
    run.wait_for_updates(5)
    flag.touch()
    run.kill("actor")
    run.wait_until(lambda: "started again (restart 2)" in run.told, "its successor is replaced, too", LONG_S)
    assert not flag.exists()
    updates = run.updates
    run.wait_until(lambda: run.updates > updates + 50, "training goes on", LONG_S)
    run.process.terminate()
    summary = run.finish(LONG_S)
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 2, 0)
    assert "(half of learner.stall_timeout_s)" in run.told


@pytest.mark.long
def test_an_environment_that_hangs_in_reset_is_as_one_that_hangs_in_step(start_run, module):
    flag = module / "reset"
    run = start_run(
        *("--env", "my_environments:HangsInReset", "--set", f"environment.kwargs={{flag: {flag}}}", *SMALL),
        *("--set", "environment.step_timeout_s=10", "--set", "stop.minutes=10"),
    )
    run.wait_until(lambda: "started again (restart 1)" in run.told, "its actor is replaced", LONG_S)
    updates = run.updates
    run.wait_until(lambda: run.updates > updates + 50, "training goes on", LONG_S)
    run.process.terminate()
    summary = run.finish(LONG_S)
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 1, 0)
    assert "(environment.step_timeout_s)); starting again" in run.told


STRANGE = {
    "raises": "ValueError: the dice are loaded",
    "nan": "ValueError: observation 'observation' is not finite",
    "reward": "ValueError: a reward is nan",
    "shape": "",  # in NumPy's words
    "dtype": "",
    "range": "",
    "space": "ValueError: observation 'observation': ",
}
"""Kind of the hundredth step -> the reason why it is refused."""
WHOLE_UNROLLS = {"sync": 7, "async": 7, "own": 6}
"""Unrolls of 16 rows before that step; in single environments a reset is a row and no step."""
IN_CI = {("raises", "own")}


@pytest.mark.parametrize(
    ("how", "vectorization"),
    [
        pytest.param(how, vectorization, marks=() if (how, vectorization) in IN_CI else pytest.mark.long)
        for how in STRANGE
        for vectorization in ("sync", "async", "own")
    ],
)
def test_what_comes_at_step_100_is_counted_and_ends_the_run_beyond_the_budget(start_run, module, how, vectorization):
    """One step in a hundred, from each of the environments: the actor that starts again finds the same."""
    name = "my_environments:StrangeVectors" if vectorization == "own" else "my_environments:Strange"
    run = start_run(
        *("--env", name, "--set", f"environment.kwargs={{how: {how}}}", *SMALL, "--actors", "1"),
        *("--set", f"environment.vectorization={vectorization}", "--set", "actors.restart_budget=1"),
    )
    summary = run.finish(LONG_S)
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (3, 3, "restart budget spent")
    assert (summary.restarts, summary.imbalance) == (1, 0)
    assert f"environment {name} failed in step: {STRANGE[how]}" in run.errors.read_text()
    # What came before it was trained on, and nothing of it.
    assert 0 < summary.trained <= 2 * WHOLE_UNROLLS[vectorization]
    assert summary.dropped["nonfinite"] == summary.dropped["schema"] == 0
    # The log has the environment's own traceback, or where what it gave was found wrong.
    log = (run.run_dir / "logs" / "actor-0.log").read_text()
    assert "Traceback" in log
    assert ("my_environments.py" in log) == (how == "raises")


@pytest.mark.long
@pytest.mark.parametrize("vectorization", ["sync", "async", "own"])
def test_an_environment_that_keeps_hanging_ends_the_run_beyond_the_budget(start_run, module, vectorization):
    name = "my_environments:StrangeVectors" if vectorization == "own" else "my_environments:Strange"
    run = start_run(
        *("--env", name, "--set", "environment.kwargs={how: hangs}", *SMALL, "--actors", "1"),
        *("--set", f"environment.vectorization={vectorization}", "--set", "actors.restart_budget=1"),
        *("--set", "environment.step_timeout_s=8"),
    )
    summary = run.finish(LONG_S)
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (3, 3, "restart budget spent")
    assert (summary.restarts, summary.imbalance) == (1, 0)
    assert "(environment.step_timeout_s))" in run.errors.read_text()
    assert 0 < summary.trained <= 2 * WHOLE_UNROLLS[vectorization]
    assert sum(summary.dropped.values()) == 0


@pytest.mark.long
def test_an_environment_that_keeps_raising_ends_the_run_with_its_own_words(start_run, module):
    """Four times in the same way while nothing is produced is enough, whatever the budget."""
    flag = f"environment.kwargs={{flag: {module / 'first'}}}"
    run = start_run("--env", "my_environments:Raises", "--set", flag, *SMALL, "--actors", "1")
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (3, 3, "keeps failing")
    assert (summary.restarts, summary.imbalance) == (3, 0)
    (line,) = [line for line in run.errors.read_text().splitlines() if line.startswith("distrl: error: ")]
    assert "actor 0 failed 4 times in the same way: environment my_environments:Raises failed in step: " in line
    assert "ValueError: the dice are loaded at " in line
    # The log has the whole of it.
    log = (run.run_dir / "logs" / "actor-0.log").read_text()
    assert "raise ValueError(f" in log


@pytest.mark.long
def test_an_environment_that_fails_within_its_first_episode_is_exit_2(distrl_command, module):
    (module / "broken.py").write_text(
        "from distrl.environments.worlds.toy import StepCounter\n"
        "class Broken(StepCounter):\n"
        "    def step(self, action):\n"
        "        observation, reward, *rest = super().step(action)\n"
        "        return observation, reward if self._steps < 4 else float('nan'), *rest\n"
    )
    done = distrl_command("train", "--env", "broken:Broken", "--run-dir", "run")
    assert done.returncode == 2
    line = "distrl: error: environment broken:Broken failed in step: ValueError: a reward is nan, at step 4"
    assert line in done.stderr.splitlines()
    assert not os.path.exists(module / "run")


@pytest.mark.row("O02")
def test_an_environment_that_cannot_start_is_exit_2_with_its_own_traceback(distrl_command, module):
    (module / "broken.py").write_text(
        "from distrl.environments.worlds.toy import StepCounter\n"
        "class Broken(StepCounter):\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        raise OSError('no ROM here')\n"
    )
    done = distrl_command("train", "--env", "broken:Broken", "--run-dir", "run")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert "distrl: error: environment broken:Broken failed in reset: OSError: no ROM here" in lines
    assert any("raise OSError('no ROM here')" in line for line in lines)
    assert not os.path.exists(module / "run")
