"""Environments in processes of their own: what they raise comes back whole, and none outlives its parent."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Sequence, Text, Tuple
from gymnasium.vector import AutoresetMode

import distrl
from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
from distrl.environments.vectors import async_vector
from distrl.errors import ConfigError, EnvironmentFailedError
from tests.waiting import wait_until

# Importable by name, as worker processes import it.
MODULE = '''
import ctypes
import multiprocessing
import os
import random
import sys
import time
from types import SimpleNamespace
import threading

import gymnasium
import numpy as np

from distrl.environments.worlds.toy import StepCounter


class TwoWords(Exception):
    """Cannot be made again from its text, as gymnasium would try."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


class Faulty(StepCounter):
    """Does what it is told to at its third step."""

    def __init__(self, how, at=3):
        super().__init__(terminate_at_steps=None, truncate_at_steps=None)
        self.how, self.at = how, at

    def step(self, action):
        result = super().step(action)
        if self._steps == self.at:
            if self.how == "raises":
                raise TwoWords("salt", "pepper")
            if self.how == "shape":
                return np.zeros(2, np.float32), *result[1:]
            if self.how == "leaves":
                os._exit(7)
            if self.how == "crashes":
                os.abort()
            if self.how == "hangs":
                threading.Event().wait()
            if self.how == "holds":  # hangs with Python's lock, so that no thread of its process runs
                ctypes.PyDLL(None).sleep(3600)
        return result


class Frameworks(StepCounter):
    """Its reward says what its process has imported."""

    def step(self, action):
        loaded = {"tensorflow", "keras", "jax", "ray", "onnxruntime"} & set(sys.modules)
        return *super().step(action)[:1], float(len(loaded)), False, False, {}


class NotThere(StepCounter):
    """Can be made twice, by the actor, but not in a worker."""

    def __init__(self, counter):
        with open(counter, "a") as file:
            file.write(".")
        if os.path.getsize(counter) > 2:
            raise OSError("the port is taken")
        super().__init__()


class LeavesThere(NotThere):
    def __init__(self, counter):
        try:
            super().__init__(counter)
        except OSError:
            os._exit(7)


class Drawing(StepCounter):
    """Shows what a global generator of its process has drawn at the making, and pays what it draws at a step."""

    def __init__(self, of):
        super().__init__(terminate_at_steps=None, truncate_at_steps=None)
        if of in LIBRARIES and multiprocessing.parent_process() is not None:  # a worker, whose modules nobody shares
            sys.modules[of] = LIBRARIES[of]
        self.draw = {"numpy": np.random.random, "random": random.random}.get(of, lambda: LIBRARIES["seeded"])
        self.at_making = np.full(1, self.draw(), np.float32)

    def reset(self, **kwargs):
        super().reset(**kwargs)
        return self.at_making, {}

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self.draw(), *rest


def remember(seed):
    LIBRARIES["seeded"] = seed


LIBRARIES = {
    "tensorflow": SimpleNamespace(random=SimpleNamespace(set_seed=remember)),
    "torch": SimpleNamespace(manual_seed=remember),
    "seeded": 0,
}


class Starting(StepCounter):
    """Each step is made by a process of its own."""

    def step(self, action):
        queue = multiprocessing.SimpleQueue()
        process = multiprocessing.Process(target=queue.put, args=(17.0,))
        process.start()
        process.join()
        return super().step(action)[0], queue.get(), False, False, {}


class Odd(StepCounter):
    def __init__(self):
        super().__init__()
        never = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))
        self.observation_space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2), "b": never})


class Drawn(StepCounter):
    def __init__(self):
        super().__init__()
        self.observation_space = gymnasium.spaces.Graph(gymnasium.spaces.Box(0, 1, (2,)), None)


class Talking(StepCounter):
    """Says, with characters that its space does not name, and at greater length, how many steps it has made."""

    def __init__(self):
        super().__init__(terminate_at_steps=3, truncate_at_steps=None)
        self.observation_space = gymnasium.spaces.Dict({"said": gymnasium.spaces.Text(5), "at": self.observation_space})

    def reset(self, **kwargs):
        at, info = super().reset(**kwargs)
        return self.seen(at), info

    def step(self, action):
        at, *rest = super().step(action)
        return self.seen(at), *rest

    def seen(self, at):
        if self._steps == 2:
            at = np.zeros(7) if self.broken else at
        return {"said": f"go to the red door, № {self._steps}!", "at": at}

    broken = False


class TalkingWrongly(Talking):
    broken = True
