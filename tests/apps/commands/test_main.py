import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import distrl
from distrl.apps.commands import completion, main
from distrl.apps.config.configuration import load
from distrl.apps.trackers.tracking import Trackers
from distrl.config import RunConfig
from distrl.config.actors import ActorsConfig
from distrl.config.algorithms import ALGORITHMS
from distrl.config.load import dump
from distrl.config.settings import settings_in
from distrl.errors import CheckpointError, ConfigError, MemoryBackendError
from distrl.launch.outcome import Outcome
from distrl.roles.plan import Role
from distrl.roles.trust import Trust
from distrl.runs.run_directory import write_run_json
from distrl.runs.saved_checkpoints import commands as checkpoint_commands
from distrl.terminal.console import PlainView, QuietView
from tests import run_folders

HEAVY = ["gymnasium", "jax", "keras", "numpy", "onnxruntime", "ray", "redis", "tensorboardX", "tensorflow"]


def summary(**changes):
    return run_folders.summary(**{"run_id": "r", "stop_reason": "asked", "mean_return_100": None, **changes})


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder to work in, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(distrl.__file__).parent.parent))  # for processes that tests start
    for name in ("DISTRL_DEBUG", "DISTRL_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def trained(monkeypatch):
    """Stands for the launch: keeps what it was called with, and does what `outcome` says."""

    class Trained:
        calls = ()
        run_ids = ()
        outcome = summary()

        def __call__(self, loaded, *, run_dir, resume, run_id, view, observers, here, head_start=None, interrupt=None):
            assert observers == [Trackers]
            self.calls = (*self.calls, (loaded, run_dir, resume, view))
            self.run_ids = (*self.run_ids, run_id)
            if isinstance(self.outcome, BaseException):
                raise self.outcome
            return self.outcome

    double = Trained()
    monkeypatch.setattr("distrl.launch.training.train", double)
    return double


def run(capsys, *arguments):
    """(exit code, stdout, stderr) of one command line."""
    code = main.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys, *arguments, code=2):
    """The one line that an error is, without its beginning."""
    got, out, err = run(capsys, *arguments)
    assert got == code
    assert out == ""
    (line,) = err.splitlines()
    return line.removeprefix("distrl: error: ")


def test_an_actor_id_that_no_unroll_can_carry_is_refused_before_anything_is_opened(capsys):
    told = refused(capsys, "actor", "--redis-url", "redis://nowhere.invalid", "--run-id", "r", "--id", "1" + 18 * "0")
    assert told.startswith(f"actor id {10**18} is not allowed; use a number from 0 to ")


def modules_after(code):
    code += f"\nimport sys; print(sorted(set({HEAVY}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import distrl; distrl.RunConfig()",
        "import distrl.apps.commands.main; distrl.apps.commands.main.main(['--help'])",
    ],
)
def test_importing_and_helping_bring_nothing_heavy(code):
    assert modules_after(code) == "[]"


