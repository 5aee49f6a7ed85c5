"""Environments in processes of their own, by gymnasium's AsyncVectorEnv.

Workers come from a fork server, not from the actor: the actor has threads and open connections, and a gradient actor
has TensorFlow. They end with the actor, however it ends, even while an environment hangs. An exception of an
environment comes back with its own traceback. An environment may start processes of its own.
"""

import contextlib
import fcntl
import functools
import multiprocessing
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState, _async_worker

from distrl.config.curriculum import ParameterValue
from distrl.config.environment import EnvironmentConfig
from distrl.environments import adjusting, gym_adapter, spaces
from distrl.environments.gym_adapter import Made, WorkerError, describe
from distrl.environments.observation_spaces import check_observation, of_environment
from distrl.environments.vectors import fork_server, global_generators
from distrl.errors import ConfigError

CLOSE_S = 3.0
"""Workers that take longer than this to close their environments are killed."""


def make_vector(config: EnvironmentConfig, count: int) -> Made:
    """Make `count` environments in a process each, in NEXT_STEP autoreset, and one more here, for its spaces."""
    single = gym_adapter.make_one(config)  # the errors of names, kwargs and spaces, before any process is started
    try:
        limits = gym_adapter.limits(config.id, single, config.action_repeat)
        spec = spaces.env_spec(config.id, single.observation_space, single.action_space, *limits, config.text)
        names = adjusting.adjustable(single, config.kwargs)
    finally:
        single.close()
    fork_server.ensure_running(__name__)
    try:
        vector = WorkerVector(
            [functools.partial(_make_one, config)] * count,
            # Gymnasium's buffers hold a Text's own characters only, and no more of them than it declares, where sync
            # shows any text: those go through pipes.
            shared_memory=all(array.vocabulary is None for array in spec.observations.values()),
            copy=False,  # `spaces.observation_reader` copies
            context="forkserver",
            worker=_work,
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )
    except Exception as error:
        raise ConfigError(
            f"environment {config.id} cannot be made in a process of its own: {describe(error)}; "
            "try environment.vectorization: sync"
        ) from error
    return Made(vector, "async", *limits, adjustable=names)


