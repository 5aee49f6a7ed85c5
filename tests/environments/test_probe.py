"""The probe: a good environment's spec, and every way in which a bad one can go wrong."""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import distrl
from distrl.child import to_stderr
from distrl.config.environment import EnvironmentConfig
from distrl.environments import probe as probing
from distrl.environments.probe import MADE, probe
from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec
from tests.faults.training import alive
from tests.waiting import wait_until

HEAD = """
import os, signal, subprocess, sys
import gymnasium, numpy as np
from gymnasium.spaces import Box, Discrete

class Mine(gymnasium.Env):
    observation_space = Box(0.0, 1.0, (2,), np.float32)
    action_space = Discrete(3, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        {reset}
        return np.zeros(2, np.float32), {{}}

    def step(self, action):
        {step}
        return np.zeros(2, np.float32), 0.0, False, False, {{}}
"""
SPEC = EnvSpec("my_module:Mine", {"observation": ArraySpec((2,), "float32", 0.0, 1.0)}, {"action": DiscreteSpec(3, 1)})


@pytest.fixture(autouse=True)
def _in_a_directory_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def probe_mine(
    reset: str = "pass", step: str = "pass", timeout_s: float = 15.0, making_s: float | None = None
) -> EnvSpec:
    Path("my_module.py").write_text(HEAD.format(reset=reset, step=step))
    return probe(EnvironmentConfig(id="my_module:Mine"), timeout_s=timeout_s, making_s=making_s)


def test_the_trial_sees_the_gpus_that_the_actors_will_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    Path("my_module.py").write_text(HEAD.format(reset="raise OSError(os.environ['CUDA_VISIBLE_DEVICES'])", step="pass"))
    for devices, seen in ((None, "3"), ("0,1", "0,1")):
        with pytest.raises(ConfigError, match=rf"failed in reset: OSError: {seen}\n"):
            probe(EnvironmentConfig(id="my_module:Mine", devices=devices))


def test_what_was_chosen_otherwise_than_expected_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    Path("my_module.py").write_text(
        HEAD.format(reset="pass", step="raise OSError(time.time())")
        + """
from distrl.environments.vectors.next_step import NextStepVector

class Vector(NextStepVector):
    def __init__(self, num_envs):
        super().__init__(num_envs, Mine.observation_space, Discrete(7))

Mine.vector_entry_point = Vector
"""
    )
    with contextlib.suppress(ConfigError):
        probe(EnvironmentConfig(id="my_module:Mine"), timeout_s=15.0)
    notice = "environment my_module:Mine is stepped by sync: its own vector cannot be used: it has other spaces"
    assert capfd.readouterr().err.count(notice) == 1


REACHED = ["reachd: {none}; the nearest of its keys are reached"]


