"""From a run that has trained to one file: which weights are in it, and what keeps it from being written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import distrl
from distrl.actors.policy import Policy
from distrl.data_store.checkpoints import best_path, load, load_newest
from distrl.errors import ConfigError, DistrlError
from distrl.learner.policy_files import write_weights
from distrl.memory_backend.codec import decode_weights
from distrl.serving.export import export_run
from distrl.terminal.console import QuietView
from distrl.types import PolicyBundle, Weights

EXAMPLE = Path(distrl.__file__).parents[1] / "examples" / "onnx_policy.py"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of CartPole of four updates, a checkpoint after each; the mean return falls in the end."""
    run_dir = tmp_path_factory.mktemp("runs") / "first"
    sets = ["actors.count=0", "stop.updates=4", "checkpoint.every_updates=1", "network.learning_rate=0.1"]
    config = distrl.load("cartpole-impala", sets=sets)
    distrl.train(config, run_dir=run_dir, view=QuietView(run_dir, lambda text: None))
    return run_dir


@pytest.fixture
def run_dir(trained, tmp_path):
    """The run, to be changed."""
    return Path(shutil.copytree(trained, tmp_path / "first"))


def export(run_dir, output=None, checkpoint="newest", force=False):
    return export_run(run_dir, output, checkpoint=checkpoint, force=force, version="1.2.3")


def played(policy):
    """Return of an episode of CartPole that begins with seed 0."""
    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = environment.step(policy.act(observation).action)
        total, ended = total + float(reward), terminated or truncated
    return total


def test_the_file_has_the_newest_weights_and_tells_where_they_are_from(run_dir):
    path, exported = export(run_dir)
    assert path == run_dir / "policy.onnx"
    newest = load_newest(run_dir / "checkpoints")
    assert (exported.algorithm, exported.policy.environment.id) == ("impala", "CartPole-v1")
    assert exported.env_steps == newest.meta["env_steps"]
    assert exported.policy.libraries["distrl"] == "1.2.3"
    policy = distrl.load_policy(path)
    assert policy.exported == exported
    saved = Policy(
        PolicyBundle(
            (run_dir / "policy/graph.onnx").read_bytes(), (run_dir / "policy/description.json").read_text("utf-8")
        )
    )
    saved.set_weights(decode_weights((run_dir / "policy/weights.msgpack").read_bytes()))
    assert exported.weights_version == saved.version
    rows = np.random.default_rng(0).standard_normal((1000, 4)).astype(np.float32)
    logits = saved.step({"observation": rows}, {}).outputs["policy/action"]
    np.testing.assert_array_equal(policy.act(rows).action, logits.argmax(axis=1))


def test_the_best_are_those_of_the_best_checkpoint(run_dir):
    checkpoints = run_dir / "checkpoints"
    (checkpoints / "best").write_text("ckpt-000000000002\n")  # whichever it was
    best = load(best_path(checkpoints))
    _, exported = export(run_dir, run_dir / "best.onnx", "best")
    assert (exported.weights_version, exported.env_steps) == (3, best.meta["env_steps"])
    (checkpoints / "best").unlink()
    with pytest.raises(ConfigError, match="has no best checkpoint: none is marked before 100 episodes"):
        export(run_dir, run_dir / "again.onnx", "best")


def test_a_file_that_is_there_stays_unless_forced(run_dir, tmp_path):
    path = tmp_path / "mine.onnx"
    path.write_text("precious")
    with pytest.raises(ConfigError, match=r"mine.onnx is there already; add --force to replace it, or choose another"):
        export(run_dir, path)
    assert path.read_text() == "precious"
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match=r"pipe.onnx is no file, and one would take its place"):
        export(run_dir, pipe, force=True)
    with pytest.raises(ConfigError, match="is not a regular file"):
        distrl.load_policy(pipe)
    assert pipe.is_fifo()
    export(run_dir, path, force=True)
    assert distrl.load_policy(path).exported.weights_version == 5
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_what_keeps_a_policy_from_being_written_is_one_line(run_dir, tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere is not a run's directory: it holds no config\.yaml"):
        export(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is a directory; name a file in it"):
        export(run_dir, tmp_path, force=True)
    with pytest.raises(ConfigError, match=r"policy\.onnx cannot be written: No such file or directory"):
        export(run_dir, tmp_path / "no" / "policy.onnx")
    (run_dir / "policy" / "weights.msgpack").unlink()
    with pytest.raises(ConfigError, match="holds no policy yet: the first one is saved with the first checkpoint"):
        export(run_dir)
    assert not (run_dir / "policy.onnx").exists()


def test_weights_of_another_network_are_refused(run_dir):
    weights = decode_weights((run_dir / "policy/weights.msgpack").read_bytes())
    arrays = {**weights.arrays, "main/policy_head_action/bias": np.zeros(3, np.float32)}
    write_weights(run_dir / "policy", Weights(weights.version, arrays))
    with pytest.raises(DistrlError, match=r"main/policy_head_action/bias is float32 \(3,\), not float32 \(2,\)"):
        export(run_dir)


@pytest.mark.row("G04")
def test_the_example_plays_without_distrl(run_dir):
    path, _ = export(run_dir)
    assert not [line for line in EXAMPLE.read_text().splitlines() if line.startswith(("import distrl", "from distrl"))]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(path)], capture_output=True, text=True, env={"PATH": ""}, check=False
    )
    assert done.stdout == f"return {played(distrl.load_policy(path)):g}\n", done.stderr
