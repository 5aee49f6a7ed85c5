"""Findings of `distrl env check`, made in this process; test_check_process.py makes them in child processes."""

import itertools
import os
import tempfile
from pathlib import Path

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from distrl.child import Child
from distrl.config.environment import EnvironmentConfig
from distrl.environments import check
from distrl.environments.check import (
    FINDING,
    CheckedEpisode,
    CheckedSpaces,
    FirstObservation,
    Processed,
    Speed,
    Stage,
    look,
    speed,
)
from distrl.errors import ConfigError, EnvironmentFailedError
from distrl.types import OneHot


class Odd(gymnasium.Env):
    """Leaves its bounds at step 2 and ends at step 4 with both flags."""

    def __init__(self, raises=False):
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = Discrete(2)
        self.raises = raises

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.raises:
            raise RuntimeError("broken")
        shown = 7.0 if self.steps == 2 else 0.5
        return np.array([0.0, shown], np.float32), 1.0, self.steps == 4, self.steps == 4, {}


def config(name, module="distrl.environments.worlds.chains", vectorization="auto", **kwargs):
    return EnvironmentConfig(id=f"{module}:{name}", vectorization=vectorization, kwargs=kwargs)


def looked(tmp_path, *args, episode_s=5.0, **kwargs):
    return list(look(config(*args, **kwargs), tmp_path / "seen", episode_s))


def test_what_preprocessing_makes_of_it_step_by_step(tmp_path):
    steps = [
        {"step": "one_hot"},
        {"step": "stack", "frames": 3},
        {"step": "scale", "of": "reward", "divide": 2},
    ]
    plain, processed = (
        list(look(config("Corridor").model_copy(update=given), tmp_path / "seen", 5.0))
        for given in ({}, {"preprocessing": EnvironmentConfig.model_validate({"preprocessing": steps}).preprocessing})
    )
    found = [(finding.step, finding.observations["observation"].shape) for finding in only(Processed, processed)]
    before = only(CheckedSpaces, plain)[0].spec.observations["observation"]
    row = before.expanded.shape
    after = (3 * row[0],)
    assert found == [("environment", before.shape), ("one_hot", row), ("stack", after), ("scale", after)]
    assert not only(Processed, plain)
    assert only(CheckedSpaces, processed)[0].spec.observations["observation"].shape == after
    # Returns are the environment's own.
    assert [episode.total for episode in only(CheckedEpisode, processed)] == [
        episode.total for episode in only(CheckedEpisode, plain)
    ]


def only(kind, findings):
    return [finding for finding in findings if isinstance(finding, kind)]


def test_a_look_at_the_chain(tmp_path):
    findings = looked(tmp_path, "Chain", steps=7)
    assert [finding.kind for finding in findings] == [
        *("stage", "spaces", "stage", "seen"),
        *("stage", "episode") * 3,
        *("infos", "stage"),
    ]
    (spaces,) = only(CheckedSpaces, findings)
    assert (spaces.spec.max_episode_steps, spaces.vectorization) == (7, "sync")
    assert spaces.spec.observations["observation"].categories == OneHot((), (5,), (0,))
    (seen,) = only(FirstObservation, findings)
    assert seen.text.split() == ["[0]", "0", "│"]  # state 0
    # 1 + 0 + 2 + 0 + 4 + 2 + 0 by hand
    assert only(CheckedEpisode, findings) == [CheckedEpisode(length_steps=7, total=9.0, end="truncated")] * 3
    assert [finding.doing for finding in only(Stage, findings)][2] == (
        "stepping through episode 1 of 3 with random actions"
    )


def test_the_other_end(tmp_path):
    episodes = only(CheckedEpisode, looked(tmp_path, "Chain", end="termination"))
    assert episodes == [CheckedEpisode(length_steps=5, total=7.0, end="terminated")] * 3


def test_oddities_are_told_and_both_flags_are_one_end(tmp_path):
    odd = "observation 'observation' leaves its bounds -1.0 … 1.0"
    episodes = only(CheckedEpisode, looked(tmp_path, "Odd", module=__name__))
    assert episodes == [CheckedEpisode(length_steps=4, total=4.0, end="terminated and truncated", odd=(odd,))] * 3


def test_an_episode_that_does_not_end_is_cut_short(tmp_path):
    findings = looked(tmp_path, "Corridor", length=500, max_episode_steps=None, episode_s=0.02)
    assert [episode.end for episode in only(CheckedEpisode, findings)] == ["cut short"] * 3


def test_an_image_is_a_file_of_its_own_name(tmp_path):
    kwargs = {"world": "8x16", "state_representation": "cam", "max_episode_steps": 5}
    (seen,) = only(
        FirstObservation, looked(tmp_path, "GridWorld", module="distrl.environments.worlds.grid_world", **kwargs)
    )
    assert seen.path == tmp_path / "seen-observation.png"
    image = cv2.imread(str(seen.path))
    assert image.shape == (80, 160, 3)
    assert image[0, 0].tolist() == [255, 0, 0]  # the agent; blue first


def test_errors_come_as_they_are(tmp_path):
    with pytest.raises(EnvironmentFailedError, match="failed in step: RuntimeError: broken"):
        looked(tmp_path, "Odd", module=__name__, raises=True)
    with pytest.raises(ConfigError, match="nearest classes are"):
        looked(tmp_path, "Chian")


def test_speed_counts_steps_and_not_resets(monkeypatch):
    clock = itertools.count(0.0, 0.25)
    monkeypatch.setattr(check.time, "perf_counter", lambda: next(clock))
    one_step = config("Chain", vectorization="sync", end="termination", steps=1)
    findings = list(speed(one_step, 6, 1.0))
    assert [finding.kind for finding in findings] == ["stage", "stage", "stage", "speed", "stage"]
    # Three calls until the clock says 1 s: a reset, a step, a reset.
    assert only(Speed, findings) == [Speed(vectorization="sync", steps_per_s=6.0)]
    with pytest.raises(ConfigError, match="it has no vector entry point"):
        list(speed(config("Corridor", vectorization="own"), 3, 1.0))


def test_findings_survive_the_journey_between_the_processes(tmp_path):
    findings = [
        *looked(tmp_path, "Chain"),
        *looked(tmp_path, "Odd", module=__name__),
        FirstObservation(name="x", path=Path("y")),
    ]
    for finding in findings:
        assert FINDING.validate_json(finding.model_dump_json()) == finding


def test_processes_leave_nothing_behind(tmp_path, monkeypatch):
    request = check.CheckRequest(
        config=config("Chain", vectorization="async"), count=1, pictures=tmp_path / "x", stage_timeout_s=60.0
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # a short path, as the names of sockets must be
        monkeypatch.setenv("TMPDIR", directory)
        with Child("distrl.environments.check:examine", request.model_dump(mode="json"), timeout_s=60.0) as child:
            assert child.wait(60.0) == 0
            assert "speed" in [message["kind"] for message in child.messages()]
        assert os.listdir(directory) == []
