"""A chosen checkpoint becomes the newest of a run, and what came after it becomes a directory of its own."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

import distrl
from distrl.data_store.checkpoints import best_path, load_newest, mark_best, newest_first, save, step_of
from distrl.errors import CheckpointError
from distrl.launch.start import begin_at
from distrl.learner.policy_files import BEST_FILE, WEIGHTS_FILE, kept_best, read_policy, write_best, write_weights
from distrl.memory_backend.codec import decode_weights, encode_weights
from distrl.memory_backend.records import BestEvaluation, Evaluation
from distrl.terminal.console import QuietView
from distrl.types import Weights

EARLIER = Path(distrl.__file__).parents[1] / "tests" / "earlier"


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints of updates 10, 20 and 30, whose acting weights are these numbers; 30 is the best."""
    run_dir = tmp_path / "run"
    shutil.copytree(EARLIER / "cartpole", run_dir)
    shutil.rmtree(run_dir / "checkpoints")
    acting = decode_weights((run_dir / "policy" / WEIGHTS_FILE).read_bytes()).arrays
    for step in (10, 20, 30):
        arrays = {name: np.full_like(array, step) for name, array in acting.items()}
        meta = {"weights_version": step, "env_steps": 100 * step}
        save(run_dir / "checkpoints", step, {"main.online": arrays}, meta, keep=5, best=step == 30)
        for memory in ("", "-data"):
            (run_dir / "checkpoints" / f"replay-{step:012d}{memory}.npz").write_bytes(b"memory")
    write_weights(run_dir / "policy", Weights(30, arrays))
    return run_dir


def evaluated(run_dir, env_steps):
    found = Evaluation(1, env_steps, 5, 90.0, 0.0, 90.0, 90.0, 3.0, 0.1)
    weights = decode_weights((run_dir / "policy" / WEIGHTS_FILE).read_bytes())
    write_best(run_dir / "policy", BestEvaluation(found, encode_weights(weights)))


def steps(run_dir):
    return [step_of(path) for path in newest_first(run_dir / "checkpoints")]


def acting(run_dir):
    """(version, the number that all weights are) of the newest saved policy."""
    weights = read_policy(run_dir).weights
    (number,) = {float(value) for array in weights.arrays.values() for value in array.flat}
    return weights.version, number


def replays(run_dir):
    return sorted(path.name for path in (run_dir / "checkpoints").glob("replay-*"))


def test_later_state_is_set_aside_and_is_a_run_itself(run):
    evaluated(run, 2500)
    rows = (run / "metrics.csv").read_bytes()
    note = begin_at(run, run / "checkpoints" / "ckpt-000000000010", 1000)
    aside = run / "after-10"
    assert note == f"2 later checkpoints are set aside: distrl train --resume {aside} goes on from update 30"
    assert (steps(run), steps(aside)) == ([10], [30, 20])
    assert (acting(run), acting(aside)) == ((10, 10.0), (30, 30.0))
    assert step_of(best_path(run / "checkpoints")) == 10
    assert step_of(best_path(aside / "checkpoints")) == 30
    assert (kept_best(run / "policy"), kept_best(aside / "policy").env_steps) == (None, 2500)
    assert replays(run) == ["replay-000000000010-data.npz", "replay-000000000010.npz"]
    later = [f"replay-{step:012d}{memory}.npz" for step in (20, 30) for memory in ("-data", "")]
    assert replays(aside) == later
    assert (run / "metrics.csv").read_bytes() == (aside / "metrics.csv").read_bytes() == rows
    assert not (aside / "run.json").exists()  # no list of runs shows it twice
    assert load_newest(run / "checkpoints").step == 10


def test_each_time_anew_and_the_past_stays(run):
    evaluated(run, 900)
    mark_best(run / "checkpoints" / "ckpt-000000000010")
    begin_at(run, run / "checkpoints" / "ckpt-000000000020", 2000)
    assert (steps(run), steps(run / "after-20")) == ([20, 10], [30])
    assert step_of(best_path(run / "checkpoints")) == 10
    assert kept_best(run / "policy").env_steps == 900
    assert begin_at(run, run / "checkpoints" / "ckpt-000000000020", 2000) is None  # it is the newest
    save(run / "checkpoints", 25, {"main.online": {}}, {}, keep=5)
    note = begin_at(run, run / "checkpoints" / "ckpt-000000000020", 2000, with_id=True)
    assert note.endswith(f": distrl train --run-id NAME --resume {run / 'after-20-2'} goes on from update 25")
    assert note.startswith("1 later checkpoint is set aside: ")
    assert steps(run / "after-20-2") == [25]


