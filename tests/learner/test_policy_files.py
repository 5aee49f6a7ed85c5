"""policy/ of a run: what it holds acts without the learner, and no reader sees half a file."""

import hashlib
import threading

import numpy as np
import pytest

from distrl import wire
from distrl.actors.policy import Policy
from distrl.data_store import checkpoints
from distrl.errors import CheckpointError, ConfigError
from distrl.learner.policy_files import forget_best, kept_best, read_policy, write_best, write_bundle, write_weights
from distrl.memory_backend.codec import decode_weights, encode_weights
from distrl.memory_backend.records import BestEvaluation, Evaluation
from distrl.types import PolicyBundle, Weights


@pytest.mark.row("D48")
def test_the_files_act_as_the_network_does(prepared, tmp_path):
    made = prepared()
    online = made.networks["main"].online
    bundle = made.backend.weights.get_bundle()
    directory = tmp_path / "elsewhere" / "policy"
    write_bundle(directory, bundle)
    write_weights(directory, Weights(9, online.named_weights()))
    assert {path.name for path in directory.iterdir()} == {"graph.onnx", "description.json", "weights.msgpack"}
    read = PolicyBundle((directory / "graph.onnx").read_bytes(), (directory / "description.json").read_text())
    assert hashlib.sha256(read.graph).digest() == hashlib.sha256(bundle.graph).digest()
    policy = Policy(read)
    policy.set_weights(decode_weights((directory / "weights.msgpack").read_bytes()))
    observations = {"observation": np.arange(2, dtype=np.uint8)[:, None]}
    np.testing.assert_allclose(
        policy.step(observations, {}).outputs["policy/action"],
        online.predict(observations, ["policy/action"]),
        atol=1e-5,
    )
    assert policy.version == 9


def test_a_reader_sees_a_whole_version_whenever_it_looks(tmp_path):
    write_weights(tmp_path, Weights(1, {"w": np.full(20_000, 1.0, np.float32)}))
    done = threading.Event()

    def write():
        for version in range(2, 60):
            write_weights(tmp_path, Weights(version, {"w": np.full(20_000, version, np.float32)}))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    versions = []
    while not done.is_set() or not versions:
        weights = decode_weights((tmp_path / "weights.msgpack").read_bytes())
        assert (weights.arrays["w"] == weights.version).all()
        versions.append(weights.version)
    writer.join()
    assert versions == sorted(versions)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.msgpack"]


@pytest.fixture
def run_dir(prepared, tmp_path):
    """A run whose policy/ is of version 3, with the checkpoints of versions 2 (the best), 3 and 4 (just saved)."""
    made = prepared(run_dir=tmp_path / "run")
    directory, online = tmp_path / "run", made.networks["main"].online
    (directory / "config.yaml").write_text("seed: 1\n")
    for version in (2, 3, 4):
        arrays = {name: np.full_like(array, version) for name, array in online.named_weights().items()}
        groups = {"main.online": {**arrays, "strength of noise".replace(" ", "_"): np.ones(2)}, "main.optimizer": {}}
        meta = {"weights_version": version, "env_steps": 100 * version}
        checkpoints.save(directory / "checkpoints", version, groups, meta, keep=5, best=version == 2)
        if version == 3:
            write_weights(directory / "policy", Weights(version, arrays))
    return directory


def read(run_dir, checkpoint):
    """(version, environment steps, the one number that all weights are) of weights that a policy takes."""
    saved = read_policy(run_dir, checkpoint)
    Policy(saved.bundle).set_weights(saved.weights)
    (number,) = {float(value) for array in saved.weights.arrays.values() for value in array.flat}
    return saved.weights.version, saved.env_steps, number


def test_the_policy_of_a_run_is_the_newest_the_best_or_any(run_dir):
    assert read(run_dir, "newest") == (3, 300, 3.0)
    assert read(run_dir, "best") == (2, 200, 2.0)
    assert read(run_dir, str(run_dir / "checkpoints" / "ckpt-000000000004")) == (4, 400, 4.0)


def test_how_far_the_training_was_is_unknown_once_no_checkpoint_tells(run_dir):
    (run_dir / "checkpoints" / "ckpt-000000000003" / "manifest.json").write_text("{}")
    assert read(run_dir, "newest") == (3, None, 3.0)