def test_python_dash_m():
    done = subprocess.run([sys.executable, "-m", "distrl", "presets"], capture_output=True, text=True, check=True)
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if not line.startswith(" "))
    assert told["cartpole-impala"].startswith("CartPole-v1 · impala")
    done = subprocess.run([sys.executable, "-m", "distrl", "trian"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "distrl: error: No such command 'trian'. Did you mean 'train'? (see distrl --help)\n"


def test_the_commands_are_those_that_are_built(capsys):
    built = {command.name for command in typer.main.get_command(main.app).commands.values()}
    assert built == {
        *(
            "train",
            "actor",
            "actors",
            "learner",
            "serve-env",
            "status",
            "scale",
            "pause",
            "resume",
            "stop",
            "chaos",
            "dashboard",
            "sweep",
            "tune",
        ),
        *("autoscale", "health", "set", "checkpoint", "evaluate-now", "submit", "jobs", "logs"),
        *("bench", "doctor", "presets", "config", "network", "env", "evaluate", "evaluator", "export", "inference"),
        *("runs", "compare", "plot", "report", "redis", "record", "data", "serve"),
    }
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "distrl train --preset cartpole-impala" in out
    assert run(capsys)[:1] == (2,)


@pytest.mark.parametrize(
    "command",
    [
        *("train", "actor", "actors", "learner", "evaluator", "evaluate", "export"),
        *("status", "scale", "pause", "resume", "stop", "chaos", "bench", "doctor", "presets"),
        *("runs", "compare", "plot", "report", "serve"),
    ],
)
def test_every_command_has_an_example(capsys, command):
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"distrl {command}" in out.split("Usage")[1].split("\n", 1)[1]


def commands(group=None):
    """Every command with its path, groups included."""
    group = group or typer.main.get_command(main.app)
    for name, command in group.commands.items():
        yield [name], command
        if hasattr(command, "commands"):
            yield from (([name, *path], inner) for path, inner in commands(command))


@pytest.mark.parametrize("path", [[], *(path for path, _ in commands())], ids=" ".join)
def test_help_shows_no_python_types(capsys, path):
    code, out, _ = run(capsys, *path, "--help")
    assert code == 0
    assert not re.search(r"<(bool|str|int|float|path|file|list)", out)
    for line in out.splitlines():
        assert not re.search(r"--(help|json|quiet|plain|force|version)\s+[A-Z]{2,}\s", line), line


@pytest.mark.parametrize("step", [None, 1200])
def test_the_command_lines_of_checkpoints_are_parsed(step):
    for line in checkpoint_commands(Path("/runs/my run"), step, Path("/runs/new")).values():
        _, *words = shlex.split(line)
        group = typer.main.get_command(main.app)
        name, command, rest = group.resolve_command(group.make_context("distrl", [*words]), words)
        values = command.make_context(name, rest).params.values()
        named = "/runs/my run" if step is None else "/runs/my run@1200"
        assert {named, "/runs/my run@best"} & {str(value) for value in values}


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"distrl {distrl.__version__}\n", "")


def test_help_names_every_algorithm(capsys):
    for command in (["train"], ["network", "show"], ["config", "show"], ["bench"]):
        told = " ".join(re.sub("[│╭╰]", " ", run(capsys, *command, "--help")[1]).split())
        assert f"What learns: {', '.join(ALGORITHMS)}, or package.module:Class." in told


def test_the_network_of_a_run_is_shown_with_changes(capsys, monkeypatch, tmp_path):
    (tmp_path / "config.yaml").write_text("environment: {id: CartPole-v1}\nnetwork: {softmax_temperature: 0.5}\n")
    monkeypatch.setattr(
        "distrl.launch.network_view.network_view", lambda config: f"{config.network.softmax_temperature}"
    )
    for name in (tmp_path, tmp_path / "config.yaml"):
        code, out, _ = run(capsys, "network", "show", str(name))
        assert (code, out) == (0, "0.5\n")
    assert run(capsys, "network", "show", str(tmp_path), "--set", "network.softmax_temperature=2")[1] == "2.0\n"


def completed(line):
    """The completions that bash would show for a line."""
    words = line.split(" ")
    environment = {"_DISTRL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    code = "import sys; from distrl.apps.commands.main import app; app(prog_name='distrl')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    return done.stdout.splitlines()


def test_the_shell_completes_values(workplace):
    for name in ("runs/first", "runs/second", "elsewhere/third"):
        (workplace / name).mkdir(parents=True)
        (workplace / name / "run.json").write_text("{}")
    (workplace / "runs" / "no-run").mkdir()
    os.utime(workplace / "runs" / "first" / "run.json", (9e9, 9e9))
    assert completed("distrl train --preset cartpole-i") == ["cartpole-impala"]
    assert completed("distrl status ru") == ["runs/first", "runs/second"]


@pytest.mark.parametrize(
    ("complete", "incomplete", "found"),
    [
        (completion.presets, "halfcheetah-a", ["halfcheetah-appo"]),
        (completion.trackers, "m", ["mlflow"]),
        (completion.algorithms, "a", ["a3c", "a2c", "acer", "apex", "appo", "awac"]),
        (completion.assignments, "actors.c", ["actors.count="]),
        (completion.assignments, "actor", ...),
        (completion.runs, "", ["runs/first", "runs/second"]),
        (completion.runs, "elsewhere/t", ["elsewhere/third"]),
        (completion.runs, "nowhere/", []),
        (completion.runs_and_sweeps, "runs/s", ["runs/sweep", "runs/second"]),
        (completion.assignments_and_runs, "runs/s", ["runs/second"]),
        (completion.runs_and_files, "m", ["mine.yaml"]),
        (completion.runs, "waits/", ["waits/job"]),
        (completion.targets, "h", ["here"]),
    ],
)
def test_completions(workplace, complete, incomplete, found):
    for age, name in enumerate(("runs/second", "runs/first", "elsewhere/third")):
        (workplace / name).mkdir(parents=True)
        (workplace / name / "run.json").write_text("{}")
        os.utime(workplace / name / "run.json", (age, age))
    (workplace / "mine.yaml").write_text("")
    (workplace / "runs" / "sweep").mkdir()
    (workplace / "runs" / "sweep" / "sweep.json").write_text("{}")
    (workplace / "waits" / "job").mkdir(parents=True)
    (workplace / "waits" / "job" / "job.json").write_text("{}")
    if found is ...:
        inner = {"autoscale": [f"autoscale.{name}" for name in type(ActorsConfig().autoscale).model_fields]}
        found = [f"actors.{path}=" for name in ActorsConfig.model_fields for path in inner.get(name, [name])]
    assert complete(incomplete) == found


def test_train_puts_the_layers_together(capsys, trained, workplace):
    (workplace / "mine.yaml").write_text("actors: {environments: 8}\n")
    arguments = ["--preset", "cartpole-impala", "--actors", "3", "--set", "network.learning_rate=1e-3", "--seed", "5"]
    code, _, err = run(capsys, "train", "mine.yaml", *arguments, "--run-dir", "here", "--quiet")
    assert (code, err) == (0, "")
    ((loaded, run_dir, resume, view),) = trained.calls
    config = loaded.config
    assert (config.actors.count, config.actors.environments, config.seed) == (3, 8, 5)
    assert config.network.learning_rate == 0.001
    assert loaded.origins["actors.count"] == "flag --actors"
    assert loaded.origins["actors.environments"] == "file mine.yaml"
    assert (str(run_dir), resume) == ("here", None)
    assert isinstance(view._view, QuietView)


@pytest.mark.row("D45")
def test_every_flag_of_train_arrives(capsys, trained):
    flags = ["--env", "Acrobot-v1", "--algorithm", "impala", "--launcher", "ray", "--ray-address", "auto"]
    code, _, _ = run(capsys, "train", *flags, "--redis-url", "redis://h:1/0", "--seed", "9", "--plain")
    ((loaded, run_dir, _, view),) = trained.calls
    config = loaded.config
    assert code == 0
    assert (config.environment.id, config.algorithm.name, config.seed) == ("Acrobot-v1", "impala", 9)
    assert (config.launch.launcher, config.launch.ray_address) == ("ray", "auto")
    assert config.memory.url == "redis://h:1/0"
    assert run_dir.parent.name == "runs"
    assert run_dir.name.startswith("Acrobot-v1-impala-20")
    assert isinstance(view._view, PlainView)


def test_the_redis_url_can_come_from_the_environment_and_leaves_its_password_there(capsys, trained, monkeypatch):
    monkeypatch.setenv("DISTRL_REDIS_URL", "redis://me:secret@h:1/0")
    run(capsys, "train", "--env", "CartPole-v1", "--quiet")
    assert trained.calls[0][0].config.memory.url == "redis://me@h:1/0"


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--env", "CartPole-v1", "--redis-url"),
        ("actor", "--run-id", "r", "--id", "7", "--redis-url"),
        ("evaluator", "--run-id", "r", "--redis-url"),
        ("learner", "--run-id", "r", "--redis-url"),
        ("status", "--run-id", "r", "--redis-url"),
        ("doctor", "--redis-url"),
        ("dashboard", ".", "--redis-url"),
    ],
    ids=lambda words: words[0],
)
def test_a_password_on_the_command_line_is_refused(capsys, monkeypatch, words):
    for given in ("redis://:s3cret@h:1/0", "redis://h:1/0?password=s3cret", "unix://me:s3cret@/x"):
        monkeypatch.setenv("DISTRL_REDIS_URL", given)  # where it may be
        assert refused(capsys, *words, given) == (
            "--redis-url holds a password, which others could read; put it into the environment variable "
            "DISTRL_REDIS_PASSWORD, or the path of its file into DISTRL_REDIS_PASSWORD_FILE"
        )