def test_a_damaged_policy_stops_nothing_and_a_damaged_evaluation_moves_nothing(run):
    (run / "policy" / BEST_FILE).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"best\.msgpack is damaged"):
        begin_at(run, run / "checkpoints" / "ckpt-000000000010", 1000)
    assert steps(run) == [30, 20, 10]
    assert not (run / "after-10").exists()
    (run / "policy" / BEST_FILE).unlink()
    (run / "policy" / "graph.onnx").write_bytes(b"")
    begin_at(run, run / "checkpoints" / "ckpt-000000000010", 1000)
    assert (steps(run), steps(run / "after-10")) == ([10], [30, 20])
    assert not (run / "policy" / WEIGHTS_FILE).exists()  # those of 30 would be no longer the run's


@pytest.mark.parametrize(("env_steps", "kept"), [(2500, None), (1900, 1900)])
def test_a_branch_has_the_checkpoint_and_what_belongs_to_it(run, tmp_path, env_steps, kept):
    evaluated(run, env_steps)
    branch = tmp_path / "branch"
    for name in ("checkpoints", "policy", "logs"):
        (branch / name).mkdir(parents=True)
    chosen = run / "checkpoints" / "ckpt-000000000020"
    assert begin_at(branch, chosen, 2000) == f"a new run with all the state of {chosen}"
    assert (steps(branch), steps(run)) == ([20], [30, 20, 10])
    assert replays(branch) == ["replay-000000000020-data.npz", "replay-000000000020.npz"]
    assert load_newest(branch / "checkpoints").arrays.keys() == {"main.online"}
    assert step_of(best_path(branch / "checkpoints")) == 20
    best = kept_best(branch / "policy")
    assert (best and best.env_steps) == kept
    assert (branch / "metrics.csv").read_bytes() == (run / "metrics.csv").read_bytes()


def trained(run_dir, updates, resume=None):
    """Trains the toy task, saved after each update, in this process."""
    tree = {
        "environment": {"id": "distrl.environments.worlds.toy:Identity", "kwargs": {"n": 2, "length_steps": 3}},
        "network": {"middleware_parameters": {"scheme": [4]}, "learning_rate": 0.01},
        "actors": {"count": 0, "environments": 2, "unroll_length_steps": 4},
        "checkpoint": {"every_updates": 1, "every_s": None, "keep": 9},
        "stop": {"updates": updates},
    }
    view = QuietView(run_dir, lambda text: None)
    return distrl.train(distrl.load(tree), run_dir=run_dir, resume=resume, view=view)


def everything(run_dir):
    """(arrays, state without the launch and the clock) of a run's newest checkpoint."""
    loaded = load_newest(run_dir / "checkpoints")
    return loaded.arrays, {**loaded.meta, "run_id": 0, "launch": 0, "wall_s": 0, "applied": 0, "trained_unrolls": 0}


def updates_in(run_dir):
    with (run_dir / "metrics.csv").open() as file:
        return [int(row["updates"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_what_is_done_again_from_a_checkpoint_is_the_same_bit_by_bit(tmp_path, same):
    run = tmp_path / "first"
    first = trained(run, 4)
    before = everything(run)
    again = trained(run, 4, f"{run}@2")
    assert (again.exit_code, again.run_id, again.updates, again.trained) == (0, first.run_id, 4, 8)
    assert (again.resumed_updates, again.env_steps, again.episodes) == (2, first.env_steps, first.episodes)
    assert same(everything(run), before)
    assert same(everything(run / "after-2"), before)
    assert (steps(run), steps(run / "after-2")) == ([4, 3, 2, 1], [4, 3])
    assert updates_in(run) == sorted(set(updates_in(run)))
    branch = tmp_path / "branch"
    third = trained(branch, 4, f"{run}@3")
    assert (third.exit_code, third.resumed_updates, third.trained, steps(branch)) == (0, 3, 4, [4, 3])
    assert third.run_id != first.run_id
    assert same(everything(branch), before)
    assert updates_in(branch)[-1] == 4
