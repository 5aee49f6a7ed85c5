"""Parameters of the replay memory: what could never be sampled is refused before anything is launched."""

from typing import ClassVar, Literal

import pytest
from pydantic import ValidationError

from distrl.config import RunConfig
from distrl.config.algorithms import AlgorithmSection
from distrl.config.replay import ReplayParameters
from distrl.replay.rate_limiter import RateLimiter


class Parameters(AlgorithmSection):
    name: Literal["test"] = "test"
    learns_from: ClassVar[Literal["own policy", "known probabilities", "anybody"]] = "anybody"
    replay: ReplayParameters = ReplayParameters()


class Run(RunConfig):
    algorithm: Parameters = Parameters()


def refused(tree):
    with pytest.raises(ValidationError) as error:
        Run.model_validate(tree)
    (only,) = error.value.errors()
    return only["msg"].removeprefix("Value error, ")


def test_defaults_are_possible_and_the_batch_is_of_transitions():
    config = Run.model_validate({"learner": {"batch_size": 64}, "actors": {"environments": 4}})
    assert (config.batch_size, config.sequences_per_batch, config.unrolls_at_once) == (64, 64, 1)
    replay = config.algorithm.replay
    assert (replay.sampler.kind, replay.samples_sequences, replay.checkpoint) == ("uniform", False, None)
    assert replay.slots(128) == 781


@pytest.mark.parametrize(
    ("replay", "reason"),
    [
        (
            {"capacity_steps": 5000, "min_size_steps": 5001},
            "min_size_steps: 5001 can never be there with capacity_steps: 5000",
        ),
        (
            {"sampler": {"kind": "sequences"}, "n_step": 3},
            "n_step: 3 is of single transitions; sampler.kind: sequences has none",
        ),
        (
            {"capacity_steps": 4095},
            "algorithm.replay.capacity_steps: 4095 is less than one unroll of every actor: 4096 steps "
            "(actors.count x environments x unroll_length_steps)",
        ),
        (
            {"capacity_steps": 6000, "min_size_steps": 5000},
            "algorithm.replay.min_size_steps: 5000 can never be there: whole unrolls of 2048 steps make 4096 of "
            "capacity_steps: 6000",
        ),
    ],
)
def test_what_could_never_be_sampled_is_refused(replay, reason):
    """Two actors of 64 environments and 32 steps, as by default."""
    assert refused({"algorithm": {"replay": replay}}) == reason


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        (
            {"algorithm": {"max_staleness_updates": 1}},
            "algorithm.max_staleness_updates: the replay memory of test keeps unrolls of any age; leave it out",
        ),
        (
            {"algorithm": {"reward_normalization": {}}},
            "algorithm.reward_normalization: the replay memory of test keeps rewards as they came; leave it out",
        ),
        (
            {"network": {"optimizer_type": "LBFGS"}},
            "network.optimizer_type: LBFGS needs the same batch again; test samples another one",
        ),
        (
            {"stop": {"env_steps": 1007}, "learner": {"batch_size": 64}},
            "stop.env_steps: 1007 is over before anything is learned; the first update needs 1008 "
            "(algorithm.replay.min_size_steps, and learner.batch_size by samples_per_insert)",
        ),
    ],
)
def test_what_works_on_the_stream_alone_is_refused(tree, reason):
    assert refused(tree) == reason


@pytest.mark.parametrize(
    ("replay", "steps"),
    [
        ({"samples_per_insert": 8.0}, 1008),
        ({"samples_per_insert": 0.7}, 1092),  # 1000 + 64 / 0.7 = 1091.4
        ({"samples_per_insert": None}, 1000),
        ({"samples_per_insert": 64.0, "sampler": {"kind": "sequences"}}, 1032),  # of 32 steps each
    ],
)
def test_training_may_end_with_its_first_update_and_not_before(replay, steps):
    tree = {"algorithm": {"replay": replay}, "learner": {"batch_size": 64}}
    Run.model_validate({**tree, "stop": {"env_steps": steps}})
    limiter = RateLimiter(replay["samples_per_insert"], 1000)
    batch_steps = 64 * 32 if "sampler" in replay else 64
    assert not limiter.may_sample(batch_steps)
    limiter.insert(steps - 1)
    assert not limiter.may_sample(batch_steps)
    limiter.insert(1)
    assert limiter.may_sample(batch_steps)
    assert f"the first update needs {steps} " in refused({**tree, "stop": {"env_steps": steps - 1}})
