"""A training that is recorded: the data set holds what its actors did, and no failure reaches the learner."""

import os
import threading
from dataclasses import replace

import numpy as np
import pytest

from distrl.data.minari_sets import MinariEpisodes, MinariWriter, Recorder, path_of
from distrl.data.playing import Playing, spaces_of
from distrl.data.run_recording import MOST_WAITING, RunRecording, begun
from distrl.data.unroll_episodes import UnrollEpisodes
from distrl.errors import DistrlError, FencedError, NonFiniteError, OutageError
from tests.data.logged_env import LOG
from tests.data.test_playing import spec_of
from tests.data.trained_here import train

SMALL = {"middleware_parameters": {"scheme": [4]}}
HERE = {"algorithm": {"name": "impala"}, "data": {}, "network": SMALL, "learner": {"batch_size": 1}}


def read(name):
    found = MinariEpisodes(name, path_of(name))
    return [*found.read(range(len(found.lengths)))]


def test_a_training_is_recorded_and_read_again(config, tmp_path):
    LOG.clear()
    sections = {**HERE, "checkpoint": {"every_s": None, "every_updates": 7}, "recording": {"name": "test/all"}}
    train(config(**sections), tmp_path, 20)
    logged = {np.float32(log.rewards[0]): log for log in LOG if log.over}
    found = read("test/all")
    for episode in found:  # none is joined across the resets after checkpoints
        log = logged.pop(np.float32(episode.rewards[0]))
        assert episode.rewards.tolist() == np.float32(log.rewards).tolist()
        assert episode.observations.tolist() == np.array(log.observations).tolist()
        assert (episode.terminated, len(episode.log_probabilities)) == (log.terminated, len(log.rewards))
    assert len(found) > len(logged)  # the others had ended in the last step before a checkpoint
    run = config("test/all", rows=2)
    assert Playing(run, spec_of(run)).steps == sum(len(episode.rewards) for episode in found)


def test_most_steps_bound_it_and_what_is_there_stays(config, tmp_path):
    sections = {**HERE, "recording": {"name": "test/all", "most_steps": 12}}
    train(config(**sections), tmp_path / "run", 6)
    first = sum(len(episode.rewards) for episode in read("test/all"))
    assert 0 < first <= 24  # of two unrolls of 4 steps in 3 rows
    told = []
    snapshot, _ = train(config(**sections), tmp_path / "other", 2, told.append)
    assert snapshot["updates"] == 2
    assert told[0].startswith("nothing is recorded: there is a data set test/all-v0 already")
    assert sum(len(episode.rewards) for episode in read("test/all")) == first


@pytest.fixture
def recording(recorded, config):
    """Returns a recording on a thread that has begun, unrolls, and the lines that it has said."""
    recorded()
    run, told = config(), []
    unrolls = [*Playing(run, spec_of(run)).unrolls({})]
    threaded = config(algorithm={"name": "impala"}, data={}, actors={"count": 2}, recording={"name": "test/beside"})
    made = RunRecording(threaded, spec_of(run), told.append)
    made.begin()
    return made, unrolls, told


@pytest.mark.parametrize("error", [None, NonFiniteError("a loss"), OutageError("Redis is gone"), KeyboardInterrupt()])
def test_a_thread_records(recording, config, error):
    made, unrolls, told = recording
    made.take(unrolls)  # as many together as a batch has
    made.close(error)
    made.take(unrolls)  # of the feed, which ends later
    joining = UnrollEpisodes(spec_of(config()), spaces_of(config().environment))
    expected = [episode.rewards.tolist() for unroll in unrolls for episode in joining.add(unroll)]
    assert [episode.rewards.tolist() for episode in read("test/beside")] == expected
    assert told == [f"{len(expected)} episodes are recorded: {path_of('test/beside').parent}"]


def test_a_failure_costs_a_line(recording, tmp_path, monkeypatch):
    made, unrolls, told = recording

    def fail(self, episode):
        raise DistrlError("the disk\nis full")

    monkeypatch.setattr(MinariWriter, "add", fail)
    made.take(unrolls)
    made.close(None)
    assert told == ["nothing is recorded: the disk is full"]
    assert [path.name for path in (tmp_path / "minari" / "test").iterdir()] == ["random-v0"]


def test_a_successor_says_nothing_of_a_recording_that_was_complete(recording, config):
    made, unrolls, told = recording
    made.take(unrolls)
    made.close(None)
    run = config(algorithm={"name": "impala"}, data={}, actors={"count": 2}, recording={"name": "test/beside"})
    successor = RunRecording(run, spec_of(run), told.append, Recorder("r", "l", 2))
    successor.begin()
    successor.take(unrolls)
    successor.close(None)
    assert told == [f"{len(read('test/beside'))} episodes are recorded: {path_of('test/beside').parent}"]


