"""policy/ of a run: what it holds acts without the learner, and no reader sees half a file."""

import hashlib
import threading

import numpy as np

from distrl.actors.policy import Policy
from distrl.learner.policy_files import write_bundle, write_weights
from distrl.memory_backend.codec import decode_weights
from distrl.types import PolicyBundle, Weights


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
    observations = {"observation": np.eye(2, dtype=np.float32)}
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
