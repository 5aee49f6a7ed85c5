"""Weights of a host's server: what its successor finds, and what is forgotten."""

import pytest

from distrl.config.schedules import Progress
from distrl.inference import versions
from distrl.inference.versions import Versions
from distrl.memory_backend.codec import encode_weights
from distrl.memory_backend.weights import Published
from distrl.types import Weights


def test_a_successor_keeps_what_other_actors_may_still_ask_for(tmp_path, remembering, monkeypatch):
    network, bundle = remembering
    published = []

    def publish(version):
        blob = encode_weights(Weights(version, network.named_weights()))
        published.append(Published(version, blob, Progress(version, version, version)))

    def server():
        return Versions(bundle, lambda: published[-1], tmp_path)

    first = server()
    publish(8)
    assert first.follow(8, 0, newest=True) == (8, Progress(8, 8, 8))

    successor = server()  # the first one was killed in the unrolls of two actors
    assert successor.policy(8) is not None
    for version in (9, 10):
        publish(version)
        successor.follow(version, version - 1, newest=True)
        successor.keep({version})  # one actor goes on, the other one has not come back yet
    assert successor.policy(8) is not None
    assert successor.policy(9) is None, "no killed server left it"
    assert sorted(path.name for path in tmp_path.glob("weights-*")) == ["weights-10", "weights-8"]

    monkeypatch.setattr(versions, "INHERITED_S", 0.0)
    late = server()
    late.follow(10, 8, newest=True)
    late.keep({10})
    assert late.policy(8) is None


def test_the_provider_is_the_one_that_computes_and_not_the_one_that_was_wanted(tmp_path, remembering):
    """As on a host without a GPU, or whose ONNX Runtime is the one for the CPU."""
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        made = Versions(remembering[1], lambda: None, tmp_path, 1, ("CUDAExecutionProvider", "CPUExecutionProvider"))
    assert made.provider == "CPUExecutionProvider"
