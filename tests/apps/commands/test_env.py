"""`distrl env check`: what is asked for, and what is printed of what was found."""

from pathlib import Path

import pytest
import yaml

from distrl.apps.commands import main
from distrl.environments.check import CheckedEpisode, CheckedSpaces, FirstObservation, Infos, Notice, Processed, Speed
from distrl.errors import EnvironmentFailedError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

SPEC = EnvSpec(
    id="Mine-v0",
    observations={"camera": ArraySpec((8, 8, 3), "uint8", 0.0, 255.0), "joints": ArraySpec((4,), "float32")},
    actions={
        "arm": BoxSpec((3,), (-1.0, -1.0, None), (1.0, 1.0, 2.0)),
        "buttons": MultiBinarySpec((2, 2)),
        "gear": DiscreteSpec(3, -1),
        "keys": MultiDiscreteSpec((2, 5), (0, 0)),
    },
    max_episode_steps=500,
)

FOUND = (
    CheckedSpaces(spec=SPEC, vectorization="sync", mask="legal"),
    Notice(text="environment Mine-v0 is stepped by sync"),
    Processed(step="environment", observations={"camera": ArraySpec((16, 16, 3), "uint8")}),
    Processed(step="resize", observations=SPEC.observations),
    FirstObservation(name="camera", path=Path("here/Mine-v0-camera.png")),
    FirstObservation(name="joints", text="  [0]  1 │█\n  [1]  2 │██"),
    CheckedEpisode(length_steps=1200, total=1200.5, end="truncated"),
    CheckedEpisode(
        length_steps=3, total=3.0, end="terminated", odd=("observation 'joints' leaves its bounds -1.0 … 1.0",)
    ),
    CheckedEpisode(length_steps=9, total=-9.0, end="terminated and truncated"),
    Infos(numbers=("at", "speed"), others=("camera",)),
    Speed(vectorization="own", reason="it has none"),
    Speed(vectorization="sync", steps_per_s=12345.6),
)

PRINTED = """\
Mine-v0
              name      shape       dtype     bounds
observation   camera    [8, 8, 3]   uint8     0 … 255
observation   joints    [4]         float32   none that all numbers share
action        arm       [3]         float32   -1 … 1, -∞ … 2
action        buttons   [4]         int32     each 0 or 1
action        gear      []          int32     -1 … 1: 3 choices
action        keys      [2]         int32     choices: 2, 5
reward threshold: none
longest episode, steps: 500
action mask: legal; network.heads_parameters names it (action_mask)
note: environment Mine-v0 is stepped by sync

observations, step by step of environment.preprocessing
  environment   camera [16, 16, 3] uint8
  resize        camera [8, 8, 3] uint8, joints [4] float32

first observation, as the network sees it
  camera: here/Mine-v0-camera.png
  joints
    [0]  1 │█
    [1]  2 │██

episodes with random actions
  1   1,200 steps   return 1,200.5   truncated
  2   3 steps   return 3   terminated
      observation 'joints' leaves its bounds -1.0 … 1.0
  3   9 steps   return -9   terminated and truncated
  2 terminated, 2 truncated, 0 cut short

keys of info in these steps
  numbers, for environment.metrics: at, speed
  others: camera

steps/s of 8 environments together
  own                -   it has none
  sync          12,346   taken by environment.vectorization
"""


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def asked(monkeypatch):
    """Stands for the check: keeps what it was asked, tells of something slow, and finds what the test says."""

    class Asked:
        calls = ()
        found = ()

        def __call__(self, config, **arguments):
            self.calls = (*self.calls, (config, arguments))
            arguments["progress"]("resetting …")
            for finding in self.found:
                if isinstance(finding, BaseException):
                    raise finding
                yield finding

    double = Asked()
    monkeypatch.setattr("distrl.environments.check.check_environment", double)
    return double


HEADS = "network.heads_parameters=[{kind: ppo, action_mask: legal}]"