def test_what_to_train(capsys, trained):
    assert refused(capsys, "train") == "what to train? For example: distrl train --preset cartpole-impala"
    assert refused(capsys, "train", "--actors", "2").startswith("what to train?")
    assert refused(capsys, "train", "--set", "seed=2").startswith("what to train?")
    assert trained.calls == ()


def test_a_setting_names_the_environment_as_its_flag_does(capsys, trained):
    assert run(capsys, "train", "--set", "environment.id=Acrobot-v1", "--quiet")[0] == 0
    (loaded, *_) = trained.calls[0]
    assert loaded.config.environment.id == "Acrobot-v1"


def test_resuming_uses_the_runs_own_configuration(capsys, trained, workplace):
    folder = workplace / "runs" / "first"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 77\n")
    assert run(capsys, "train", "--resume", "runs/first", "--actors", "4", "--quiet")[0] == 0
    assert run(capsys, "train", "--resume", "auto", "--run-dir", "runs/first", "--quiet")[0] == 0
    (by_name, first, resume, _), (by_auto, second, auto, _) = trained.calls
    assert (by_name.config.seed, by_name.config.actors.count, str(first), resume) == (77, 4, "runs/first", "runs/first")
    assert (by_auto.config.seed, str(second), auto) == (77, "runs/first", "auto")


