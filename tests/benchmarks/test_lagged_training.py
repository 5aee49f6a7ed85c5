import pytest

from benchmarks.lagged_training import LaggedWeights, lagged_backend, without_correction
from distrl.config.schedules import Progress
from distrl.memory_backend.stream import QueueCaps


@pytest.mark.parametrize(("lag", "seen"), [(0, [1, 2, 3, 4, 5, 6]), (2, [1, 1, 1, 2, 3, 4]), (9, [1] * 6)])
def test_the_reader_sees_what_was_newest_so_many_versions_ago(lag, seen):
    backend = lagged_backend("local:", "run", QueueCaps(8, 2**20), name="run", give_up_s=0.0, lag=lag)
    backend.create("{}")
    learner = backend.become_learner()
    assert isinstance(backend.weights, LaggedWeights)
    assert backend.weights.fetch() is None
    found = []
    for version in range(1, 7):
        learner.weights.publish(version, b"weights", Progress(version))
        found.append(backend.weights.fetch().version)
        assert backend.weights.fetch().version == found[-1]  # asked twice, it is the same
        assert backend.weights.version() == version  # what the learner asks
    assert found == seen


def test_without_correction_impala_sees_its_own_policys_probabilities(monkeypatch):
    from distrl.algorithms import impala, make_algorithm
    from distrl.config import RunConfig

    monkeypatch.setattr(impala, "Impala", impala.Impala)  # which is put back after the test
    without_correction()
    assert type(make_algorithm(RunConfig())).__name__ == "Uncorrected"
