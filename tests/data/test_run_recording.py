"""A training that is recorded: the data set holds what its actors did, and no failure reaches the learner."""

import io
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from distrl.data import run_recording
from distrl.data.episodes import DataError
from distrl.data.minari_sets import MinariEpisodes, Recorder, path_of
from distrl.data.playing import Playing, spaces_of
from distrl.data.recording_process import message_of, send
from distrl.data.run_recording import RecordingBeside, RecordingHere
from distrl.data.unroll_episodes import UnrollEpisodes
from distrl.data.unroll_recording import UnrollRecording
from distrl.errors import FencedError, NonFiniteError, OutageError
from tests.data.logged_env import LOG
from tests.data.test_playing import spec_of
from tests.data.trained_here import train
from tests.waiting import wait_until

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
def beside(config):
    """The configuration of a run of several processes that is recorded."""
    return config(algorithm={"name": "impala"}, data={}, actors={"count": 2}, recording={"name": "test/beside"})


@pytest.fixture
def recording(recorded, config, beside):
    """Returns a recording in a process of its own that has been started, unrolls, and the lines that it has said."""
    recorded()
    run, told = config(), []
    unrolls = [*Playing(run, spec_of(run)).unrolls({})]
    made = RecordingBeside(beside, spec_of(run), told.append)
    made.begin()
    yield made, unrolls, told
    made.close(FencedError("the test is over"))


def begun(folder, count=1):
    """Wait until so many recordings have begun, and return their directories."""
    return wait_until(
        lambda: (
            len(found := [*(folder / "minari" / "test" / ".new").glob("distrl-*/beside-v0/data/*")]) >= count
            and [path.parents[2] for path in found]
        ),
        "recordings have begun",
    )


def names(folder):
    return {path.name for path in (folder / "minari" / "test").iterdir()}


@pytest.mark.parametrize("error", [None, NonFiniteError("a loss"), OutageError("Redis is gone"), KeyboardInterrupt()])
def test_a_process_records(recording, config, error):
    made, unrolls, told = recording
    made.take(unrolls)  # as many together as a batch has
    made.close(error)
    made.take(unrolls)  # of the feed, which ends later
    joining = UnrollEpisodes(spec_of(config()), spaces_of(config().environment))
    expected = [episode for unroll in unrolls for episode in joining.add(unroll)]
    for found, episode in zip(read("test/beside"), expected, strict=True):
        assert found.observations.tolist() == episode.observations.tolist()
        assert found.actions.tolist() == episode.actions.tolist()
        assert found.rewards.tolist() == episode.rewards.tolist()
        assert found.log_probabilities.tolist() == episode.log_probabilities.tolist()
        assert found.terminated == episode.terminated
    assert told == [f"{len(expected)} episodes are recorded: {path_of('test/beside').parent}"]
    assert made._process.returncode == 0


def test_most_steps_end_its_process_while_the_training_goes_on(recorded, config, beside):
    recorded()
    run, told = config(), []
    unrolls = [*Playing(run, spec_of(run)).unrolls({})]
    most = beside.recording.model_copy(update={"most_steps": 15})
    made = RecordingBeside(beside.model_copy(update={"recording": most}), spec_of(run), told.append)
    made.begin()
    made.take(unrolls)
    assert wait_until(lambda: told)[0].endswith(f" episodes are recorded: {path_of('test/beside').parent}")
    assert made._process.returncode == 0
    for _ in range(3):
        made.take(unrolls)
    made.close(None)
    assert len(told) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_every_process_ends_no_recording(recording, tmp_path, number):
    made, unrolls, told = recording
    begun(tmp_path)
    assert os.getpgid(made._process.pid) != os.getpgid(0)  # the terminal's Ctrl-C does not reach it
    assert os.getsid(made._process.pid) == os.getsid(0)
    made.take(unrolls[:1])
    made._process.send_signal(number)
    made.take(unrolls[1:])
    made.close(None)
    assert " episodes are recorded: " in told[0]


def test_a_process_that_was_killed_costs_a_line(recording, tmp_path, beside, config):
    """Unrolls that wait are let go. What it has left is removed by the next recording."""
    made, unrolls, told = recording
    (left,) = begun(tmp_path)
    made.take(unrolls[:1])
    made._process.kill()
    wait_until(lambda: told)
    for _ in range(3):
        made.take(unrolls)
    made.close(None)
    assert told == ["nothing is recorded: its process crashed beside the run: SIGKILL"]
    assert (left.exists(), made._waiting.qsize()) == (True, 0)
    UnrollRecording(beside, spec_of(config())).abandon()
    assert names(tmp_path) == {"random-v0"}