def test_a_checkpoint_is_resumed_with_its_runs_configuration_and_begins_a_new_run_elsewhere(capsys, trained, workplace):
    folder = workplace / "runs" / "first"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 77\n")
    assert run(capsys, "train", "--resume", "runs/first@20", "--quiet")[0] == 0
    assert run(capsys, "train", "--resume", "runs/first@20", "--run-dir", "runs/second", "--quiet")[0] == 0
    called = [(loaded.config.seed, str(run_dir), resume) for loaded, run_dir, resume, _ in trained.calls]
    assert called == [(77, "runs/first", "runs/first@20"), (77, "runs/second", "runs/first@20")]
    assert refused(capsys, "train", "--resume", "runs/none@20").startswith("runs/none holds no run to resume")


def test_the_weights_to_begin_with_are_a_setting_with_an_absolute_path(capsys, trained, workplace):
    assert run(capsys, "train", "--preset", "cartpole-impala", "--init-from", "runs/first@best", "--quiet")[0] == 0
    (loaded, *_) = trained.calls[0]
    assert loaded.config.learner.init_from == f"{workplace}/runs/first@best"
    assert loaded.origins["learner.init_from"] == "flag --init-from"


def test_the_run_id_arrives(capsys, trained):
    preset = ("train", "--preset", "cartpole-impala", "--run-dir", "here", "--quiet")
    assert run(capsys, *preset, "--run-id", "cartpole-1")[0] == 0
    assert run(capsys, *preset)[0] == 0
    distrl.train(RunConfig(), run_dir="here", run_id="cartpole-2", view="silent")
    assert trained.run_ids == ("cartpole-1", None, "cartpole-2")


@pytest.mark.row("D42")
def test_wrong_resume_directories(capsys, trained):
    assert refused(capsys, "train", "--resume", "nope") == (
        "nope holds no run to resume (no config.yaml); name a preset or a file to start one"
    )
    preset = ("--preset", "cartpole-impala")
    assert "--resume auto needs a --run-dir" in refused(capsys, "train", *preset, "--resume", "auto")
    assert refused(capsys, "train", *preset, "--resume", "a", "--run-dir", "b") == (
        "--resume a goes on in that directory, but --run-dir is b; leave one out, or name a checkpoint, --resume "
        "a@STEP, with which a new run begins"
    )
    trained.outcome = CheckpointError("nothing to resume: a holds no valid checkpoint")
    assert refused(capsys, "train", *preset, "--resume", "a", "--quiet") == str(trained.outcome)


@pytest.mark.row("A24", "D40", "D41", "R05")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--set", "network.lerning_rate=1"], "did you mean network.learning_rate?"),
        (["--set", "network.learning_rate=__import__('os').getcwd()"], "must be a valid number"),
        (["--algorithm", "impalla"], "unknown algorithm 'impalla' (from flag --algorithm); did you mean impala?"),
        (
            ["--preset", "cartpole_impala"],
            "unknown preset 'cartpole_impala'; did you mean cartpole-impala or cartpole-",
        ),
        (["--actors", "-1"], "actors.count: -1 (from flag --actors) must be greater than or equal to 0"),
        (["--actors", "0", "--launcher", "ray"], "launch.launcher: ray needs several processes"),
        (["--actors", "many"], "Invalid value for '--actors'"),
        (["--lerning-rate", "1"], "No such option: --lerning-rate"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, trained, arguments, line):
    assert line in refused(capsys, "train", "--env", "CartPole-v1", *arguments)
    assert trained.calls == ()


def test_a_run_that_fails_tells_why_and_exits_so(capsys, trained):
    trained.outcome = summary(exit_code=5, stop_reason="non-finite", error="update 7 is not finite:\nloss nan")
    assert run(capsys, "train", "--env", "X-v0", "--quiet") == (
        5,
        "",
        "distrl: error: update 7 is not finite: loss nan\n",
    )
    trained.outcome = summary(exit_code=130, stop_reason="Ctrl-C")
    assert run(capsys, "train", "--env", "X-v0", "--quiet") == (130, "", "")


def test_exceptions_become_one_line_and_their_exit_code(capsys, trained):
    trained.outcome = MemoryBackendError("Redis at redis://h:1 is unreachable")
    assert refused(capsys, "train", "--env", "X-v0", code=6) == "Redis at redis://h:1 is unreachable"
    trained.outcome = KeyboardInterrupt()
    assert run(capsys, "train", "--env", "X-v0") == (130, "", "")