class WorkerVector(AsyncVectorEnv[Any, Any]):
    """AsyncVectorEnv that reports how a worker died and never waits for one for ever. An error ends it."""

    _broken = False
    _due: tuple[int, ...] = ()
    """Environments whose next step is a reset."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As `AsyncVectorEnv`, but that without shared memory, too, no step after it is a reset."""
        with self._named_deaths():
            if not self.shared_memory:
                # Gymnasium's workers forget only with shared memory, at a reset, that another was due.
                pipes = [self.parent_pipes[number] for number in self._due]
                for pipe in pipes:
                    pipe.send(("step", None))
                self._raise_if_errors([pipe.recv()[1] for pipe in pipes])
            self._due = ()
            return super().reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        with self._named_deaths():
            observations, rewards, terminated, truncated, info = super().step(actions)
        self._due = tuple(np.flatnonzero(terminated | truncated))
        return observations, rewards, terminated, truncated, info

    def _check_spaces(self) -> None:
        """Do AsyncVectorEnv's last step of the making, which hears first from workers, and end all where one fails."""
        try:
            with self._named_deaths():
                super()._check_spaces()  # type: ignore[no-untyped-call]
        except BaseException:
            self.close(terminate=True)
            raise

    def adjust(self, number: int, values: Mapping[str, ParameterValue]) -> None:
        """Set attributes of one environment, beneath its wrappers; its process is idle."""
        with self._named_deaths():
            for name, value in values.items():
                self.parent_pipes[number].send(("_setattr", (name, value)))
                self._raise_if_errors([self.parent_pipes[number].recv()[1]])

    @contextlib.contextmanager
    def _named_deaths(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self._broken = True
            raise WorkerError(self._who_died()) from error

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Replace AsyncVectorEnv's method, which prints warnings and rebuilds exceptions from their text."""
        if all(successes):
            return
        self._broken = True
        number, _, error, trace = self.error_queue.get(timeout=CLOSE_S)
        raised = error if isinstance(error, WorkerError) else WorkerError(describe(error))
        raised.add_note(f"in the process of environment {number}; {trace}")
        raise of_environment(raised, number)

    def _who_died(self) -> str:
        # Its end is known a moment after its pipe has closed.
        connection.wait([process.sentinel for process in self.processes], CLOSE_S)
        for number, process in enumerate(self.processes):
            code = process.exitcode
            if code is not None:
                how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
                return f"the process of environment {number} ended: {how}"
        return "the process of an environment closed its pipe"

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Let idle workers close their environments, then kill the workers that are left after `CLOSE_S` seconds."""
        if self._state is AsyncState.DEFAULT and not (self._broken or terminate):
            for pipe in self.parent_pipes:
                with contextlib.suppress(OSError):  # its worker is gone
                    pipe.send(("close", None))
            deadline = time.monotonic() + (CLOSE_S if timeout is None else timeout)
            for process in self.processes:
                process.join(max(0.0, deadline - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        for pipe in self.parent_pipes:
            pipe.close()
        self.error_queue.close()


def _make_one(config: EnvironmentConfig) -> gymnasium.Env[Any, Any]:
    return _Reporting(gym_adapter.make_one(config), tuple(config.metrics))


def _work(
    index: int,
    make: Callable[[], gymnasium.Env[Any, Any]],
    pipe: Connection,
    parent_pipe: Connection,
    buffer: Any,
    errors: Any,
    *others: Any,
) -> None:
    """Be gymnasium's worker, tied to the parent; an error of the making comes back as those of steps do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the actor's to judge
    _end_with_parent()
    fork_server.join_parents_group()
    multiprocessing.current_process().daemon = False  # the environment may start processes, as in the actor's own
    global_generators.seed()
    try:
        environment = make()
    except Exception as error:
        parent_pipe.close()
        own = error.__cause__ if isinstance(error, ConfigError) else None  # without the words around it
        travelling = _travelling(own if isinstance(own, Exception) else error)
        pipe.recv()  # the parent's first request, whose reply this is
        errors.put((index, WorkerError, travelling, "".join(travelling.__notes__)))
        pipe.send((None, False))
        return
    _async_worker(index, lambda: environment, pipe, parent_pipe, buffer, errors, *others)


def _end_with_parent() -> None:
    """Let the kernel end this process with its parent, even while the environment hangs in C with the GIL.

    Python holds a pipe whose write end closes with the parent. The kernel is asked to signal that (SIGIO, whose default
    is to end the process), as no thread of this process could be sure to run.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    descriptor = parent.sentinel
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([descriptor], [], [], 0)[0]:  # it was gone before that
        os._exit(1)


class _Reporting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Checks values that shared memory would wrap silently, and makes every exception picklable.

    An exception with a constructor of its own cannot be made again in another process, and would hang it.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], metrics: Collection[str]) -> None:
        super().__init__(environment)
        self._metrics = metrics

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        try:
            if seed is not None:
                global_generators.seed(seed)
            observation, _ = self.env.reset(seed=seed, options=options)
            check_observation("observation", self.env.observation_space, observation)
        except Exception as error:
            raise _travelling(error) from error
        return observation, {}  # infos are unused, and would be pickled at every step

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
            check_observation("observation", self.env.observation_space, observation)
            ends = gym_adapter.flag_of("terminated", terminated), gym_adapter.flag_of("truncated", truncated)
            # All else would be pickled at every step for nothing.
            kept = gym_adapter.info_in_use(info, self._metrics, ended=any(ends))
            return observation, gym_adapter.number_of(reward), *ends, kept
        except Exception as error:
            raise _travelling(error) from error

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute of the environment beneath all wrappers, some of which may have one of the same name."""
        try:
            adjusting.adjust(self, {name: value})
        except Exception as error:
            raise _travelling(error) from error
        return True


def _travelling(error: Exception) -> WorkerError:
    """Return an exception with the same words that can travel; its traceback is a note."""
    travelling = WorkerError(describe(error))
    travelling.add_note("".join(traceback.format_exception(error)))
    return travelling
