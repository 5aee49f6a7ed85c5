"""Several remote environments behind `VectorEnvironment`: requests at once, and a server that is killed meanwhile."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

import distrl
from distrl.config.environment import EnvironmentConfig
from distrl.environments import gym_adapter
from distrl.environments.remote.connection import Address
from distrl.environments.remote.environment import RemoteEnvironment
from distrl.environments.remote.protocol import ConnectionLostError
from distrl.environments.remote.server import EnvironmentServer
from distrl.environments.remote.session import RemoteSession
from distrl.environments.remote.vector import RemoteVectorEnvironment
from distrl.environments.vector import VectorEnvironment
from distrl.environments.vectors import vectorizations
from distrl.environments.worlds.toy import Identity, StepCounter
from distrl.errors import ConfigError, EnvironmentFailedError
from distrl.types import DiscreteSpec

HERE = "127.0.0.1"
LONG_S = 100.0
PATIENT = {"give_up_s": LONG_S, "connect_timeout_s": LONG_S, "message_timeout_s": LONG_S}


@contextmanager
def served(make):
    """An environment for each connection, on threads of this process; the port."""
    ready, end, lines = threading.Event(), threading.Event(), []

    def write(line):
        lines.append(line)
        ready.set()

    server = EnvironmentServer(lambda: RemoteSession(make()), None, write)
    thread = threading.Thread(target=server.listen, args=(Address(HERE, 0), 16, end.is_set))
    thread.start()
    assert ready.wait(LONG_S)
    try:
        yield int(lines[0].rpartition(":")[2])
    finally:
        end.set()
        thread.join()
        server.close()


def config(port, scheme="tcp", **changes):
    return EnvironmentConfig(id=f"{scheme}://{HERE}:{port}", **{"kwargs": PATIENT, "step_timeout_s": 1000.0, **changes})


@contextmanager
def vector(config_, count):
    environments = VectorEnvironment(config_, count)
    try:
        yield environments
    finally:
        environments.close()


def actions(*choices):
    return {"action": np.array(choices, np.int32)}


@pytest.mark.row("N32")
def test_four_environments_behave_as_four_in_this_process():
    """The same seeds and actions give the same steps, ends and resets as without a network between."""
    here = EnvironmentConfig(id="distrl.environments.worlds.toy:Identity", kwargs={"length_steps": 3})
    with served(lambda: Identity(length_steps=3)) as port, vector(config(port), 4) as remote, vector(here, 4) as local:
        assert remote.vectorization == "own"
        assert remote.spec.observations == local.spec.observations
        assert remote.spec.observations["observation"].dtype == "uint8"
        assert (remote.spec.actions, remote.spec.reward_threshold) == ({"action": DiscreteSpec(4)}, 0.95 * 3)
        first, expected = (each.vector.reset(seed=[1, 2, 3, 4])[0] for each in (remote, local))
        np.testing.assert_array_equal(first, expected)
        random_ = np.random.default_rng(0)
        for _ in range(12):
            chosen = actions(*random_.integers(4, size=4))
            got, should = remote.step(chosen), local.step(chosen)
            np.testing.assert_array_equal(got.observations["observation"], should.observations["observation"])
            for name in ("rewards", "terminated", "truncated", "valid"):
                np.testing.assert_array_equal(getattr(got, name), getattr(should, name))


@pytest.mark.row("N32")
def test_all_requests_are_out_before_a_reply_is_waited_for():
    together = threading.Barrier(4)

    class Together(StepCounter):
        """A step, and every reset but the first, ends only when all four environments are at it."""

        def __init__(self):
            super().__init__(terminate_at_steps=1)
            self._resets = 0

        def reset(self, **arguments):
            self._resets += 1
            if self._resets > 1:
                together.wait(LONG_S)
            return super().reset(**arguments)

        def step(self, action):
            together.wait(LONG_S)
            return super().step(action)

    with served(Together) as port, vector(config(port), 4) as remote:
        remote.reset(seed=0)
        step = remote.step(actions(0, 0, 0, 0))
        assert step.terminated.tolist() == [True] * 4
        assert remote.step(actions(0, 0, 0, 0)).valid.tolist() == [False] * 4


def test_one_connection_that_breaks_is_one_truncation():
    made = []

    def make():
        made.append(StepCounter(None, truncate_at_steps=100))
        return made[-1]

    with served(make) as port, vector(config(port), 3) as remote:
        remote.reset(seed=0)
        remote.step(actions(0, 0, 0))
        remote.vector.envs[1]._channel.interrupt()
        broken = remote.step(actions(0, 0, 0))
        assert broken.observations["observation"].ravel().tolist() == [2, 1, 2]
        assert broken.rewards.tolist() == [2, 0, 2]
        assert (broken.truncated.tolist(), broken.terminated.any()) == ([False, True, False], False)
        after = remote.step(actions(0, 0, 0))
        assert (after.valid.tolist(), after.rewards.tolist()) == ([True, False, True], [3, 0, 3])
        assert after.observations["observation"].ravel().tolist() == [3, 0, 3]
        assert len(made) == 4


class Silent:
    """A connection that never has anything to read, and keeps what it was asked."""

    peer = "silent"

    def __init__(self, clock):
        self._clock = clock
        self.ends = []

    def send(self, message, *, by=np.inf):
        self.ends.append(by)

    def reply(self, *, first_byte_s, by=np.inf):
        self.ends.append(self._clock[0] + first_byte_s)
        self.ends.append(by)
        self._clock[0] += max(first_byte_s, 0.0)
        raise ConnectionLostError("silent")

    def close(self):
        return


def test_the_time_outs_of_several_environments_do_not_add_up(monkeypatch):
    """Four that fall silent at once cost one time-out, not four, after which the actor would count as hung."""
    with served(StepCounter) as port, vector(config(port, kwargs={"message_timeout_s": 20.0}), 4) as remote:
        remote.reset(seed=0)
        clock = [1000.0]
        monkeypatch.setattr("distrl.environments.remote.environment.time.monotonic", lambda: clock[0])
        silent = [Silent(clock) for _ in range(4)]
        for each, channel in zip(remote.vector.envs, silent, strict=True):
            each.close()
            each._channel = channel
        step = remote.step(actions(0, 0, 0, 0))
        assert step.truncated.all()
        assert clock == [1020.0]
        assert [channel.ends for channel in silent] == [[1020.0, 1020.0, 1040.0]] * 4


def test_giving_up_is_counted_from_the_beginning_of_the_call(monkeypatch):
    with served(StepCounter) as port, vector(config(port, kwargs={"give_up_s": 30.0}), 2) as remote:
        clock = [1000.0]
        monkeypatch.setattr("distrl.environments.remote.environment.time.monotonic", lambda: clock[0])
        first, second = remote.vector.envs
        remote.vector._begin()
        clock[0] += 29.0
        first.reset(seed=0)  # which took so long
        second.close()
        waits = []

        def connect(wait_s, reply_by):
            waits.append((wait_s, reply_by))
            clock[0] += wait_s
            raise ConnectionLostError("nobody is there")

        monkeypatch.setattr(type(second._route), "connect", lambda self, *arguments: connect(*arguments))
        with pytest.raises(EnvironmentFailedError, match="nobody is there; gave up"):
            second.reset(seed=0)
        assert waits == [(1.0, 1050.0)]


class Server:
    """`distrl serve-env` in a process of its own."""

    def __init__(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(Path(distrl.__file__).parent.parent)}
        command = [sys.executable, "-m", "distrl", "serve-env", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def wait_for(self, beginning):
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line
        raise AssertionError(f"it ended without {beginning!r}: {self.process.wait()}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


COUNTER = "distrl.environments.worlds.toy:StepCounter"
ENDLESS = ("--set", "environment.kwargs.terminate_at_steps=null")


@pytest.mark.slow
@pytest.mark.row("N30")
def test_a_server_killed_in_the_middle_of_episodes_and_started_again(free_port):
    with ExitStack() as cleanup:
        first = Server(COUNTER, "--port", str(free_port), *ENDLESS)
        cleanup.callback(first.kill)
        first.wait_for("listening")
        remote = cleanup.enter_context(vector(config(free_port), 2))
        remote.reset(seed=0)
        for t in (1, 2, 3):
            assert remote.step(actions(0, 0)).rewards.tolist() == [t, t]
        first.kill()
        lost = remote.step(actions(0, 0))
        assert lost.observations["observation"].ravel().tolist() == [3, 3]
        assert (lost.rewards.tolist(), lost.truncated.tolist()) == ([0, 0], [True, True])
        assert (lost.terminated.tolist(), lost.valid.tolist()) == ([False, False], [True, True])
        second = Server(COUNTER, "--port", str(free_port), *ENDLESS)
        cleanup.callback(second.kill)
        again = remote.step(actions(0, 0))  # waits until it is there
        assert again.observations["observation"].ravel().tolist() == [0, 0]
        assert again.valid.tolist() == [False, False]
        assert remote.step(actions(0, 0)).rewards.tolist() == [1, 1]


def test_environments_that_dial_us(free_port):
    server = EnvironmentServer(lambda: RemoteSession(StepCounter(terminate_at_steps=2)), None, lambda line: None)
    end = threading.Event()
    thread = threading.Thread(target=server.dial, args=(Address(HERE, free_port), 2, end.is_set))
    thread.start()
    try:
        for _ in range(2):  # the second time they dial again, as after a restart of the actor
            with vector(config(free_port, "tcp-listen"), 2) as remote:
                assert remote.reset(seed=0)["observation"].ravel().tolist() == [0, 0]
                assert remote.step(actions(0, 0)).rewards.tolist() == [1, 1]
                assert remote.step(actions(0, 0)).terminated.tolist() == [True, True]
    finally:
        end.set()
        server.close()
        thread.join()


def test_too_few_environments_is_an_error_and_leaves_nothing_open(free_port):
    with pytest.raises(EnvironmentFailedError, match=f"no environment has dialled {HERE}:{free_port} in 0 s"):
        VectorEnvironment(config(free_port, "tcp-listen", kwargs={"connect_timeout_s": 0.1}), 2)


def test_an_address_makes_one_or_many():
    with served(StepCounter) as port:
        one = gym_adapter.make_one(config(port))
        assert isinstance(one, RemoteEnvironment)
        one.close()
        made = vectorizations.make_vector(config(port, vectorization="own"), 2)
        assert isinstance(made.vector, RemoteVectorEnvironment)
        assert made.vectorization == "own"
        made.vector.close()
        with pytest.raises(ConfigError, match="vectorization: sync is impossible: remote environments have"):
            vectorizations.make_vector(config(port, vectorization="sync"), 2)


def test_each_environment_has_a_seed_of_its_own():
    with served(lambda: Identity(n=2**20)) as port:
        made = vectorizations.make_vector(config(port), 3).vector
        first, again, other = (made.reset(seed=seed)[0].tolist() for seed in (1, 1, 2))
        made.close()
    assert len({*first, *other}) == 6
    assert first == again
