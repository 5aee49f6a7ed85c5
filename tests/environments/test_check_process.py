"""The examining processes: what they find arrives, and one that hangs, crashes or is not wanted any more is killed."""

import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from distrl.config.environment import EnvironmentConfig
from distrl.environments import check as checking
from distrl.environments.check import (
    BACK_ENDS,
    CheckedEpisode,
    CheckedSpaces,
    FirstObservation,
    Infos,
    Speed,
    check_environment,
)
from distrl.errors import ConfigError, EnvironmentFailedError
from tests.faults.training import alive
from tests.waiting import wait_until

WORLD = """
    import os, pathlib, signal
    import gymnasium, numpy as np
    from gymnasium.spaces import Box, Discrete

    class Mine(gymnasium.Env):
        observation_space = Box(-1.0, 1.0, (2,), np.float32)
        action_space = Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            pathlib.Path("pid").write_text(str(os.getpid()))
            print("noise from the environment")
            {reset}
            return np.zeros(2, np.float32), {{}}

        def step(self, action):
            {step}
            return np.zeros(2, np.float32), 1.0, True, False, {{}}
"""


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(reset="pass", step="pass", *, back_ends=(), timeout_s=60.0, progress=lambda text: None, monkeypatch):
    """Everything that is found about a world that does this in reset and that in step."""
    Path("my_world.py").write_text(textwrap.dedent(WORLD).format(reset=reset, step=step))
    monkeypatch.setattr(checking, "BACK_ENDS", back_ends)
    config = EnvironmentConfig(id="my_world:Mine")
    return list(check_environment(config, environments=2, pictures=Path(), timeout_s=timeout_s, progress=progress))


def gone(pid: int) -> bool:
    """Whether the process has ended; one that was killed a moment ago may take a while."""
    return wait_until(lambda: not alive(pid))


def test_every_back_end_of_the_configuration_is_measured():
    assert {"own", "sync"} <= set(BACK_ENDS)
    assert "auto" not in BACK_ENDS


def test_findings_in_order_and_a_back_end_that_cannot_is_told_with_its_reason(monkeypatch):
    findings = check(back_ends=("own", "sync"), monkeypatch=monkeypatch)
    assert [type(finding) for finding in findings] == [
        CheckedSpaces,
        FirstObservation,
        CheckedEpisode,
        CheckedEpisode,
        CheckedEpisode,
        Infos,
        Speed,
        Speed,
    ]
    assert findings[2] == CheckedEpisode(length_steps=1, total=1.0, end="terminated")
    own, sync = findings[-2:]
    assert (own.vectorization, own.steps_per_s) == ("own", None)
    assert own.reason.startswith("environment.vectorization: own is impossible: it has no vector entry point")
    assert (sync.vectorization, sync.reason) == ("sync", "")
    assert sync.steps_per_s > 0


def test_a_hang_is_killed_and_told_with_the_place(monkeypatch):
    with pytest.raises(EnvironmentFailedError) as raised:
        check(step="signal.pause()", timeout_s=5.0, monkeypatch=monkeypatch)
    assert str(raised.value) == (
        "environment my_world:Mine hung while stepping through episode 1 of 3 with random actions: "
        "killed after 5 s; --timeout gives it longer"
    )
    (detail,) = raised.value.__notes__
    assert "noise from the environment" in detail
    assert "my_world.py" in detail
    assert "in step" in detail
    assert gone(int(Path("pid").read_text()))


@pytest.mark.parametrize(
    ("reset", "message"),
    [
        ("os.abort()", "crashed while resetting: SIGABRT"),
        ("os._exit(5)", "ended its process while resetting with exit code 5"),
        pytest.param("os._exit(0)", "ended its process while resetting with exit code 0", marks=pytest.mark.long),
        ("raise KeyError('lost')", "failed in reset: KeyError: 'lost'"),
    ],
)
def test_an_environment_that_ends_its_process(reset, message, monkeypatch):
    with pytest.raises(EnvironmentFailedError, match=message) as raised:
        check(reset, monkeypatch=monkeypatch)
    assert raised.value.__notes__


def test_an_unknown_environment_is_a_matter_of_configuration():
    findings = check_environment(
        EnvironmentConfig(id="CartPol-v1"), environments=1, pictures=Path(), timeout_s=60.0, progress=print
    )
    with pytest.raises(
        ConfigError, match="unknown environment 'CartPol-v1'; the nearest ids are CartPole-v1"
    ) as raised:
        next(findings)
    assert not hasattr(raised.value, "__notes__")


def test_what_takes_long_is_told_once_and_ctrl_c_leaves_no_process(monkeypatch):
    told = []

    def interrupt(text):
        told.append(text)
        if text == "resetting …":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(reset="signal.pause()", progress=interrupt, monkeypatch=monkeypatch)
    assert told[-1] == "resetting …"
    assert len(set(told)) == len(told)
    assert gone(int(Path("pid").read_text()))


def test_a_process_that_dies_before_it_reads_is_told_of(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    findings = check_environment(
        EnvironmentConfig(id="X"), environments=1, pictures=Path(), timeout_s=60.0, progress=print
    )
    with pytest.raises(ConfigError, match="environment X ended its process while starting with exit code 1"):
        next(findings)


def test_image_files_are_named_after_the_environment(monkeypatch):
    asked = []
    monkeypatch.setattr(checking, "_findings", lambda request, progress: asked.append(request) or ())
    config = EnvironmentConfig(id="ALE/Pong-v5", vectorization="sync", kwargs={"a": 1})
    arguments = SimpleNamespace(environments=3, pictures=Path("here"), timeout_s=9.0, progress=print)
    assert list(check_environment(config, **vars(arguments))) == []
    assert {request.pictures for request in asked} == {Path("here/ALE-Pong-v5")}
    assert [(request.config.vectorization, request.count) for request in asked] == [
        ("sync", None),
        *((back_end, 3) for back_end in BACK_ENDS),
    ]
    assert {request.config.kwargs["a"] for request in asked} == {1}