def test_sigint_also_ends_what_a_script_has_started_in_the_background():
    """There it is ignored from the beginning."""
    code = "import os, sys; from distrl.apps.commands import main as cli\n"
    code += "cli.app = lambda *_, **__: os.kill(os.getpid(), 2) or 7\n"
    command = [sys.executable, "-c", code + "sys.exit(cli.main())"]
    assert subprocess.run(["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command], check=False).returncode == 130


def test_the_detail_of_an_error_is_printed_below_it(capsys, trained):
    trained.outcome = ConfigError("environment X-v0 cannot be made")
    trained.outcome.add_note("Traceback:\n  boom\n")
    code, _, err = run(capsys, "train", "--env", "X-v0")
    assert code == 2
    assert err.splitlines()[0] == "distrl: error: environment X-v0 cannot be made"
    assert [re.sub("\x1b\\[[0-9]*m", "", line) for line in err.splitlines()[1:]] == ["Traceback:", "  boom"]


def test_the_unexpected_leaves_its_traceback_in_the_log(capsys, trained, workplace):
    (workplace / "here" / "logs").mkdir(parents=True)
    trained.outcome = ZeroDivisionError("division\nby zero")
    code, _, err = run(capsys, "train", "--env", "X-v0", "--run-dir", "here")
    assert code == 1
    assert err.splitlines()[0] == "distrl: error: unexpected ZeroDivisionError: division by zero"
    assert "traceback in here/logs/train.log" in err
    assert "Traceback (most recent call last)" in (workplace / "here" / "logs" / "train.log").read_text()


def test_an_error_of_one_line_leaves_nothing_in_the_directory(capsys, trained, workplace):
    (workplace / "here" / "logs").mkdir(parents=True)
    trained.outcome = MemoryBackendError("Redis at redis://h:1 is unreachable")
    code, _, err = run(capsys, "train", "--env", "X-v0", "--run-dir", "here")
    assert (code, err) == (6, "distrl: error: Redis at redis://h:1 is unreachable\n")
    assert list((workplace / "here" / "logs").iterdir()) == []


def test_an_environments_escape_sequences_do_not_reach_the_terminal(capsys, trained):
    trained.outcome = ConfigError("it says \x1b[2J\x00")
    trained.outcome.add_note("Traceback:\n\tboom \x1b]0;title\x07\n")
    _, _, err = run(capsys, "train", "--env", "X-v0")
    lines = [re.sub("\x1b\\[[0-9]*m", "", line) for line in err.splitlines()]
    assert lines == ["distrl: error: it says ?[2J?", "Traceback:", "        boom ?]0;title?"]


def test_runs_that_begin_in_the_same_second_have_directories_of_their_own(workplace, monkeypatch):
    monkeypatch.setattr("distrl.time.strftime", lambda form: "20260101-000000")
    made = [distrl.run_directory(RunConfig(), None, None) for _ in range(3)]
    name = "runs/CartPole-v1-impala-20260101-000000"
    assert [str(path) for path in made] == [name, f"{name}-2", f"{name}-3"]
    assert all(path.is_dir() for path in made)


def test_a_run_that_was_not_launched_leaves_no_directory(capsys, trained, workplace):
    trained.outcome = ConfigError("X-v0 cannot be made")
    assert run(capsys, "train", "--env", "X-v0")[0] == 2
    assert list((workplace / "runs").iterdir()) == []


def test_a_log_that_cannot_be_written_does_not_hide_the_error(capsys, trained, workplace):
    (workplace / "here" / "logs" / "train.log").mkdir(parents=True)
    trained.outcome = ZeroDivisionError("x")
    code, _, err = run(capsys, "train", "--env", "X-v0", "--run-dir", "here")
    assert (code, err.splitlines()) == (
        1,
        ["distrl: error: unexpected ZeroDivisionError: x", "set DISTRL_DEBUG=1 to see the traceback"],
    )


def test_the_unexpected_without_a_log_says_how_to_see_more(capsys, trained, monkeypatch):
    trained.outcome = ZeroDivisionError("x")
    code, _, err = run(capsys, "train", "--env", "X-v0")
    assert (code, err.splitlines()[1:]) == (1, ["set DISTRL_DEBUG=1 to see the traceback"])
    monkeypatch.setenv("DISTRL_DEBUG", "1")
    _, _, err = run(capsys, "train", "--env", "X-v0")
    assert "Traceback (most recent call last)" in err
    assert "set DISTRL_DEBUG" not in err


def test_roles_by_hand_return_their_exit_code(capsys, monkeypatch):
    calls = []
    monkeypatch.setattr("distrl.roles.running.run_here", lambda role, **given: calls.append((role, given)) or role.id)
    monkeypatch.setenv("DISTRL_REDIS_URL", "unix:///x")
    assert run(capsys, "actor", "--run-id", "r", "--id", "7", "--allow", "mine:Env")[0] == 7
    assert run(capsys, "learner", "--run-id", "r", "--redis-url", "redis://h")[0] == 0
    assert calls == [
        (Role("actor", 7), {"redis_url": "unix:///x", "run_id": "r", "allowed": ["mine:Env"]}),
        (Role("learner"), {"redis_url": "redis://h", "run_id": "r", "allowed": ()}),
    ]
    monkeypatch.delenv("DISTRL_REDIS_URL")
    assert "Missing option '--redis-url'" in refused(capsys, "actor", "--run-id", "r", "--id", "7")


@pytest.mark.parametrize("outcome", [Outcome(0, "solved"), Outcome(3, "keeps failing", "actor 10000: first\n second")])
def test_actors_of_this_host_join_a_run_by_its_key_and_end_with_their_code(capsys, monkeypatch, outcome, run_key):
    asked = []

    def join_actors(to_join, count, **options):
        asked.append((*to_join.address(), to_join.trust(), count, options["wait"], options["log_dir"]))
        options["report"]("joined \x1b[2J")
        return outcome

    monkeypatch.setattr("distrl.launch.joined_actors.join_actors", join_actors)
    monkeypatch.setenv("DISTRL_RUN_KEY", run_key)
    options = ("--redis-url", "redis://h", "--run-id", "r", "--count", "3", "--wait", "--allow", "mine:Env")
    code, out, err = run(capsys, "actors", *options)
    assert (code, out) == (outcome.exit_code, "joined ?[2J\n")
    assert err == ("" if outcome.error is None else "distrl: error: actor 10000: first second\n")
    trust = Trust(run_key, frozenset({"mine:Env"}))
    assert asked == [("redis://h", "r", trust, 3, True, Path("actors-r"))]


def test_dated_lines_of_actors_begin_with_date_and_time(capsys, monkeypatch, run_key):
    def join_actors(*_, report, **__):
        report("joined")
        return Outcome(0, "solved")

    monkeypatch.setattr("distrl.launch.joined_actors.join_actors", join_actors)
    monkeypatch.setenv("DISTRL_RUN_KEY", run_key)
    code, out, _ = run(capsys, "actors", "--redis-url", "redis://h", "--run-id", "r", "--dated")
    assert code == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d joined\n", out)


def test_actors_join_the_run_of_a_directory(capsys, monkeypatch, tmp_path, run_key):
    asked = []

    def join_actors(to_join, count, **options):
        asked.append((*to_join.address(), to_join.trust().key, count, options["wait"], options["log_dir"]))
        return Outcome(0, "solved")

    monkeypatch.setattr("distrl.launch.joined_actors.join_actors", join_actors)
    monkeypatch.setenv("DISTRL_REDIS_URL", "redis://another")
    write_run_json(tmp_path, "r", "a", "redis://h:1", own=True)
    (tmp_path / "run.key").write_text(run_key)
    (tmp_path / "run.key").chmod(0o600)
    assert run(capsys, "actors", "--run-dir", str(tmp_path), "--count", "2")[0] == 0
    url = f"redis://h:1?password_file={tmp_path}/redis.password"
    assert asked == [(url, "r", run_key, 2, False, tmp_path / "logs")]
    told = refused(capsys, "actors", "--run-dir", str(tmp_path), "--run-id", "r")
    assert "--run-dir names run and Redis; leave --run-id and --redis-url out" in told
    monkeypatch.delenv("DISTRL_REDIS_URL")
    assert "name the run: --run-dir DIR, or --run-id ID with" in refused(capsys, "actors", "--run-id", "r")


def test_actors_go_on_where_their_output_cannot_be_written(monkeypatch, tmp_path):
    told = []

    def join_actors(*_, report, **__):
        for text in ("joined", "2 actors acting"):
            report(text)
            told.append(text)
        return Outcome(3, "keeps failing", "actor 10000: why")

    monkeypatch.setattr("distrl.launch.joined_actors.join_actors", join_actors)
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(sys, "stderr", full)
        assert main.main(["actors", "--redis-url", "redis://h", "--run-id", "r"]) == 3
    assert told == ["joined", "2 actors acting"]


@pytest.fixture
def measured(monkeypatch):
    report = {
        "env_steps_per_s": 210_000.0,
        "limit_steps_per_s": 420_000.0,
        "ratio": 0.5,
        "env_s_per_step": 1e-6,
        "policy_s_per_step": 2e-6,
        "learner_s_per_step": 1.5e-6,
        "verdict": "learner",
        "policy_lag": {"mean": 1.25, "p95": 3.0, "max": 5.0},
    }
    calls = []

    def bench(loaded, *, seconds, run_dir, view, observers):
        calls.append((loaded, seconds, run_dir))
        view.event("warming up")
        return report

    monkeypatch.setattr("distrl.launch.bench.bench", bench)
    return report, calls


def test_bench_prints_one_object(capsys, measured):
    report, calls = measured
    code, out, err = run(capsys, "bench", "--json", "--seconds", "3", "--set", "actors.count=1")
    assert code == 0
    assert json.loads(out) == report
    assert err == "warming up\n"
    ((loaded, seconds, run_dir),) = calls
    assert (loaded.config.actors.count, loaded.origins["environment.id"]) == (1, "preset cartpole-impala")
    assert seconds == 3.0
    assert run_dir.name.startswith("bench-CartPole-v1-impala-")


def test_bench_prints_a_table(capsys, measured):
    _, out, _ = run(capsys, "bench")
    words = " ".join(out.split())
    assert "environment 1.000 1,000,000 policy 2.000 500,000 learner 1.500 666,667" in words
    assert "limit 420,000 steps/s" in words
    assert "measured 210,000 steps/s end to end" in words
    assert "ratio 50%" in words
    assert "lag 1.2 updates mean, p95 3, max 5" in words
    assert "bottleneck: learner" in words


def test_config_show_prints_what_loads_back(capsys, workplace):
    code, out, _ = run(capsys, "config", "show", "--preset", "cartpole-impala", "--set", "actors.count=4")
    (workplace / "shown.yaml").write_text(out)
    assert code == 0
    assert load(file=workplace / "shown.yaml").config == load("cartpole-impala", sets=["actors.count=4"]).config
    assert "# preset cartpole-impala" in out
    assert "# flag --set" in out
    assert run(capsys, "config", "show", "shown.yaml")[1].count("# file shown.yaml") == out.count("#")


def test_config_show_of_a_run_is_its_file(capsys, workplace):
    (workplace / "first").mkdir()
    effective = "seed: 7  # flag --seed\n"
    (workplace / "first" / "config.yaml").write_text(effective)
    assert run(capsys, "config", "show", "first") == (0, effective, "")
    assert "is a run, whose configuration is settled" in refused(capsys, "config", "show", "first", "--set", "seed=1")
    (workplace / "first" / "config.yaml").unlink()
    assert refused(capsys, "config", "show", "first") == "file first/config.yaml does not exist"
    assert refused(capsys, "config", "show", "nope.yaml") == "file nope.yaml does not exist"


def test_config_show_masks_passwords(capsys, workplace, monkeypatch):
    monkeypatch.setenv("DISTRL_REDIS_URL", "redis://user:geheim@host:6379")
    out = run(capsys, "config", "show", "--preset", "cartpole-impala")[1]
    assert "@host:6379" in out
    assert "geheim" not in out
    (workplace / "first").mkdir()
    (workplace / "first" / "config.yaml").write_text("memory: {url: 'redis://user:geheim@host:6379'}\n")
    assert "geheim" not in out + run(capsys, "config", "show", "first")[1]


def test_show_and_bench_take_what_train_takes(capsys, measured, workplace):
    (workplace / "mine.yaml").write_text("environment: {id: Acrobot-v1}\n")
    options = ["--algorithm", "ppo", "--actors", "3", "--seed", "5"]
    out = run(capsys, "config", "show", "mine.yaml", *options)[1]
    assert re.search(r"id: Acrobot-v1 +# file mine.yaml", out)
    assert re.search(r"name: ppo +# flag --algorithm", out)
    assert run(capsys, "bench", "mine.yaml", *options, "--json")[0] == 0
    ((loaded, _, run_dir),) = measured[1]
    assert dump(loaded) == out
    assert run_dir.name.startswith("bench-Acrobot-v1-ppo-")
    taken = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in typer.main.get_command(main.app).commands.items()
    }
    of_the_run = {"--run-dir", "--resume", "--run-id", "--plain", "--quiet", "--dated", "--dashboard"}
    of_the_run |= {"--seeds", "--parallel"}
    assert taken["train"] - of_the_run <= taken["bench"]


def test_options_that_have_no_effect_are_marked(capsys, workplace):
    out = run(capsys, "config", "show", "--set", "network.optimizer_type=RMSProp")[1]
    marked = [line.split(":")[0].strip() for line in out.splitlines() if line.endswith("(not used by RMSProp)")]
    assert "weight_decay" in marked
    assert "adam_optimizer_beta1" in marked
    assert not {"learning_rate", "momentum", "rms_prop_optimizer_decay"} & {*marked}
    settings = settings_in(out, "here")
    assert {setting.origin for setting in settings.values()} == {"default", "flag --set"}
    (workplace / "shown.yaml").write_text(out)
    assert dump(load(file=workplace / "shown.yaml")).count("(not used by RMSProp)") == len(marked)


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("network.learning_rate", "network.learning_rate: number > 0, default 0.00025"),
        ("lr", "network.learning_rate: number > 0, default 0.00025"),
        ("network.lr", "network.learning_rate: number > 0, default 0.00025"),
        ("clip_range", "algorithm.clip_range: number > 0, < 1 or null, default 0.2  (name: ppo, appo)"),
        ("actors", "actors: section"),
    ],
)
def test_config_explain(capsys, key, line):
    code, out, _ = run(capsys, "config", "explain", key)
    assert (code, out.splitlines()[0]) == (0, line)


