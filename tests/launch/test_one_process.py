"""Deterministic mode's surroundings: where standard error goes, and that no clock decides when to save."""

import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from distrl.config.load import load
from distrl.interrupt import Interrupt
from distrl.launch.one_process import log_lines_in, save_by_updates, standard_error_in, train_here
from distrl.roles.description import RunDescription
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec("X", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})


def test_standard_error_of_python_of_libraries_and_of_children_goes_to_the_log(tmp_path, capfd):
    log = tmp_path / "learner.log"
    log.write_text("before\n")
    with standard_error_in(log):
        print("python", file=sys.__stderr__, flush=True)
        os.write(2, b"library\n")
        subprocess.run([sys.executable, "-c", "import sys; print('child', file=sys.stderr)"], check=True)
    os.write(2, b"after\n")
    assert log.read_text().splitlines()[-2:] == ["library", "child"]
    assert log.read_text().startswith("before\n")
    assert capfd.readouterr().err.endswith("after\n")


def test_standard_error_comes_back_after_an_error(tmp_path, capfd):
    with pytest.raises(KeyError), standard_error_in(tmp_path / "log"):
        raise KeyError
    os.write(2, b"here again\n")
    assert capfd.readouterr().err == "here again\n"


def ended_by(train, tmp_path, monkeypatch, update=lambda *_: None):
    """Train with another `run_deterministic`; `update` is the monitor's, which calls callbacks."""
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr("distrl.launch.deterministic.run_deterministic", train)
    description = RunDescription(run_id="r", run_dir=str(tmp_path), config=load("cartpole-impala").config, spec=SPEC)
    return train_here(description, SimpleNamespace(event=lambda text: None, update=update), Interrupt())


def test_code_of_the_run_that_ends_the_process_has_failed(tmp_path, monkeypatch):
    """With exit code 0, a script or a sweep took it for a run that has ended as it should."""
    outcome = ended_by(lambda *_: sys.exit(0), tmp_path, monkeypatch)
    assert (outcome.exit_code, outcome.stop_reason) == (1, "failed")
    assert outcome.error == "code of the run called sys.exit(0), which only its end may; raise an error"


def test_a_callback_may_end_the_program(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="7"):
        ended_by(lambda _, __, report, *___: report({}), tmp_path, monkeypatch, update=lambda *_: sys.exit(7))


@pytest.mark.parametrize(
    ("given", "preset", "every"),
    [
        (None, "cartpole-impala", 100),
        (7, "cartpole-impala", 7),
        (None, "cartpole-dqn", 196 * 32),  # 196 unrolls of 128 steps, each with 32 updates, are 25,088 steps
        (None, "pendulum-sac", 782 * 32),  # 32 steps and as many updates
        (7, "cartpole-dqn", 7),
    ],
)
def test_checkpoints_come_by_updates_alone(given, preset, every):
    """After a hundred unrolls and 25,000 steps at least: episodes that are open then are abandoned."""
    config = load(preset, sets=[f"checkpoint.every_updates={'null' if given is None else given}"]).config
    config = config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update={"every_s": 60.0, "keep": 3})})
    description = RunDescription(run_id="r", run_dir="/r", config=config, spec=SPEC)
    checkpoint = save_by_updates(description).config.checkpoint
    assert (checkpoint.every_s, checkpoint.every_updates, checkpoint.keep) == (None, every, 3)
    assert description.config.checkpoint.every_s == 60.0


@pytest.mark.parametrize(("level", "lines"), [("info", 2), ("warning", 1), ("error", 0)])
def test_log_lines_of_distrl_go_where_standard_error_goes(tmp_path, level, lines):
    log = logging.getLogger("distrl.learner.preparation")
    with standard_error_in(tmp_path / "log"), log_lines_in(tmp_path / "log", level):
        log.info("restored")
        log.warning("passed over")
        log.debug("of no use")
    log.error("afterwards")
    told = (tmp_path / "log").read_text().splitlines()
    expected = ["learner INFO restored", "learner WARNING passed over"]
    assert [line.split(" ", 2)[2] for line in told] == expected[2 - lines :]