def test_what_is_no_policy_is_one_line(run_dir, tmp_path, prepared):
    def refused(directory, checkpoint="newest"):
        with pytest.raises((ConfigError, CheckpointError)) as caught:
            read_policy(directory, checkpoint)
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(str(tmp_path), "…")

    assert refused(tmp_path / "no") == "…/no is not a run's directory: it holds no config.yaml"
    assert "is not valid: FileNotFoundError" in refused(run_dir, str(run_dir / "checkpoints" / "nowhere"))
    saved = run_dir / "checkpoints"
    checkpoints.save(saved, 9, {"main.online": {}}, {"weights_version": 1, "env_steps": 1}, keep=9)
    assert "ckpt-000000000009 is of another network than the run's policy: it holds no " in refused(
        run_dir, str(saved / "ckpt-000000000009")
    )
    (tmp_path / "other").symlink_to(run_dir)  # by another name
    assert read(run_dir, str(tmp_path / "other" / "checkpoints" / "ckpt-000000000003")) == (3, 300, 3.0)
    (saved / "ckpt-000000000003").rename(tmp_path / "ckpt-000000000003")  # of the same network, and yet
    assert refused(run_dir, str(tmp_path / "ckpt-000000000003")) == (
        "--checkpoint …/ckpt-000000000003 is none of this run's, which are in …/run/checkpoints"
    )
    (run_dir / "checkpoints" / "best").write_text("ckpt-0000")
    assert refused(run_dir, "best") == (
        "…/run/checkpoints/best is damaged: it names no checkpoint; choose one by its number of updates"
    )
    (run_dir / "checkpoints" / "best").unlink()
    assert refused(run_dir, "best").startswith("…/run has no best checkpoint")
    (run_dir / "policy" / "weights.msgpack").unlink()
    assert refused(run_dir) == "…/run holds no policy yet: the first one is saved with the first checkpoint"


@pytest.mark.parametrize("name", ["graph.onnx", "description.json", "weights.msgpack"])
def test_a_damaged_file_is_named(run_dir, name):
    path = run_dir / "policy" / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CheckpointError) as caught:
        read_policy(run_dir)
    named = "description.json" if name == "graph.onnx" else name  # the two do not go together
    assert str(caught.value).startswith(f"{run_dir / 'policy' / named} is damaged: ")
    assert str(run_dir / "policy" / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def keep(run_dir, number, mean_return, env_steps):
    """As the learner keeps the weights of an evaluation, every one of them `number`."""
    arrays = decode_weights((run_dir / "policy" / "weights.msgpack").read_bytes()).arrays
    same = {name: np.full_like(array, number) for name, array in arrays.items()} | {"strength_of_noise": np.ones(2)}
    found = Evaluation(number, env_steps, 5, mean_return, 0.0, mean_return, mean_return, 3.0, 0.1)
    write_best(run_dir / "policy", BestEvaluation(found, encode_weights(Weights(number, same))))


def test_the_best_of_a_run_with_evaluations_is_what_was_evaluated(run_dir):
    (run_dir / "config.yaml").write_text("evaluation: {every_env_steps: 10}\n")
    with pytest.raises(ConfigError, match="run has no best policy: no evaluation that can be the best has ended yet"):
        read_policy(run_dir, "best")  # although a checkpoint is marked
    assert kept_best(run_dir / "policy") is None
    keep(run_dir, 7, 90.5, 170)
    assert read(run_dir, "best") == (7, 170, 7.0)
    assert kept_best(run_dir / "policy").mean_return == 90.5
    (run_dir / "config.yaml").write_text("seed: 1\n")  # resumed without them
    assert read(run_dir, "best") == (2, 200, 2.0)
    forget_best(run_dir / "policy")
    forget_best(run_dir / "policy")
    assert kept_best(run_dir / "policy") is None


def test_the_best_says_by_what_it_is_the_best(run_dir):
    found = Evaluation(7, 170, 5, 1.0, 0.0, 1.0, 1.0, 3.0, 0.1, success_rate=0.25, best_by="success")
    blob = (run_dir / "policy" / "weights.msgpack").read_bytes()
    write_best(run_dir / "policy", BestEvaluation(found, blob), "success")
    kept = kept_best(run_dir / "policy")
    assert (kept.mean_return, kept.best_by, kept.score, kept.env_steps) == (1.0, "success", 0.25, 170)


def test_the_best_of_an_earlier_version_is_that_by_its_return(run_dir):
    blob = (run_dir / "policy" / "weights.msgpack").read_bytes()
    tree = {"env_steps": 170, "mean_return": 2.5, "weights": blob}
    (run_dir / "policy" / "best.msgpack").write_bytes(wire.pack(tree))
    assert kept_best(run_dir / "policy")[:4] == (2.5, "episode_return", 2.5, 170)


@pytest.mark.parametrize("content", [b"", wire.pack({"env_steps": 1}), wire.pack([1])])
def test_damaged_best_weights_are_named(run_dir, content):
    path = run_dir / "policy" / "best.msgpack"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"policy/best\.msgpack is damaged: .*; remove it"):
        kept_best(run_dir / "policy")
