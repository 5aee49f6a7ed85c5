"""Which numbers of which snapshots are points in TensorBoard's event files."""

import time

import pytest

from distrl.config import RunConfig
from distrl.observers.observer import ObservedRun
from distrl.observers.tensorboard import TensorBoard
from distrl.terminal.console import PlainView
from tests.event_files import read_events

FIRST = {"env_steps": 2048, "loss": 0.5, "updates": 1, "bottleneck": "actors", "first_update_unix_s": 1e9}
SECOND = {"env_steps": 4096, "loss": 0.25, "mean_return_100": None, "own": 2.0, "network/relu_zeros/hidden": 0.5}


def observer_of(run_dir, settings, clock=time.monotonic):
    config = RunConfig.model_validate({"tensorboard": settings})
    return TensorBoard(ObservedRun("r", run_dir, config, False, PlainView(print), print), clock)


@pytest.fixture
def tensorboard(tmp_path):
    """tensorboard(*snapshots, **settings): what is in the files afterwards."""

    def write(*snapshots, **settings):
        run_dir = tmp_path / f"run{len([*tmp_path.iterdir()])}"
        observer = observer_of(run_dir, settings)
        for snapshot in snapshots:
            observer.snapshot(snapshot)
        observer.end(None)
        return read_events(run_dir / "tensorboard").scalars

    return write


@pytest.mark.row("D47")
def test_tensorboard_gets_every_number_over_environment_steps(tensorboard):
    assert tensorboard(FIRST, SECOND) == {
        ("loss/loss", 2048): 0.5,
        ("loss/loss", 4096): 0.25,
        ("progress/updates", 2048): 1.0,
        ("algorithm/own", 4096): 2.0,
        ("network/relu_zeros/hidden", 4096): 0.5,
    }


@pytest.mark.row("P02.2")
@pytest.mark.parametrize(
    ("labels", "tag", "there"),
    [
        (["total-loss"], "loss/loss", True),
        (["losses"], "loss/loss", True),
        (["relu"], "loss/loss", False),
        (["relu"], "network/relu_zeros/hidden", True),
        (["total-loss"], "network/relu_zeros/hidden", False),
        ([], "progress/updates", True),
    ],
)
def test_without_its_label_a_number_is_not_there(tensorboard, labels, tag, there):
    assert (tag in {tag for tag, _ in tensorboard(FIRST, SECOND, labels=labels)}) is there


@pytest.mark.row("F11", "P05")
def test_a_regular_expression_lets_tags_pass(tensorboard):
    numbers = {"env_steps": 1, "loss": 0.5, "policy_loss": 0.25, "mean_q": 3.0}
    assert tensorboard(numbers, tags=".*loss.*") == {("loss/loss", 1): 0.5, ("loss/policy_loss", 1): 0.25}
    assert tensorboard(numbers, tags="^algorithm/") == {("algorithm/mean_q", 1): 3.0}


def each(*steps, last=None):
    told = [{"env_steps": step, "loss": 1.0} for step in steps]
    return told if last is None else [*told, {"env_steps": last, "loss": 1.0, "stop_reason": "env_steps"}]


@pytest.mark.row("P01")
@pytest.mark.parametrize(
    ("snapshots", "steps"),
    [
        (each(*range(10, 201, 10)), [50, 100, 150, 200]),
        (each(*range(10, 201, 10), last=200), [50, 100, 150, 200]),
        (each(30, 70, 90, 120, last=130), [70, 120, 130]),  # the first beyond a multiple, and the last
        (each(49, 50, 50, 99), [50]),
    ],
)
def test_a_point_every_so_many_steps(tensorboard, snapshots, steps):
    assert [step for _, step in tensorboard(*snapshots, every_env_steps=50)] == steps


@pytest.mark.row("P01")
def test_a_point_every_so_many_seconds(tmp_path):
    told = [(0.0, 1), (119.0, 2), (120.0, 3), (239.0, 4), (240.0, 5)]
    now = [0.0]
    observer = observer_of(tmp_path, {"every_s": 120.0}, clock=lambda: now[0])
    for now[0], step in told:
        observer.snapshot({"env_steps": step, "loss": 1.0})
    observer.snapshot({"env_steps": 6, "loss": 1.0, "stop_reason": "env_steps"})
    observer.end(None)
    assert [step for _, step in read_events(tmp_path / "tensorboard").scalars] == [1, 3, 5, 6]
