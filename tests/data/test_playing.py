"""Steps that are recorded, written, read, played and stored are those of the environment, to the last bit."""

import minari
import numpy as np
import pytest
from gymnasium.vector.utils import concatenate, create_empty_array
from minari.data_collector import EpisodeBuffer

from distrl.config.schedules import Progress
from distrl.data import minari_sets
from distrl.data.episodes import Episode
from distrl.data.minari_sets import MinariEpisodes, path_of
from distrl.data.opening import new_set
from distrl.data.playing import Playing
from distrl.environments.spaces import action_reader, observation_reader
from distrl.environments.vector import VectorEnvironment
from distrl.learner.replay_set_up import make_replay
from tests.data.logged_env import SPACES


def spec_of(config):
    environment = VectorEnvironment(config.environment, 1)
    environment.close()
    return environment.spec


def same(one, other):
    """Whether two trees hold equal arrays or texts."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other if isinstance(one, str) else np.array_equal(one, other)


def batched(space, observation):
    """Return a batch of one observation."""
    return concatenate(space, [observation], create_empty_array(space, 1))


def row_of(tree, row):
    if isinstance(tree, dict):
        return {key: row_of(inner, row) for key, inner in tree.items()}
    return tuple(row_of(inner, row) for inner in tree) if isinstance(tree, tuple) else tree[row]


@pytest.mark.parametrize("kind", SPACES)
def test_minari_holds_what_the_environment_logged(recorded, kind):
    logged = recorded(kind=kind)
    read = [*MinariEpisodes("test/random", path_of("test/random")).read(range(len(logged)))]
    assert len(read) == 7
    assert {episode.terminated for episode in read} == {True, False}
    for episode, log in zip(read, logged, strict=True):
        assert episode.rewards.tolist() == log.rewards
        assert episode.terminated == log.terminated
        assert episode.log_probabilities.tolist() == [-0.5] * len(log.rewards)
        for row, observation in enumerate(log.observations):  # of a truncated episode, the last one too
            assert same(row_of(episode.observations, row), observation)
        for row, action in enumerate(log.actions):
            assert same(row_of(episode.actions, row), action)


@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, "test/random") for kind in SPACES), ("plain", "steps.parquet"), ("vector", "steps.csv")],
)
def test_the_replay_memory_holds_the_logged_transitions(recorded, config, tmp_path, monkeypatch, kind, name):
    monkeypatch.chdir(tmp_path)
    logged = recorded(name, kind=kind)
    run = config(name, kind=kind)
    spec = spec_of(run)
    playing = Playing(run, spec)
    memory = make_replay(playing.with_replay, spec, {}, 0, recorded=True)
    unrolls = [*playing.unrolls({})]
    for unroll in unrolls:
        memory.insert(unroll)
    assert (len(unrolls), memory.size_steps) == (playing.count, sum(len(log.rewards) for log in logged))
    assert memory.size_episodes == len(logged)
    batch = memory.sample(2_000, Progress(0, 0, 0)).batch
    by_reward = {np.float32(reward): (log, step) for log in logged for step, reward in enumerate(log.rewards)}
    space, act = SPACES[kind][0], action_reader(spec.id, SPACES[kind][1])
    read = observation_reader(spec.id, space, 1)  # as an actor's environment reads them
    seen = set()
    for item in range(2_000):
        log, step = by_reward[batch.rewards[0, item]]
        seen.add(batch.rewards[0, item])
        last = step == len(log.rewards) - 1
        for name, array in act(batched(SPACES[kind][1], log.actions[step])).items():
            assert np.array_equal(batch.actions[name][0, item], array[0])
        assert batch.terminated[0, item] == (last and log.terminated)
        assert batch.truncated[0, item] == (last and not log.terminated)
        for row in (0, 1):
            for name, array in read(batched(space, log.observations[step + row])).items():
                assert np.array_equal(batch.observations[name][row, item], array[0])
    assert len(seen) == len(by_reward)  # all of them


def test_episodes_are_written_whenever_they_take_so_many_bytes(monkeypatch):
    monkeypatch.setattr(minari_sets, "WRITTEN_BYTES", 3 * minari_sets.HELD_BYTES)
    writer, written = new_set("test/some", "tests.data.logged_env:LoggedEnv", *SPACES["image"], {}), []
    images = np.arange(3 * 8 * 6 * 3, dtype=np.uint8).reshape(3, 8, 6, 3)
    for _ in range(6):
        writer.add(Episode(images, np.array([0, 1]), np.zeros(2), True))
        written.append(writer._storage.total_episodes)
    assert written == [0, 0, 3, 3, 3, 6]
    writer.finish()  # with nothing left to write
    read = [*MinariEpisodes("test/some", path_of("test/some")).read(range(6))]
    assert all(np.array_equal(episode.observations, images) for episode in read)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari asks for an author
def test_minari_and_distrl_read_each_others_sets(recorded):
    logged = recorded("some/random")
    (ours,) = minari.list_local_datasets()
    assert ours == "some/random-v0"
    read = minari.load_dataset(ours)
    assert [episode.rewards.tolist() for episode in read] == [log.rewards for log in logged]
    buffers = [
        EpisodeBuffer(
            observations=np.stack(log.observations),
            actions=np.stack(log.actions),
            rewards=log.rewards,
            terminations=[False] * (len(log.rewards) - 1) + [log.terminated],
            truncations=[False] * (len(log.rewards) - 1) + [not log.terminated],
        )
        for log in logged
    ]
    observed, acted = SPACES["plain"]
    minari.create_dataset_from_buffers("some/theirs-v3", buffers, observation_space=observed, action_space=acted)
    theirs = MinariEpisodes("some/theirs", path_of("some/theirs"))
    assert theirs.lengths.tolist() == [len(log.rewards) for log in logged]
    assert [episode.terminated for episode in theirs.read(range(7))] == [log.terminated for log in logged]
