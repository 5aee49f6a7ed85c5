"""A learner that starts where the run's checkpoints are not: it goes on from published weights, or refuses."""

import logging
import socket

import numpy as np
import pytest

from distrl.config.schedules import Progress
from distrl.data_store.checkpoints import load_newest
from distrl.errors import CheckpointError
from distrl.learner.origin import FORGOTTEN_VERSIONS, Place
from distrl.learner.session import Session
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import QueueCaps
from tests.faults.failover import promote, replica_of

HOST = socket.gethostname()
SHARE = "share the run's directory between all hosts that may run its learner"


class KilledError(BaseException):
    """The learner's process is gone: no last checkpoint."""


@pytest.fixture
def backend():
    backend = connect("local:", "toy", QueueCaps(10_000, 2**30), name="test", give_up_s=1.0)
    backend.create("{}")
    return backend


@pytest.fixture
def trained(prepared, acting, toy_config, backend):
    """Trains for some updates in a directory and is killed; the learner as it was."""

    def make(place, updates=4, run_id="toy", **paths):
        made = prepared(toy_config(**paths), place=place, backend=backend, run_id=run_id)
        looks = iter(range(updates))

        def stop():
            if next(looks, None) is None:
                raise KilledError
            return False

        # The thread of its feed sees no stop.
        session = Session(made, acting(made), backend.registry.add_snapshot, stop)
        with pytest.raises(KilledError):
            session.run()
        backend.registry.add_snapshot(session.reporter.snapshot())
        return made

    return make


def arrays(made, copy="online"):
    return made.networks["main"].by_name[copy].named_weights()


def test_a_learner_without_the_runs_checkpoints_goes_on_from_the_published_weights(
    trained, prepared, toy_config, acting, backend, tmp_path, caplog
):
    first = trained(Place(tmp_path / "b"))
    version, before = backend.weights.version(), arrays(first)
    with caplog.at_level(logging.WARNING, "distrl"):
        second = prepared(toy_config(stop__updates=6), place=Place(tmp_path / "c", own=False), backend=backend)
    for name, value in arrays(second).items():
        np.testing.assert_array_equal(value, before[name])
    state = second.state
    assert (state.updates, state.env_steps) == (first.state.updates, first.state.env_steps) == (4, 48)
    assert (state.trained_steps, state.episodes) == (first.state.trained_steps, first.state.episodes)
    assert (state.applied, state.trained_unrolls) == (first.state.applied, first.state.trained_unrolls)
    assert state.weights_version == version + 1
    note = (
        f"goes on from the published weights (version {version}, update 4): no checkpoint of the run is in "
        f"{tmp_path}/c on {HOST}; the optimizer begins anew; {SHARE}"
    )
    assert second.origin.note == note
    assert f"the learner {note}" in caplog.messages
    told = []
    assert Session(second, acting(second), told.append, lambda: False).run() == "updates"
    assert {snapshot["origin"] for snapshot in told} == {note}
    ledger = backend.ledger.counts()
    assert (ledger.trained, ledger.rolled_back, ledger.imbalance) == (12, 0, 0)
    assert load_newest(tmp_path / "c" / "checkpoints").step == 6


def test_versions_passed_over_after_a_fail_over_are_no_updates(trained, prepared, acting, backend, tmp_path):
    trained(Place(tmp_path / "b"))
    promote(replica_of(backend), [backend])
    second = prepared(place=Place(tmp_path / "c", own=False), backend=backend)
    Session(second, acting(second), lambda _: None, lambda: True).learner.start()  # and dies before its first snapshot
    third = prepared(place=Place(tmp_path / "d", own=False), backend=backend)
    assert third.state.weights_version > FORGOTTEN_VERSIONS
    assert third.state.updates == 4


def test_counts_are_those_of_the_weights_where_the_newest_snapshot_is_older(trained, prepared, backend, tmp_path):
    first = trained(Place(tmp_path / "b"))
    backend.registry.add_snapshot(
        {**backend.registry.snapshots("0")[-1][1], "updates": 1, "env_steps": 12, "episodes": 3}
    )
    second = prepared(place=Place(tmp_path / "c", own=False), backend=backend)
    assert second.state.progress == first.state.progress == Progress(48, 16, 4)


def test_what_was_taken_over_is_saved_even_if_nothing_is_learned_any_more(
    trained, prepared, toy_config, acting, backend, tmp_path
):
    trained(Place(tmp_path / "b"))
    second = prepared(place=Place(tmp_path / "c", own=False), backend=backend)
    assert Session(second, acting(second), lambda _: None, lambda: True).run() == "asked"
    assert load_newest(tmp_path / "c" / "checkpoints").step == 4


def test_a_learner_killed_before_its_first_checkpoint_loses_nothing_but_the_optimizer(
    trained, prepared, backend, tmp_path
):
    first = trained(Place(tmp_path))
    second = prepared(place=Place(tmp_path), backend=backend)
    assert second.state.updates == 4
    np.testing.assert_equal(arrays(second), arrays(first))
    assert second.origin.note.endswith(
        f"no checkpoint of the run is in {tmp_path} on {HOST}; the optimizer begins anew"
    )