@pytest.mark.parametrize(
    ("ends", "metrics", "lines"),
    [
        (
            "True",
            {"reachd": "sum", "xyz": "sum", "speed": "last"},
            [*REACHED, "xyz: {none}; its keys are reached, speed"],
        ),
        pytest.param(
            "False",
            {"xyz": "sum", "Speeds": "last"},
            ["Speeds: {none}; the nearest of its keys are speed"],
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_metric_that_no_info_had_is_said_before_the_launch(
    ends: str,
    metrics: dict[str, Any],
    lines: list[str],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "EPISODE_S", 0.0)
    Path("my_module.py").write_text(
        HEAD.format(reset="pass", step="pass").replace(
            "0.0, False, False, {}", f"0.0, {ends}, False, {{'reached': 1, 'speed': 2.0}}"
        )
    )
    probe(EnvironmentConfig.model_validate({"id": "my_module:Mine", "metrics": metrics}), timeout_s=15.0)
    said = [line for line in capfd.readouterr().err.splitlines() if "metrics" in line]
    none = "no step of the trial had it in info"
    assert said == [f"environment my_module:Mine: environment.metrics.{line.format(none=none)}" for line in lines]


def failure(reset: str = "pass", step: str = "pass", timeout_s: float = 15.0) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        probe_mine(reset, step, timeout_s)
    assert "\n" not in str(caught.value)
    return caught.value


def detail(error: ConfigError) -> str:
    return "".join(getattr(error, "__notes__", ()))


CART_POLE = EnvSpec("CartPole-v1", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)}, 475.0, 500)


def test_one_that_is_to_be_filmed_must_show_pictures() -> None:
    assert probe(EnvironmentConfig(id="CartPole-v1"), filmed=True) == CART_POLE
    for config, told in (
        (EnvironmentConfig(id="distrl.environments.worlds.toy:StepCounter"), "render_mode"),
        (EnvironmentConfig(id="tcp://127.0.0.1:1"), "is on another machine and cannot be filmed"),
    ):
        with pytest.raises(ConfigError, match=told) as caught:
            probe(config, filmed=True)
        assert str(caught.value).startswith("evaluation.films: environment ")
        assert "\n" not in str(caught.value)


def test_kwargs_reach_the_environment() -> None:
    spec = probe(EnvironmentConfig(id="distrl.environments.worlds.toy:Bandit", kwargs={"means": [0.5, 0.25]}))
    assert (spec.actions, spec.max_episode_steps) == ({"action": DiscreteSpec(2)}, 1)


def test_actions_of_every_kind_are_tried() -> None:
    assert probe(EnvironmentConfig(id="distrl.environments.worlds.toy:Mixed")).actions == {
        "bounded": BoxSpec((2,), (-1.0, -1.0), (1.0, 1.0)),
        "choices": MultiDiscreteSpec((2, 3), (0, 0)),
        "free": BoxSpec((1, 2), (None, None), (None, None)),
        "switches": MultiBinarySpec((2,)),
        "symbol": DiscreteSpec(3, 1),
    }


def test_an_environment_in_the_working_directory_that_prints_everywhere() -> None:
    # From Python, to the descriptor itself, and from a process of its own.
    noise = "print('hello'); os.write(1, b'{\"spec\": 1}\\n'); subprocess.run(['echo', 'noise'])"
    Path("json.py").write_text("raise SystemExit('shadowed')")  # shadows no module of the standard library
    assert probe_mine(noise, noise) == SPEC


def test_a_module_that_cannot_be_imported() -> None:
    Path("broken.py").write_text("import does_not_exist_at_all\n")
    with pytest.raises(ConfigError) as caught:
        probe(EnvironmentConfig(id="broken:Mine"))
    assert str(caught.value) == (
        "environment broken:Mine: module 'broken' cannot be imported: "
        "ModuleNotFoundError: No module named 'does_not_exist_at_all'"
    )
    assert 'broken.py", line 1' in detail(caught.value)


def test_a_terminal_that_takes_nothing_ends_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrl.environments.probe._PATIENCE_S", 0.0)
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", full)
    assert probe_mine() == SPEC
    with contextlib.suppress(OSError):
        full.close()


@pytest.mark.parametrize(
    "missing", ["no_such_package.module", pytest.param("json.no_such_module", marks=pytest.mark.long)]
)
def test_a_module_that_is_not_there_brings_no_traceback(missing: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be imported: ModuleNotFoundError: No module named '") as caught:
        probe(EnvironmentConfig(id=f"{missing}:Mine"))
    assert detail(caught.value) == ""


def test_a_constructor_that_fails_brings_its_own_traceback_alone() -> None:
    code = "import gymnasium\nclass Mine(gymnasium.Env):\n    def __init__(self, level):\n        pass\n"
    Path("my_module.py").write_text(code)
    with pytest.raises(ConfigError, match="missing 1 required positional argument: 'level'") as caught:
        probe(EnvironmentConfig(id="my_module:Mine"))
    assert "TypeError" in detail(caught.value)
    assert "another exception" not in detail(caught.value)


def test_exceptions_bring_their_own_traceback() -> None:
    in_reset = failure(reset="raise OSError('no ' + chr(10) + 'display')")
    assert str(in_reset) == "environment my_module:Mine failed in reset: OSError: no display"
    assert 'my_module.py", line 12, in reset' in detail(in_reset)
    in_step = failure(step="raise ValueError(f'bad action {action}')")
    assert str(in_step).startswith("environment my_module:Mine failed in step: ValueError: bad action ")
    assert "in step\n" in detail(in_step)
    assert in_step.exit_code == 2


IN_EPISODE = """self.n = getattr(self, "n", 0) + 1
        if self.n == 7: {fails}"""
PAY_NAN = "return np.zeros(2, np.float32), np.nan, False, False, {}"
SHOW_THREE = "return np.zeros(3, np.float32), 0.0, False, False, {}"


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        pytest.param("raise KeyError('lost')", "failed in step: KeyError: 'lost', at step 7", marks=pytest.mark.long),
        pytest.param(PAY_NAN, "failed in step: ValueError: a reward is nan, at step 7", marks=pytest.mark.long),
        (SHOW_THREE, "failed in step: ValueError: 'observation' has shape (3,), its space says (2,), at step 7"),
        ("os.kill(os.getpid(), 11)", "crashed in step 7: SIGSEGV"),
    ],
)
def test_what_fails_in_the_same_step_of_each_episode_is_found_before_launch(
    fails: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrl.environments.probe.EPISODE_S", 60.0)  # however slow the machine is
    assert str(failure(step=IN_EPISODE.format(fails=fails))) == f"environment my_module:Mine {message}"


def test_what_fails_now_and_then_is_told_and_left_to_restarts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrl.environments.probe.EPISODE_S", 60.0)
    once = "os.path.exists('failed') or (open('failed', 'w'), os._exit(7))"
    ends = "\n        if self.n == 8: return np.zeros(2, np.float32), 0.0, True, False, {}"
    assert probe_mine(step=IN_EPISODE.format(fails=once) + ends) == SPEC
    assert "ended its process in step 7 with exit code 7; a second trial did not fail" in capsys.readouterr().err


def test_environments_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my_module.py").write_text(HEAD.format(reset="pass", step="raise ValueError('no dice')"))
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp") as directory:  # short: it becomes part of a socket's name
        monkeypatch.setenv("TMPDIR", directory)
        assert probe(EnvironmentConfig(vectorization="async"), timeout_s=100.0) == CART_POLE
        assert os.listdir(directory) == []
        with pytest.raises(ConfigError) as caught:
            probe(EnvironmentConfig(id="my_module:Mine", vectorization="async"), timeout_s=100.0)
        assert str(caught.value) == "environment my_module:Mine failed in step: ValueError: no dice, at step 1"
        assert "raise ValueError('no dice')" in detail(caught.value)
        assert os.listdir(directory) == []


def test_ending_the_process_and_crashing() -> None:
    ended = failure(reset="print('giving up', flush=True); os._exit(7)")
    assert str(ended) == "environment my_module:Mine ended its process in reset with exit code 7"
    assert "giving up" in detail(ended)
    crashed = failure(step="os.kill(os.getpid(), 11)")
    assert str(crashed) == "environment my_module:Mine crashed in step: SIGSEGV"
    assert "in step" in detail(crashed)  # faulthandler's


def test_a_hang_is_killed_with_all_that_it_started() -> None:
    hang = "open('pid', 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); signal.pause()"
    with pytest.raises(ConfigError) as caught:
        probe_mine(step=hang, timeout_s=3.0, making_s=60.0)
    hung = caught.value
    assert str(hung) == "environment my_module:Mine hung in step: killed after 3 s"
    assert "my_module.py" in detail(hung)  # where it hung
    assert gone(int(Path("pid").read_text()))


def test_a_process_left_behind_neither_blocks_nor_survives() -> None:
    left = "open('pid', 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    assert probe_mine(reset=left) == SPEC
    assert gone(int(Path("pid").read_text()))


def gone(pid: int) -> bool:
    """Killed processes of a dead parent stay zombies until init reaps them."""
    return wait_until(lambda: not alive(pid))


def test_the_probing_process_imports_no_learning_framework() -> None:
    report = "raise SystemExit(sorted({'tensorflow', 'keras', 'jax', 'ray'} & set(sys.modules)))"
    assert str(failure(step=report)) == "environment my_module:Mine failed in step: SystemExit: [], at step 1"


def test_the_parent_s_side_imports_no_gymnasium_and_no_opencv() -> None:
    modules = "distrl.environments.probe, distrl.environments.preprocessing.pipeline"
    program = f"import sys, {modules}; print(bool({{'gymnasium', 'cv2'}} & set(sys.modules)))"
    root = Path(distrl.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("config", "limit_s"),
    [
        ({"id": "CartPole-v1", "kwargs": {"connect_timeout_s": 50}}, 60.0),
        ({"id": "tcp://robot:1"}, 60.0 + 5.0 + 30.0 + 20.0),
        ({"id": "tcp-listen://robot:1"}, 60.0 + 30.0 + 30.0 + 20.0),
        (
            {"id": "tcp://robot:1", "kwargs": {"connect_timeout_s": 25, "give_up_s": 1, "message_timeout_s": 2}},
            60.0 + 25.0 + 1.0 + 2.0,
        ),
        ({"id": "tcp://robot:1", "kwargs": {"connect_timeout_s": -1}}, 60.0),
        ({"id": "tcp://robot"}, 60.0),
    ],
)
def test_remote_environments_have_as_long_as_their_own_time_outs(monkeypatch, config, limit_s) -> None:
    seen = []

    class UnstartedError(Exception):
        """In place of a child."""

    def child(function, request, *, timeout_s, variables):
        seen.append(timeout_s)
        raise UnstartedError

    monkeypatch.setattr(probing, "Child", child)
    with pytest.raises(UnstartedError):
        probe(EnvironmentConfig(**config))
    assert seen == [limit_s]


@pytest.mark.parametrize(
    ("id_", "line"),
    [
        ("tcp-listen://127.0.0.1:7", "waiting for an environment to dial 127.0.0.1:7 …\n"),
        ("tcp://robot:7", "reaching robot:7 …\n"),
        ("CartPole-v1", "trying out CartPole-v1 …\n"),
    ],
)
@pytest.mark.parametrize("slow", [False, True])
def test_what_takes_longer_is_told_of(capsys, monkeypatch, id_, line, slow) -> None:
    monkeypatch.setattr(probing, "_PATIENCE_S", 0.0 if slow else 1e6)

    class Ending:
        """A child that ends at the third look."""

        looks = 0

        def wait(self, timeout_s: float) -> int | None:
            self.looks += 1
            return 0 if self.looks == 3 else None

        def messages(self) -> list[dict[str, Any]]:
            return [{"look": self.looks}]

    looks = [{"look": number} for number in (1, 2, 3)]
    assert probing._wait(Ending(), EnvironmentConfig(id=id_), (30.0, 20.0), to_stderr) == (0, looks, 30.0)
    assert capsys.readouterr().err == (line if slow else "")


@pytest.mark.parametrize(
    ("step_s", "making_s", "message", "after_s"),
    [
        (4.0, 100.0, "hung in step: killed after 4 s", 9.0),
        (100.0, 4.0, "hung in import and construction: killed after 4 s (half of learner.stall_timeout_s)", 4.0),
    ],
)
def test_import_and_construction_have_a_limit_of_their_own(
    monkeypatch, clock, step_s, making_s, message, after_s
) -> None:
    """An import of five seconds, and a step that never ends."""

    class Hanging:
        """The child: what it says, and when."""

        def __init__(self) -> None:
            self.said = {0.0: "import and construction", 5.0: MADE, 5.5: "step"}

        def wait(self, timeout_s: float) -> None:
            clock.now += timeout_s

        def messages(self) -> list[dict[str, Any]]:
            return [{"stage": self.said.pop(at)} for at in list(self.said) if at <= clock.now]

        def output(self) -> str:
            return ""

    monkeypatch.setattr(probing, "Child", lambda *given, **options: contextlib.nullcontext(Hanging()))
    monkeypatch.setattr(probing, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(probing, "_POLL_S", 0.5)
    with pytest.raises(ConfigError) as caught:
        probe(EnvironmentConfig(id="my_module:Mine", step_timeout_s=step_s), making_s=making_s)
    assert (str(caught.value), clock.now) == (f"environment my_module:Mine {message}", after_s)


def test_a_host_without_the_environment_takes_its_spec_from_a_file(tmp_path):
    file = tmp_path / "spec.json"
    file.write_text(SPEC.to_json())
    config = EnvironmentConfig(id="my_module:Mine", spec_file=str(file))  # no such module here
    assert probe(config) == SPEC
    with pytest.raises(ConfigError, match=rf"spec_file {file} is of my_module:Mine, the run of other:Env; write it"):
        probe(config.model_copy(update={"id": "other:Env"}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory; write it where the environment is: distrl env check m:E"),
        (b'{"id": "m:E"}', "holds no spec of an environment; write it"),
        (b"\xff", "holds no spec of an environment; write it"),
    ],
)
def test_a_file_without_a_spec_is_one_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "spec.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as raised:
        probe(EnvironmentConfig(id="m:E", spec_file=str(tmp_path / "spec.json")))
    assert "\n" not in str(raised.value)
