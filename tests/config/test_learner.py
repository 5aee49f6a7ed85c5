"""The section learner: what its devices share, and what contradicts the network or the algorithm."""

import pytest

from distrl.config import RunConfig


def replicas(count=4, backend="jax", **sections):
    return RunConfig.model_validate({"learner": {"replicas": count, "backend": backend}, **sections})


def test_replicas_need_jax():
    with pytest.raises(ValueError, match=r"learner\.replicas: 2 devices need learner\.backend: jax; the TensorFlow"):
        replicas(2, "tensorflow")
    assert replicas(1, "tensorflow").learner.replicas == 1


def test_replicas_share_sequences_evenly():
    assert replicas(4, actors={"environments": 5}).sequences_per_batch == 20
    with pytest.raises(ValueError, match=r"learner\.replicas: 3 devices cannot share 20 sequences"):
        replicas(3, actors={"environments": 5})


def test_replicas_are_refused_where_nothing_is_shared():
    with pytest.raises(ValueError, match="actors of algorithm a3c ship gradients"):
        replicas(algorithm={"name": "a3c"})
    with pytest.raises(ValueError, match="LBFGS searches on one device"):
        replicas(network={"optimizer_type": "LBFGS"})


@pytest.mark.parametrize("algorithm", ["impala", "a3c"])
def test_a_time_out_of_rounds_needs_rounds(algorithm):
    with pytest.raises(ValueError, match=rf"learner\.sync_timeout_s is of workers .* \(a2c\), not of {algorithm}"):
        RunConfig.model_validate({"algorithm": {"name": algorithm}, "learner": {"sync_timeout_s": 5.0}})


def test_threads_of_the_feed_are_auto_or_a_number():
    assert RunConfig().learner.feed_threads == "auto"
    assert RunConfig(learner={"feed_threads": 3}).learner.feed_threads == 3
    for wrong in (0, 65, 2.5, True, "many"):
        with pytest.raises(ValueError, match=f"must be auto or a number from 1 to 64, not {wrong!r}"):
            RunConfig(learner={"feed_threads": wrong})
    for algorithm in ("dqn", "a3c"):
        with pytest.raises(ValueError, match=f"feed_threads join unrolls to batches; {algorithm} makes none"):
            RunConfig(algorithm={"name": algorithm}, learner={"feed_threads": 3})