def test_config_explain_of_a_section_lists_it(capsys):
    out = run(capsys, "config", "explain", "actors")[1]
    assert "  count = 2  Actor processes. 0: deterministic mode, everything in one process without threads." in out
    assert [line.split()[0] for line in out.splitlines()[2:]] == [*ActorsConfig.model_fields]


def test_config_explain_of_a_section_of_several_kinds_names_them_and_lists_one(capsys):
    out = run(capsys, "config", "explain", "algorithm")[1].splitlines()
    assert out[0] == "algorithm: section"
    assert out[2].startswith("  name: impala, a3c, a2c, ")
    assert out[3:] == ["  the settings of one: distrl config explain algorithm impala"]
    ppo = [line.split()[0] for line in run(capsys, "config", "explain", "algorithm", "ppo")[1].splitlines()[3:]]
    assert {"clip_range", "epochs", "entropy_weight"} <= {*ppo}
    assert not {"rho_bar", "target_update_updates"} & {*ppo}
    assert refused(capsys, "config", "explain", "algorithm", "pp") == (
        "algorithm has no kind 'pp': did you mean ppo or appo?"
    )
    assert refused(capsys, "config", "explain", "actors", "ppo") == "actors has no kind 'ppo': it has no kinds"


def test_config_explain_of_an_unknown_key(capsys):
    assert refused(capsys, "config", "explain", "network.lerning_rate") == (
        "unknown setting 'network.lerning_rate'; did you mean network.learning_rate?"
    )
    assert refused(capsys, "config", "explain", "xyzzy").startswith("unknown setting 'xyzzy'; the sections are seed, ")