'''


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faulty.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


def vector(name: str, count: int, **kwargs: Any) -> VectorEnvironment:
    return VectorEnvironment(EnvironmentConfig(id=name, vectorization="async", kwargs=kwargs), count)


def zeros(count: int) -> dict[str, np.ndarray]:
    return {"action": np.zeros(count, np.int32)}


def workers(environment: VectorEnvironment) -> list[psutil.Process]:
    return [psutil.Process(process.pid) for process in environment.vector.processes]


def gone(processes: list[psutil.Process]) -> bool:
    """Return whether they have ended, or wait to be reaped by the process that inherited them."""
    return wait_until(
        lambda: not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    )


def test_cart_pole_in_processes_is_cart_pole_in_one() -> None:
    ours, theirs = vector("CartPole-v1", 3), VectorEnvironment(EnvironmentConfig(vectorization="sync"), 3)
    assert (ours.spec, ours.vectorization) == (theirs.spec, "async")
    assert ours.vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert ours.vector.shared_memory
    running = workers(ours)
    assert len({process.pid for process in running} | {os.getpid()}) == 4
    for seed in (4, 5):
        np.testing.assert_array_equal(ours.reset(seed)["observation"], theirs.reset(seed)["observation"])
        kept = []
        for actions in np.random.default_rng(0).integers(2, size=(60, 3), dtype=np.int32):
            left, right = ours.step({"action": actions}), theirs.step({"action": actions})
            kept.append((left.observations["observation"], right.observations["observation"]))
            for one, other in zip(left[1:], right[1:], strict=True):
                np.testing.assert_array_equal(one, other)
        # All of them at the end: shared memory must not show through.
        for one, other in kept:
            np.testing.assert_array_equal(one, other)
    ours.close()
    theirs.close()
    assert gone(running)


def test_an_exception_comes_back_with_its_own_traceback() -> None:
    environment = vector("faulty:Faulty", 2, how="raises")
    environment.reset(0)
    running = workers(environment)
    with pytest.raises(EnvironmentFailedError) as caught:  # noqa: PT012  # the third of them
        for _ in range(3):
            environment.step(zeros(2))
    *words, number = str(caught.value).split(" ")  # both raise, and either may be heard first
    assert number in ("0", "1")
    assert (
        " ".join(words)
        == "environment faulty:Faulty failed in step: TwoWords: salt and pepper, at step 3 of environment"
    )
    (note,) = [note for note in caught.value.__cause__.__notes__ if 'raise TwoWords("salt", "pepper")' in note][:1]
    assert "faulty.py" in note
    environment.close()
    assert gone(running)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("shape", "ValueError: 'observation' has shape (2,), its space says (1,), at step 3"),
        ("leaves", "the process of environment 0 ended: exit code 7, at step 3"),
        ("crashes", "the process of environment 0 ended: SIGABRT, at step 3"),
    ],
)
def test_what_else_goes_wrong_in_a_worker_is_said(how: str, message: str) -> None:
    environment = vector("faulty:Faulty", 1, how=how)
    environment.reset(0)
    with pytest.raises(EnvironmentFailedError) as caught:  # noqa: PT012
        for _ in range(3):
            environment.step(zeros(1))
    assert str(caught.value) == f"environment faulty:Faulty failed in step: {message}"
    environment.close()


def test_workers_carry_no_framework_even_where_their_parent_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    environment = vector("faulty:Frameworks", 1)
    environment.reset(0)
    assert environment.step(zeros(1)).rewards.tolist() == [0.0]
    environment.close()


@pytest.mark.parametrize("of", ["numpy", "random", "tensorflow", "torch"])
def test_rows_draw_different_numbers_from_global_generators_and_the_same_for_the_same_seed(of: str) -> None:
    environment = vector("faulty:Drawing", 2, of=of)
    drawn = []
    for seed in (3, 3, 4):
        at_making = environment.reset(seed)["observation"][:, 0]
        drawn.append(environment.step(zeros(2)).rewards.tolist())
    environment.close()
    assert drawn[0] == drawn[1]
    assert len({*drawn[0], *drawn[2]}) == 4
    if of in ("numpy", "random"):
        assert at_making[0] != at_making[1]


def test_an_environment_may_start_processes_as_it_may_in_the_actors_own() -> None:
    environment = vector("faulty:Starting", 2)
    environment.reset(0)
    running = workers(environment)
    assert environment.step(zeros(2)).rewards.tolist() == [17.0, 17.0]
    environment.close()
    assert gone(running)


def test_texts_come_as_they_are_and_resets_begin_anew() -> None:
    """Gymnasium's shared memory would take neither these characters nor their number; its pipes would reset twice."""
    ours = vector("faulty:Talking", 2)
    theirs = VectorEnvironment(EnvironmentConfig(id="faulty:Talking", vectorization="sync"), 2)
    assert ours.spec == theirs.spec
    for seed, steps in ((1, 3), (2, 5)):  # the second reset comes where all episodes have just ended
        for left, right in zip(ours.reset(seed).items(), theirs.reset(seed).items(), strict=True):
            assert left[0] == right[0]
            np.testing.assert_array_equal(left[1], right[1])
        for _ in range(steps):
            left, right = ours.step(zeros(2)), theirs.step(zeros(2))
            for name, array in right.observations.items():
                np.testing.assert_array_equal(left.observations[name], array)
            for one, other in zip(left[1:], right[1:], strict=True):
                np.testing.assert_array_equal(one, other)
    ours.close()
    theirs.close()


def test_what_comes_with_a_text_is_checked_too() -> None:
    environment = vector("faulty:TalkingWrongly", 1)
    environment.reset(0)
    environment.step(zeros(1))
    with pytest.raises(EnvironmentFailedError) as caught:
        environment.step(zeros(1))
    message = "ValueError: 'observation/at' has shape (7,), its space says (1,), at step 2"
    assert str(caught.value) == f"environment faulty:TalkingWrongly failed in step: {message}"
    environment.close()


def test_closing_kills_a_worker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_vector, "CLOSE_S", 0.2)
    environment = vector("faulty:Faulty", 2, how="hangs", at=1)
    environment.reset(0)
    running = workers(environment)
    for pipe in environment.vector.parent_pipes:
        pipe.send(("step", 0))
    environment.close()
    assert gone(running)


STARTER = """
import sys
from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
import numpy as np

environment = VectorEnvironment(
    EnvironmentConfig(id="faulty:Faulty", vectorization="async", kwargs={"how": sys.argv[1]}), 2
)
environment.reset(0)
print(*(process.pid for process in environment.vector.processes), flush=True)
for _ in range(3):
    environment.step({"action": np.zeros(2, np.int32)})
"""


@pytest.mark.parametrize("how", ["holds", pytest.param("hangs", marks=pytest.mark.long)])
def test_workers_end_with_a_parent_that_is_killed_whatever_they_do(how: str, tmp_path: Path) -> None:
    search = os.pathsep.join([str(Path(distrl.__file__).parent.parent), str(tmp_path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTER, how],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": search},
    )
    assert parent.stdout is not None
    running = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
    assert len(running) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert gone(running)


def test_what_cannot_be_made_in_processes_is_refused(tmp_path: Path) -> None:
    for name, where in (("Odd", "observation/b"), ("Drawn", "observation")):
        refusals = []
        for vectorization in ("async", "sync"):
            with pytest.raises(ConfigError, match=f"the space at '{where}' cannot be used: it is a ") as caught:
                VectorEnvironment(
                    EnvironmentConfig.model_validate({"id": f"faulty:{name}", "vectorization": vectorization}), 1
                )
            refusals.append(str(caught.value))
        assert refusals[0] == refusals[1]
    with pytest.raises(ConfigError, match="unknown environment 'CartPoel-v1'; the nearest ids are CartPole-v1"):
        vector("CartPoel-v1", 1)
    for name, own in (
        ("NotThere", "OSError: the port is taken"),
        ("LeavesThere", "the process of environment 0 ended: exit code 7"),
    ):
        with pytest.raises(ConfigError) as caught:
            vector(f"faulty:{name}", 1, counter=str(tmp_path / name))
        assert str(caught.value) == (
            f"environment faulty:{name} cannot be made in a process of its own: {own}; "
            "try environment.vectorization: sync"
        )
    assert not multiprocessing.active_children()


MIXED = Dict(
    image=Box(0, 255, (2, 2), np.uint8),
    pair=Tuple([Discrete(3), MultiBinary(2)]),
    said=Text(5),
    small=Box(-100, 100, (2,), np.int8),
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"image": np.zeros((2, 2), np.uint8).tolist()}, "'observation/image' is int64, its space says uint8"),
        ({"image": np.full((2, 2), 300)}, "'observation/image' is int64, its space says uint8"),
        ({"image": np.full((2, 2), 300, np.uint16)}, r"'observation/image' holds 300 … 300, which uint8 of its space"),
        ({"small": np.array([300, 1])}, r"'observation/small' holds 1 … 300, which int8 of its space cannot"),
        ({"small": np.array([-128, 127])}, None),
        ({"small": np.array([200, 1], np.uint8)}, "'observation/small' holds 1 … 200, which int8"),
        ({"image": np.uint8(3)}, r"'observation/image' has shape \(\), its space says \(2, 2\)"),
        ({"pair": (1, np.zeros(3, np.int8))}, r"'observation/pair/1' has shape \(3,\), its space says \(2,\)"),
        ({"pair": (np.zeros(1, int), np.zeros(2, np.int8))}, r"'observation/pair/0' has shape \(1,\), its space"),
    ],
)
def test_observations_are_checked_where_shared_memory_would_take_anything(change: Any, message: str | None) -> None:
    observation = {
        "image": np.zeros((2, 2), np.uint8),
        "pair": (1, np.zeros(2, np.int8)),
        "said": "so",
        "small": np.zeros(2, np.int8),
    }
    observation |= change
    if message is None:
        async_vector.check_observation("observation", MIXED, observation)
        async_vector.check_observation("observation", Sequence(Discrete(2)), ())
        return
    with pytest.raises(ValueError, match=message):
        async_vector.check_observation("observation", MIXED, observation)