def run(capsys, *arguments):
    code = main.main(["env", "check", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_everything_that_was_found_is_printed(capsys, asked):
    asked.found = FOUND
    code, out, err = run(capsys, "Mine-v0")
    assert (code, err) == (0, "resetting …\n")
    assert "\n".join(line.rstrip() for line in out.splitlines()) + "\n" == PRINTED


def test_what_an_environment_names_commands_no_terminal(capsys, asked):
    name = "a\x1b[31m\x07\u202eb"
    array = ArraySpec((2,), "float32")
    asked.found = (
        CheckedSpaces(spec=EnvSpec(name, {name: array}, {name: DiscreteSpec(2)}), vectorization="sync", mask=name),
        Processed(step="environment", observations={name: array}),
        FirstObservation(name=name, text=name),
        CheckedEpisode(length_steps=1, total=1.0, end="terminated", odd=(name,)),
        Infos(numbers=(name,), others=(name,)),
        Speed(vectorization="own", reason=name),
    )
    code, out, _ = run(capsys, "Mine-v0")
    assert (code, out.count("a?[31m??b")) == (0, 11)
    assert all(map(str.isprintable, out.splitlines()))


def test_a_first_configuration_is_printed_alone_and_no_speed_is_measured(capsys, asked):
    asked.found = FOUND
    code, out, err = run(capsys, "Mine-v0", "--yaml")
    assert (code, err) == (0, "resetting …\n")
    assert out.splitlines()[0].startswith("# A first configuration for Mine-v0")
    assert yaml.safe_load(out)["environment"] == {"id": "Mine-v0", "metrics": {"at": "last", "speed": "last"}}
    assert asked.calls[0][1]["environments"] is None


def test_what_was_found_before_an_error_is_printed(capsys, asked):
    error = EnvironmentFailedError("environment Mine-v0 hung while resetting: killed after 30 s")
    error.add_note('File "mine.py", line 6 in reset')
    asked.found = (*FOUND[:1], error)
    code, out, err = run(capsys, "Mine-v0")
    assert code == 3
    assert out.startswith("Mine-v0\n")
    assert err.splitlines()[1:] == [f"distrl: error: {error}", 'File "mine.py", line 6 in reset']


def test_ctrl_c(capsys, asked):
    asked.found = (KeyboardInterrupt(),)
    assert run(capsys, "Mine-v0") == (130, "", "resetting …\n")


def test_defaults_and_options(capsys, asked):
    run(capsys, "CartPole-v1")
    arguments = ["--environments", "3", "--pictures", "here", "--timeout", "90"]
    run(
        capsys,
        "x:Y",
        *arguments,
        "--set",
        "environment.kwargs.size=4",
        "--set",
        "environment.vectorization=sync",
        "--set",
        HEADS,
    )
    (first, defaults), (second, options) = asked.calls
    assert (first.id, first.vectorization, first.kwargs) == ("CartPole-v1", "auto", {})
    assert (second.id, second.vectorization, second.kwargs) == ("x:Y", "sync", {"size": 4})
    for found in (defaults, options):
        del found["progress"]
    # No file is written unasked.
    assert defaults == {"environments": 8, "pictures": None, "timeout_s": 30.0, "action_mask": None}
    assert options == {"environments": 3, "pictures": Path("here"), "timeout_s": 90.0, "action_mask": "legal"}


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["mine.yaml"], "FromFile-v0"),
        (["mine.yaml", "--env", "Other-v0"], "Other-v0"),
        (["--preset", "memory-cue"], "distrl.environments.worlds.toy:MemoryCue"),
        (["Third-v0", "--preset", "memory-cue"], "Third-v0"),
        (["--env", "Fourth-v0"], "Fourth-v0"),
    ],
)
def test_where_the_environment_is_named(capsys, asked, arguments, name):
    Path("mine.yaml").write_text("environment: {id: FromFile-v0}\n")
    assert run(capsys, *arguments)[0] == 0
    assert asked.calls[0][0].id == name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which environment? For example: distrl env check CartPole-v1"),
        (["A-v0", "--env", "B-v0"], "two environments: A-v0 and --env B-v0; leave one out"),
        (["A-v0", "--set", "environment.vectorisation=own"], "vectorization"),
        (["no.yaml"], "no.yaml"),
    ],
)
def test_usage(capsys, asked, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert message in line
    assert asked.calls == ()


def test_help_has_examples(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "distrl env check CartPole-v1" in out
    assert main.main(["env"]) == 2
    assert "check" in capsys.readouterr().out


def test_a_bad_id_ends_with_the_nearest_ones(capsys):
    code, out, err = run(capsys, "CartPol-v1")
    assert (code, out) == (2, "")
    assert "distrl: error: unknown environment 'CartPol-v1'; the nearest ids are CartPole-v1, CartPole-v0" in err


def test_the_spec_alone_is_json_that_another_host_reads(capsys):
    assert main.main(["env", "check", "CartPole-v1", "--json"]) == 0
    spec = EnvSpec.from_json(capsys.readouterr().out)
    assert (spec.id, spec.actions) == ("CartPole-v1", {"action": DiscreteSpec(2)})
