"""Weights that were published and not saved are kept when a run fails; newer ones are not replaced."""

import numpy as np
import pytest

from distrl.config.schedules import Progress
from distrl.launch.distributed import keep_published
from distrl.learner.policy_files import write_weights
from distrl.memory_backend.codec import decode_weights, encode_weights
from distrl.types import Weights


def weights(version):
    return Weights(version, {"w": np.full(2, version, np.float32)})


@pytest.fixture
def policy(tmp_path, backend):
    (tmp_path / "policy").mkdir()
    backend.become_learner().weights.publish(7, encode_weights(weights(7)), Progress(700))
    return tmp_path / "policy"


@pytest.mark.parametrize("saved", [None, 6])
def test_newer_weights_than_the_saved_ones_are_kept(tmp_path, backend, policy, saved):
    if saved is not None:
        write_weights(policy, weights(saved))
    assert keep_published(tmp_path, backend) == (
        "policy/ holds the newest published weights, which no checkpoint does (version 7, 700 steps): "
        f"distrl evaluate {tmp_path}"
    )
    assert decode_weights((policy / "weights.msgpack").read_bytes()).version == 7


@pytest.mark.parametrize("saved", [7, 8])
def test_saved_weights_that_are_as_new_stay(tmp_path, backend, policy, saved):
    write_weights(policy, weights(saved))
    before = (policy / "weights.msgpack").read_bytes()
    assert keep_published(tmp_path, backend) is None
    assert (policy / "weights.msgpack").read_bytes() == before


def test_before_anything_was_published_there_is_nothing_to_keep(tmp_path, backend):
    assert keep_published(tmp_path, backend) is None


def test_a_directory_that_refuses_is_no_second_error(tmp_path, backend, policy):
    policy.rmdir()
    policy.write_text("no directory")
    assert keep_published(tmp_path, backend) is None