@pytest.mark.parametrize("error", [FencedError("another learner"), ValueError("a fault")])
def test_a_learner_that_has_a_successor_leaves_the_name_to_it(recording, config, tmp_path, error):
    """Also if the successor has begun before, and other starts try the name."""
    made, unrolls, told = recording
    made.take(unrolls)
    run = config(algorithm={"name": "impala"}, data={}, actors={"count": 2}, recording={"name": "test/beside"})
    successor = RunRecording(run, spec_of(run), told.append)
    successor.begin()
    begun(run, spec_of(run))[1].abandon()
    successor.take(unrolls)
    made.close(error)
    assert ((tmp_path / "minari" / "test" / "beside-v0").exists(), told) == (False, [])
    successor.close(None)
    assert told == [f"{len(read('test/beside'))} episodes are recorded: {path_of('test/beside').parent}"]
    assert {path.name for path in (tmp_path / "minari" / "test").iterdir()} == {"random-v0", "beside-v0"}


@pytest.mark.parametrize(
    ("successor", "left"),
    [
        (Recorder("r", "first", 2), False),
        (Recorder("r", "second", 1), False),
        (Recorder("r", "first", 1), True),  # itself is no successor
        (Recorder("another", "second", 2), True),
    ],
)
def test_what_a_killed_learner_of_another_host_left_goes_with_its_successor(
    recording, config, tmp_path, monkeypatch, successor, left
):
    made = recording[0]
    made.close(FencedError("another learner"))
    run = config(algorithm={"name": "impala"}, data={}, actors={"count": 2}, recording={"name": "test/beside"})
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("socket.gethostname", lambda: "gone")
        _, killed = begun(run, spec_of(run), Recorder("r", "first", 1))
        os.close(killed._private[1])  # as the kernel does
    _, writer = begun(run, spec_of(run), successor)
    assert killed._private[0].exists() == left
    writer.abandon()
    assert (tmp_path / "minari" / "test" / ".new").exists() == left


def test_a_recording_that_falls_behind_leaves_unrolls_out(recording):
    made, unrolls, told = recording
    begun, goes_on = threading.Event(), threading.Event()
    add = made._add
    made._add = lambda unroll: (begun.set(), goes_on.wait(), add(unroll))
    made.take(unrolls[:1])
    begun.wait()
    while made._waiting.qsize() < MOST_WAITING:
        made.take(unrolls[:1])
    made.take(unrolls)
    goes_on.set()
    made.close(None)
    assert told[0].endswith(f"; left out: {len(unrolls)} unrolls")


def test_an_episode_that_is_too_long_is_left_out_with_a_line(recording, monkeypatch):
    """All of them are, where no memory is left."""
    made, unrolls, told = recording
    monkeypatch.setattr("distrl.data.unroll_episodes.OPEN_BYTES", 0)
    begins = [replace(unrolls[0], valid=np.ones_like(unrolls[0].valid))]
    made.take(begins)
    made.close(None)
    line = "nothing is recorded: no episode has ended in unrolls that follow one another; left out: "
    assert told == [f"{line}{unrolls[0].valid.shape[1]} episodes that were too long"]


@pytest.mark.parametrize("kind", ["greedy", "boltzmann"])
def test_probabilities_that_are_not_known_are_not_recorded(config, tmp_path, kind):
    sections = {**HERE, "algorithm": {"name": "dqn"}, "exploration": {"kind": kind}, "recording": {"name": "test/all"}}
    train(config(**sections), tmp_path, 20)
    assert {episode.log_probabilities is None for episode in read("test/all")} == {kind == "greedy"}


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"data": {"sets": "x"}, "algorithm": {"name": "dqn"}}, "recording: nothing acts in a run that learns from"),
        ({"algorithm": {"name": "a3c"}}, "recording: actors of a3c ship gradients; choose another algorithm"),
        ({"environment": {"spec_file": "x.json"}}, "the learner makes the environment to record its spaces"),
    ],
)
def test_settings_that_cannot_be_recorded(config, sections, line):
    with pytest.raises(ValueError, match=line):
        config(**{"data": {}, "algorithm": {"name": "impala"}, **sections, "recording": {"name": "x"}})


def test_preprocessed_observations_are_refused(config):
    run = config(
        data={},
        algorithm={"name": "impala"},
        environment={"preprocessing": [{"step": "clip", "of": "reward", "low": -1}]},
        recording={"name": "x"},
    )
    told = []
    made = RunRecording(run, spec_of(run), told.append)
    made.begin()
    assert told[0].startswith("nothing is recorded: recording: unrolls hold what preprocessing has made of")
    made.close(None)