def test_a_learner_that_dies_leaves_nothing(recorded, config, beside, tmp_path):
    """The input of the process then ends without a last message, also in the middle of one."""
    recorded()
    run, told = config(), []
    unrolls = [*Playing(run, spec_of(run)).unrolls({})]
    made = RecordingBeside(beside, spec_of(run), told.append)
    request = io.BytesIO()
    send(request, made._request)
    for unroll in unrolls:
        send(request, message_of(unroll, 0))
    for sent in (request.getvalue(), request.getvalue()[:-7], request.getvalue()[:20], b""):
        answer, theirs = os.pipe()
        ended = subprocess.run(
            [sys.executable, "-m", "distrl.data.recording_process", str(theirs)], input=sent, pass_fds=[theirs]
        )
        os.close(theirs)
        with os.fdopen(answer) as file:
            assert (ended.returncode, file.read()) == (0, "")
        assert names(tmp_path) == {"random-v0"}


def test_a_full_disk_costs_a_line(recording, tmp_path):
    made, unrolls, told = recording
    begun(tmp_path)
    resource.prlimit(made._process.pid, resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
    made.take(unrolls)
    made.close(None)
    (line,) = told
    assert line.startswith("nothing is recorded: data set test/beside-v0 cannot be written: [Errno 27] File too large")
    assert names(tmp_path) == {"random-v0"}


def test_a_successor_says_nothing_of_a_recording_that_was_complete(recording, config, beside):
    made, unrolls, told = recording
    made.take(unrolls)
    made.close(None)
    successor = RecordingBeside(beside, spec_of(config()), told.append, Recorder("r", "l", 2))
    successor.begin()
    successor.take(unrolls)
    successor.close(None)
    assert told == [f"{len(read('test/beside'))} episodes are recorded: {path_of('test/beside').parent}"]
    first = RecordingBeside(beside, spec_of(config()), told.append, Recorder("r", "l", 1))
    first.begin()
    first.close(None)
    assert told[1].startswith("nothing is recorded: there is a data set test/beside-v0 already")


@pytest.mark.parametrize("error", [FencedError("another learner"), ValueError("a fault")])
def test_a_learner_that_has_a_successor_leaves_the_name_to_it(recording, config, beside, tmp_path, error):
    """Also if the successor has begun before, and other starts try the name."""
    made, unrolls, told = recording
    made.take(unrolls)
    successor = RecordingBeside(beside, spec_of(config()), told.append)
    successor.begin()
    begun(tmp_path, 2)
    UnrollRecording(beside, spec_of(config())).abandon()
    successor.take(unrolls)
    made.close(error)
    assert ((tmp_path / "minari" / "test" / "beside-v0").exists(), told) == (False, [])
    successor.close(None)
    assert told == [f"{len(read('test/beside'))} episodes are recorded: {path_of('test/beside').parent}"]
    assert names(tmp_path) == {"random-v0", "beside-v0"}


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
    recorded, config, beside, tmp_path, monkeypatch, successor, left
):
    recorded()
    spec = spec_of(config())
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("socket.gethostname", lambda: "gone")
        killed = UnrollRecording(beside, spec, Recorder("r", "first", 1))._writer
        os.close(killed._private[1])  # as the kernel does
    other = UnrollRecording(beside, spec, successor)
    assert killed._private[0].exists() == left
    other.abandon()
    assert (tmp_path / "minari" / "test" / ".new").exists() == left


def test_a_recording_that_falls_behind_leaves_unrolls_out(recording, tmp_path, monkeypatch):
    made, unrolls, told = recording
    monkeypatch.setattr(run_recording, "WAITING_BYTES", 10_000)
    begun(tmp_path)
    made._process.send_signal(signal.SIGSTOP)
    try:
        while not made._left_out:  # the pipe is full, and the queue behind it
            made.take(unrolls)
        assert 10_000 <= made._waiting_bytes < 20_000
        before = made._left_out
        made.take(unrolls)
        assert made._left_out == before + len(unrolls)
    finally:
        made._process.send_signal(signal.SIGCONT)
    made.close(None)
    assert told[0].endswith(f"; left out: {made._left_out} unrolls")
    assert made._waiting_bytes == 0


def test_an_episode_that_is_too_long_is_left_out_with_a_line(recorded, config, beside, monkeypatch):
    """All of them are, where no memory is left."""
    recorded()
    monkeypatch.setattr("distrl.data.unroll_episodes.OPEN_BYTES", 0)
    (first, *_) = Playing(config(), spec_of(config())).unrolls({})
    made = UnrollRecording(beside, spec_of(config()))
    made.add(replace(first, valid=np.ones_like(first.valid)))
    line = "no episode has ended in unrolls that follow one another; left out: 7 unrolls, "
    with pytest.raises(DataError, match=f"{line}{first.valid.shape[1]} episodes that were too long"):
        made.finish(7)
    made.abandon()


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
    for kind in (RecordingHere, RecordingBeside):
        told = []
        made = kind(run, spec_of(run), told.append)
        made.begin()
        made.close(None)
        (line,) = told
        assert line.startswith("nothing is recorded: recording: unrolls hold what preprocessing has made of")