UNSOUND = {
    "statistics": {"algorithm__reward_normalization": {}},
    "schedule": {"network__learning_rate_schedule": "linear", "network__learning_rate_schedule_updates": 10},
}


@pytest.mark.parametrize("what", UNSOUND)
def test_weights_that_are_not_all_of_the_training_are_refused_with_the_path(
    trained, prepared, toy_config, backend, tmp_path, what
):
    """Nothing was published in vain: the refusal names it, and the run's own directory begins anew with a word."""
    trained(Place(tmp_path / "b"), **UNSOUND[what])
    before = backend.weights.version()
    refusal = (
        rf"no checkpoint of the run is in {tmp_path}/c on {HOST}, and the published weights \(version {before}\) "
        rf"cannot be gone on from: .*{what}.*; {SHARE}"
    )
    with pytest.raises(CheckpointError, match=refusal):
        prepared(toy_config(**UNSOUND[what]), place=Place(tmp_path / "c", own=False), backend=backend)
    assert backend.weights.version() == before
    own = prepared(toy_config(**UNSOUND[what]), place=Place(tmp_path / "b"), backend=backend)
    assert own.state.updates == 0
    assert own.origin.note.startswith(
        f"begins anew: no checkpoint of the run is in {tmp_path}/b on {HOST} yet, and the"
    )
    with pytest.raises(CheckpointError, match=r"goes on from update 2, and .* has no checkpoint"):
        prepared(toy_config(**UNSOUND[what]), place=Place(tmp_path / "b", resumed_update=2), backend=backend)


def test_several_networks_are_more_than_the_policy_that_is_published(trained, prepared, backend, tmp_path, monkeypatch):
    trained(Place(tmp_path / "b"))
    monkeypatch.setattr("distrl.learner.preparation.built", _with_a_critic)
    with pytest.raises(CheckpointError, match="has the networks main, critic, and only main is published"):
        prepared(place=Place(tmp_path / "c", own=False), backend=backend)


def _with_a_critic(algorithm, spec):
    (main,) = algorithm.build(spec).values()
    return {"main": main, "critic": main}


def test_a_run_that_goes_on_from_a_checkpoint_does_not_begin_without_one(prepared, backend, tmp_path):
    with pytest.raises(
        CheckpointError, match=f"goes on from update 7, and {tmp_path} on {HOST} has no checkpoint; {SHARE}"
    ):
        prepared(place=Place(tmp_path, own=False, resumed_update=7), backend=backend)
    assert backend.weights.version() == 0


def test_the_checkpoints_of_another_run_are_not_taken_for_ones_own(trained, prepared, toy_config, backend, tmp_path):
    """A directory of the same name on another host."""
    every = {"checkpoint__every_updates": 2}
    trained(Place(tmp_path), run_id="other", **every)
    refusal = f"{tmp_path} on {HOST} has checkpoints of another run, other, and no run.json of toy; {SHARE}"
    with pytest.raises(CheckpointError, match=refusal):
        prepared(toy_config(**every), place=Place(tmp_path, own=False), backend=backend)
    assert (
        prepared(toy_config(**every), place=Place(tmp_path), backend=backend).origin.note is None
    )  # it resumes that run


def test_in_a_directory_of_its_own_host_an_older_checkpoint_of_the_run_is_behind_the_published_weights(
    trained, prepared, toy_config, backend, tmp_path
):
    every = {"checkpoint__every_updates": 3}
    place = Place(tmp_path, own=False)
    first = trained(place, **every)
    assert first.origin.note.startswith(
        f"writes checkpoints and policy to {tmp_path} on {HOST} alone, which is not the"
    )
    assert load_newest(tmp_path / "checkpoints").step == 3
    second = prepared(toy_config(**every), place=place, backend=backend)
    assert second.state.updates == 4
    assert f"{tmp_path} on {HOST} has an older checkpoint; the optimizer begins anew" in second.origin.note
    # In the run's own directory the checkpoint, which has the optimizer, is what counts.
    assert prepared(toy_config(**every), place=Place(tmp_path), backend=backend).state.updates == 3


def test_forged_numbers_are_not_taken_over(trained, prepared, backend, tmp_path):
    trained(Place(tmp_path / "b"))
    backend.registry.add_snapshot({"updates": -5})
    with pytest.raises(CheckpointError, match="updates"):
        prepared(place=Place(tmp_path / "c", own=False), backend=backend)


def test_statistics_of_observations_go_on_from_what_is_published(trained, prepared, toy_config, backend, tmp_path):
    normalized = {"network__input_embedders_parameters": {"observation": {"normalize": True}}}
    first = trained(Place(tmp_path / "b"), **normalized).networks["main"].statistics.moments["observation"]
    made = prepared(toy_config(**normalized), place=Place(tmp_path / "c", own=False), backend=backend)
    second = made.networks["main"].statistics.moments["observation"]
    assert second.count == made.state.trained_steps == 48
    np.testing.assert_allclose(second.mean, first.mean, rtol=1e-6)
    np.testing.assert_allclose(second.variance, first.variance, rtol=1e-6)
