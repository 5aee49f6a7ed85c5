"""Data sets by their names, new ones and those that are there."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from distrl.config.data import DataSetConfig
from distrl.data.episodes import DataError, Episode, Spaces
from distrl.data.opening import new_set, opened

SPACES = Spaces(Box(-9.0, 9.0, (2,)), Discrete(2), 1, None)
EPISODE = Episode(np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 1]), np.array([0.1, 2.0]), True)


@pytest.mark.row("D138")
@pytest.mark.parametrize("name", ["test/kept-v0", "kept.csv", "kept.parquet"])
def test_what_was_saved_is_read_and_is_never_written_again(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def begun():
        return new_set(name, "Own-v0", SPACES.observation, SPACES.action, {})

    writer = begun()
    writer.add(EPISODE)
    writer.finish()
    saved = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match=r"^there is a (data set|file) .* already.*; choose another name, or remove"):
        begun()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == saved
    (episode,) = opened(DataSetConfig(name=name), SPACES).read([0])
    assert np.array_equal(episode.observations, EPISODE.observations)
    assert np.array_equal(episode.actions, EPISODE.actions)
    assert (episode.rewards.tolist(), episode.terminated) == ([0.1, 2.0], True)
