"""Learners that fail: an algorithm is the learner's alone. Named as `tests.faults.learners:Mortal`."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

from distrl.data_store import atomic
from distrl.memory_backend.stream import UnrollStream
from distrl.memory_backend.weights import WeightStore
from examples.custom_algorithm import MaximumEntropy
from tests.waiting import lasts

FATE = "DISTRL_TEST_FATE"
"""Where `Mortal` learners note what they died in, a line each; 'N' lines at most: 'N path'."""


class Sleepy(MaximumEntropy):
    """Takes a second for every batch."""

    def update(self, networks, batch):
        lasts(1.0)
        return super().update(networks, batch)


class Mortal(MaximumEntropy):
    """Its learner dies (SIGKILL) before or after one of the steps that must not be torn apart, at random.

    These are: settling, publishing, writing a file of a checkpoint, flushing it, giving the checkpoint its name.
    How often it may die, and where it notes of what, is told by the environment variable `FATE`.
    """

    STEPS = (
        (UnrollStream, "settle"),
        (atomic, "_write"),
        (WeightStore, "publish"),
        (atomic, "put_directory"),
        (atomic, "_flush"),
    )

    def build(self, spec):
        deaths, _, path = os.environ[FATE].partition(" ")
        notes = Path(path)
        told = notes.read_text().splitlines() if notes.exists() else []
        if len(told) < int(deaths):
            chance = random.Random()
            # One kind of step in each life, so that rare ones have their turn.
            owner, name = self.STEPS[len(told) % len(self.STEPS)]
            setattr(owner, name, _deadly(getattr(owner, name), name, chance, notes))
        return super().build(spec)


def _deadly(step: Callable, name: str, chance: random.Random, notes: Path) -> Callable:
    left = chance.randint(5, 25)  # calls
    before = chance.random() < 0.5

    def die(when: str) -> None:
        with notes.open("a") as file:
            file.write(f"{when} {name}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(*arguments, **options):
        nonlocal left
        left -= 1
        if left <= 0 and before:
            die("before")
        result = step(*arguments, **options)
        if left <= 0:
            die("after")
        return result

    return wrapped
