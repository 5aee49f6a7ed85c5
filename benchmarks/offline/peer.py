"""One training with d3rlpy in a process of its own: `benchmarks.offline.measure` starts it and reads its last line."""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import d3rlpy
import gymnasium
import numpy as np
import torch
from d3rlpy.dataset import Episode, ReplayBuffer, create_infinite_replay_buffer
from d3rlpy.logging import NoopAdapterFactory

from benchmarks.offline.measure import Parts
from benchmarks.offline.settings import ALGORITHMS, BATCH, DISCOUNT, UPDATES, WIDTHS
from benchmarks.table import evaluation_seed
from distrl.data.minari_sets import MinariEpisodes, path_of

WARM_UP = 200
"""Updates before those that are timed."""


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Train and play.

    Args:
        given: `cell`, the fields of a cell; `parts`, its sets; `episodes`, the number of greedy ones that judge.

    Returns:
        mean_return; updates_per_s; version, of d3rlpy.
    """
    cell = given["cell"]
    torch.set_num_threads(1)  # as learner.threads
    d3rlpy.seed(cell["seed"])
    data = recorded(given["parts"])
    learner = made(cell["algorithm"])
    learner.build_with_dataset(data)
    for _ in range(WARM_UP):
        learner.update(data.sample_transition_batch(BATCH))
    began, timed = time.monotonic(), UPDATES - WARM_UP
    learner.fit(data, timed, timed, logger_adapter=NoopAdapterFactory(), show_progress=False)
    rate = timed / (time.monotonic() - began)
    mean = played(learner, cell["environment"], given["episodes"], evaluation_seed(cell["seed"]))
    return {"mean_return": mean, "updates_per_s": rate, "version": d3rlpy.__version__}


def made(algorithm: str) -> Any:
    """Return the untrained algorithm of d3rlpy."""
    name, own = ALGORITHMS[algorithm].theirs
    config = getattr(d3rlpy.algos, name)
    encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=[*WIDTHS])
    common: dict[str, Any] = {
        "batch_size": BATCH,
        "gamma": DISCOUNT,
        **{field: encoder for field in config.__dataclass_fields__ if field.endswith("encoder_factory")},
    }
    fields = {field: value for field, value in common.items() if field in config.__dataclass_fields__}
    return config(**fields, **own).create()


def recorded(parts: Parts) -> ReplayBuffer:
    """Return the episodes in d3rlpy's form."""
    episodes = [episode for each in parts for episode in _episodes(each["name"], each["episodes"])]
    data: ReplayBuffer = create_infinite_replay_buffer(episodes)
    return data


def _episodes(name: str, count: int) -> Iterator[Episode]:
    path = path_of(name)
    assert path is not None, name
    for episode in MinariEpisodes(name, path).read(range(count)):
        rewards = episode.rewards.astype(np.float32)[:, None]
        observations, actions = np.asarray(episode.observations, np.float32), episode.actions
        if episode.terminated:
            observations = observations[:-1]
        else:  # d3rlpy leaves the last row of an episode that was cut off out: here it is the observation behind it
            actions = np.concatenate([actions, actions[-1:]])
            rewards = np.concatenate([rewards, rewards[-1:]])
        yield Episode(observations, actions, rewards, episode.terminated)


def played(learner: Any, environment: str, episodes: int, seed: int) -> float:
    """Return the mean return of greedy episodes, all of them in parallel."""
    environments = [gymnasium.make(environment) for _ in range(episodes)]
    rows = np.stack([each.reset(seed=seed + at)[0] for at, each in enumerate(environments)])
    returns, going = np.zeros(episodes), np.ones(episodes, bool)
    while going.any():
        actions = learner.predict(rows.astype(np.float32))
        for at in np.flatnonzero(going):
            rows[at], reward, terminated, truncated, _ = environments[at].step(actions[at])
            returns[at] += float(reward)
            going[at] = not (terminated or truncated)
    return float(returns.mean())


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