def test_config_schema_is_json(capsys):
    assert json.loads(run(capsys, "config", "schema")[1])["properties"]["actors"]


def test_config_show_without_arguments_is_the_defaults(capsys):
    out = run(capsys, "config", "show")[1]
    assert set(line.split("# ")[1] for line in out.splitlines() if "#" in line) == {
        "default",
        "default (not used by Adam)",
    }


def test_train_from_python(trained):
    config = RunConfig.model_validate({"seed": 3})
    assert distrl.train(config, run_dir="here").exit_code == 0
    ((loaded, run_dir, resume, view),) = trained.calls
    assert (loaded.config, loaded.origins["seed"], str(run_dir), resume) == (config, "python", "here", None)
    assert isinstance(view._view, PlainView)
    distrl.train(config, resume="there", view=QuietView())
    assert (str(trained.calls[1][1]), trained.calls[1][2]) == ("there", "there")
    with pytest.raises(ConfigError, match="needs a --run-dir"):
        distrl.train(config, resume="auto")


@pytest.mark.parametrize(
    ("name", "told"),
    [("auto", ["started", "bye"]), ("plain", ["started", "bye"]), ("quiet", ["started", "bye"]), ("silent", [])],
)
def test_views_have_names(trained, capsys, name, told):
    class Told:
        def __call__(self, loaded, *, view, **others):
            view.event("started")
            view.event("bye")
            return summary()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("distrl.launch.training.train", Told())
        distrl.train(RunConfig(), run_dir="here", view=name)
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == told


def test_an_unknown_view_is_refused(trained):
    with pytest.raises(ConfigError, match="view 'silnet': did you mean silent"):
        distrl.train(RunConfig(), run_dir="here", view="silnet")
    assert {"update", "event", "close", "stop"} <= vars(distrl.View).keys()
    assert trained.calls == ()


def test_the_terminal_is_given_back_when_training_raises(trained):
    stopped = []

    class View(QuietView):
        def stop(self):
            stopped.append(True)

    trained.outcome = MemoryBackendError("gone")
    with pytest.raises(MemoryBackendError):
        distrl.train(RunConfig(), run_dir="here", view=View())
    assert stopped == [True]


def test_run_names_are_file_names():
    config = RunConfig.model_validate({"environment": {"id": "ALE/Pong v5:x"}})
    assert distrl.run_name(config, "bench-").startswith("bench-ALE-Pong-v5-x-impala-20")
