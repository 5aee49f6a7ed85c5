"""Deterministic mode's feed: the actor acts exactly when the learner wants a batch. Whole runs: tests/failures."""

from types import SimpleNamespace

import numpy as np
import pytest

from distrl.config import RunConfig
from distrl.data_store.checkpoints import load_newest
from distrl.environments.vector import VectorEnvironment
from distrl.errors import NonFiniteError, StalledError
from distrl.launch.description import RunDescription
from distrl.launch.deterministic import InlineFeed, run_deterministic
from distrl.memory_backend.backend import QueueCaps
from distrl.memory_backend.in_memory import InMemoryBackend


def inline_feed(collect, stall_timeout_s=60.0, stop=lambda: False):
    """An InlineFeed over a scripted feed: `collect(idle)` is what the feed does with what it may ask."""
    acted = []
    actor = SimpleNamespace(step=acted.append)
    backend = InMemoryBackend("r", QueueCaps(10, 2**20))
    feed = InlineFeed(
        actor, lambda idle: SimpleNamespace(collect=lambda: collect(idle)), backend, stop, stall_timeout_s
    )
    return feed, acted


def test_the_actor_acts_whenever_the_feed_has_nothing_to_take():
    feed, acted = inline_feed(lambda idle: [idle() for _ in range(3)])
    assert feed.collect() == [False, False, False]
    assert len(acted) == 3  # two for a batch, say, and one in place of an unroll that was rejected


def test_a_feed_that_never_fills_a_batch_is_a_stall():
    feed, acted = inline_feed(lambda idle: idle(), stall_timeout_s=-1.0)
    with pytest.raises(StalledError, match="no batch for 0 s"):
        feed.collect()
    assert acted == []


class Training:
    """Runs in one process, on the toy `Identity`."""

    def __init__(self, tmp_path, name, algorithm, rate=1.0, **network):
        self.config = {
            "environment": {"id": "distrl.environments.toy:Identity", "kwargs": {"n": 2, "length_steps": 3}},
            "algorithm": {"name": algorithm, "reward_normalization": network.pop("rewards", None)},
            "network": {"middleware_parameters": {"scheme": [4], **network.pop("middleware", {})}, **network},
            "actors": {"count": 0, "environments": 2, "unroll_length_steps": 4, "weight_mixing_rate": rate},
            "checkpoint": {"every_s": None, "every_updates": 3},
        }
        self.run_dir = tmp_path / name
        self.backend = None

    def train(self, updates):
        config = RunConfig.model_validate({**self.config, "stop": {"updates": updates}})
        environment = VectorEnvironment(config.environment, 1)
        environment.close()
        newest = load_newest(self.run_dir / "checkpoints") if self.run_dir.exists() else None
        update = 0 if newest is None else newest.step
        self.backend = InMemoryBackend("r", QueueCaps.of(config))
        description = RunDescription(
            run_id=f"r{update}",
            run_dir=str(self.run_dir),
            resumed_update=update,
            config=config,
            spec=environment.spec,
        )
        self.backend.create(description.model_dump_json())
        snapshots = []
        reason = run_deterministic(description, self.backend, snapshots.append, lambda: False)
        return reason, snapshots[-1]

    @property
    def arrays(self):
        found = load_newest(self.run_dir / "checkpoints")
        return {(group, name): array for group, arrays in found.arrays.items() for name, array in arrays.items()}


@pytest.mark.parametrize("algorithm", ["a3c", "a2c"])
def test_gradient_actors_train_in_one_process_and_every_gradient_is_accounted_for(tmp_path, algorithm):
    run = Training(tmp_path, "run", algorithm, learning_rate=0.05)
    reason, snapshot = run.train(20)
    assert (reason, snapshot["updates"], snapshot["policy_lag_max"]) == ("updates", 20, 0)
    # 20 unrolls of 4 rows in 2 environments; every fourth row is padding after an episode of 3 steps.
    assert (snapshot["env_steps"], snapshot["trained_steps"], snapshot["episodes"]) == (120, 120, 40)
    assert (snapshot["mean_length_100_steps"], snapshot["weights_version"]) == (3.0, 21)
    assert {"loss", "policy_loss", "value_loss", "entropy", "gradient_norm", "learning_rate"} <= snapshot.keys()
    ledger = run.backend.ledger.counts()
    assert (ledger.trained, ledger.produced, ledger.imbalance) == (20, 20, 0)


def test_episodes_that_end_with_the_last_row_before_a_checkpoint_count(tmp_path):
    """A checkpoint abandons open episodes, and those of 3 steps are never open after an unroll of 3."""
    run = Training(tmp_path, "run", "impala")
    run.config["actors"]["unroll_length_steps"] = 3
    run.config["learner"] = {"batch_size": 1}
    run.config["checkpoint"]["every_updates"] = 1
    _, snapshot = run.train(10)
    assert (snapshot["env_steps"], snapshot["episodes"], snapshot["mean_length_100_steps"]) == (60, 20, 3.0)


def assert_that_halves_make_a_whole(tmp_path, *arguments, **options):
    """Six updates and a checkpoint after three of them, against a run that was resumed from it; returns the arrays."""
    whole, halves = (Training(tmp_path, name, *arguments, **options) for name in ("whole", "halves"))
    whole.train(6)
    halves.train(3)
    halves.train(6)
    one, two = whole.arrays, halves.arrays
    assert one.keys() == two.keys()
    for key, array in one.items():
        assert array.tobytes() == two[key].tobytes(), key
    return one


@pytest.mark.row("Q03")
@pytest.mark.parametrize(("algorithm", "rate"), [("a3c", 1.0), ("a3c", 0.3), ("a2c", 1.0)])
def test_a_resumed_run_of_gradient_actors_goes_on_bit_by_bit(tmp_path, algorithm, rate):
    """Dropout draws in the actor, averages move there, statistics and optimizers live in the learner."""
    options = {
        "middleware": {"dropout_rate": 0.3, "batchnorm": True},
        "input_embedders_parameters": {"observation": {"normalize": True}},
        "shared_optimizer": False,
        "rewards": {"kind": "reward"},
    }
    arrays = assert_that_halves_make_a_whole(tmp_path, algorithm, rate, **options)
    groups = {"main.global", "main.online", "main.optimizer_0", "main.statistics", "main.rewards"}
    assert {group for group, _ in arrays} >= groups


def test_normalised_rewards_go_on_bit_by_bit_in_a_resumed_run(tmp_path):
    """With unrolls on their way; of gradients the test above says it."""
    arrays = assert_that_halves_make_a_whole(tmp_path, "impala", 1.0, rewards={})
    assert arrays["main.rewards", "count"] > 0


@pytest.mark.row("Q03")
def test_a_resumed_run_whose_actor_mixes_weights_goes_on_bit_by_bit(tmp_path):
    """What the actor has mixed is in no checkpoint: both runs begin anew with the learner's weights."""
    assert_that_halves_make_a_whole(tmp_path, "impala", 0.3, learning_rate=0.05)


@pytest.mark.parametrize("algorithm", ["a2c"])
def test_a_round_of_nothing_finite_ends_the_run(tmp_path, monkeypatch, algorithm):
    from distrl.actors.gradient_actor import GradientShipper

    contribution = GradientShipper.contribution

    def broken(self, unroll):
        made = contribution(self, unroll)
        for gradient in made.differentiated.gradients.values():
            gradient.fill(np.nan)
        return made

    monkeypatch.setattr(GradientShipper, "contribution", broken)
    with pytest.raises(NonFiniteError, match="no gradient of version 1 could be used: nonfinite"):
        Training(tmp_path, "run", algorithm).train(3)
