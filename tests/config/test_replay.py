"""Parameters of the replay memory: what could never be sampled is refused before anything is launched."""

from typing import ClassVar, Literal

import pytest
from pydantic import ValidationError

from distrl.config import RunConfig
from distrl.config.algorithms import AlgorithmSection
from distrl.config.load import load
from distrl.config.replay import ReplayParameters
from distrl.errors import ConfigError
from distrl.replay.rate_limiter import RateLimiter
from distrl.types import BoxSpec, DiscreteSpec, EnvSpec


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
    assert (replay.item.kind, replay.item.n_step, replay.sampler.kind, replay.checkpoint) == (
        "transition",
        1,
        "uniform",
        None,
    )
    assert replay.slots(128) == 781


@pytest.mark.parametrize(
    ("replay", "reason"),
    [
        (
            {"capacity_steps": 5000, "min_size_steps": 5001},
            "min_size_steps: 5001 can never be there with capacity_steps: 5000",
        ),
        (
            {"sampler": {"kind": "balanced"}, "item": {"kind": "sequence"}},
            "sampler.kind: balanced needs items with one choice each, and item.kind is sequence; use transition, or "
            "another sampler",
        ),
        (
            {"sampler": {"kind": "sequences"}},
            "kind: sequences is a kind of item; write algorithm.replay.item.kind=sequence",
        ),
        (
            {"item": {"kind": "sequence", "length_steps": 12}},
            "algorithm.replay.item: sequences of 12 steps that start every 12 do not fill unrolls of 32 steps; set "
            "actors.unroll_length_steps to 12 plus a multiple of 12",
        ),
        (
            {"item": {"kind": "sequence", "length_steps": 40, "overlap_steps": 30}},
            "algorithm.replay.item: sequences of 40 steps that start every 10 do not fill unrolls of 32 steps; set "
            "actors.unroll_length_steps to 40 plus a multiple of 10",
        ),
        (
            {"item": {"kind": "sequence", "length_steps": 16, "overlap_steps": 16}},
            "algorithm.replay.item.overlap_steps: 16 must be less than the 16 steps of a sequence",
        ),
        (
            {"item": {"kind": "sequence", "overlap_steps": 8}},
            "algorithm.replay.item.overlap_steps: an unroll of 32 steps holds one sequence, which shares no 8 steps "
            "with another; set actors.unroll_length_steps to 32 plus a multiple of 24, or leave it out",
        ),
        (
            {"item": {"kind": "sequence", "burn_in_steps": 32}},
            "algorithm.replay.item.burn_in_steps: 32 must be less than the 32 steps of a sequence",
        ),
        (
            {"item": {"kind": "sequence", "burn_in_steps": 8}},
            "algorithm.replay.item.burn_in_steps: 8 steps bring a recurrent state up to date, and the network has "
            "none; leave it out, or use the middleware lstm or gru",
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
        ({"samples_per_insert": 64.0, "item": {"kind": "sequence"}}, 1032),  # of 32 steps each
    ],
)
def test_training_may_end_with_its_first_update_and_not_before(replay, steps):
    tree = {"algorithm": {"replay": replay}, "learner": {"batch_size": 64}}
    Run.model_validate({**tree, "stop": {"env_steps": steps}})
    limiter = RateLimiter(replay["samples_per_insert"], 1000)
    batch_steps = 64 * 32 if "item" in replay else 64
    assert not limiter.may_sample(batch_steps)
    limiter.insert(steps - 1)
    assert not limiter.may_sample(batch_steps)
    limiter.insert(1)
    assert limiter.may_sample(batch_steps)
    assert f"the first update needs {steps} " in refused({**tree, "stop": {"env_steps": steps - 1}})


def test_rows_that_hold_the_recurrent_state_follow_from_the_item():
    """From overlapping sequences of 16 steps, 8 of them burnt in: a batch of 4 trains 4 x 8 steps."""
    item = {"kind": "sequence", "length_steps": 16, "overlap_steps": 8, "burn_in_steps": 8}
    tree = {
        "algorithm": {"replay": {"item": item}},
        "network": {"middleware_parameters": {"kind": "lstm"}},
        "learner": {"batch_size": 4},
    }
    config = Run.model_validate(tree)
    assert [*config.state_rows] == [0, 8, 16]
    assert config.algorithm.replay.steps_of(config.batch_size, 32) == 32
    assert [*Run.model_validate({}).state_rows] == [*RunConfig().state_rows] == [0]


@pytest.mark.parametrize(
    ("assignment", "line"),
    [
        ("algorithm.replay.n_step=3", "unknown key algorithm.replay.n_step (from flag --set); did you mean "),
        ("algorithm.replay.sampler={kind: sequences}", "algorithm.replay.sampler: kind: sequences is a kind of item; "),
    ],
)
def test_an_old_key_names_its_new_place(assignment, line):
    with pytest.raises(ConfigError) as error:
        load("cartpole-dqn", sets=[assignment])
    assert str(error.value).startswith(line)
    assert "algorithm.replay.item." in str(error.value)


@pytest.mark.row("D134")
@pytest.mark.parametrize(
    ("actions", "found"),
    [
        ({"push": BoxSpec((1,), (None,), (None,))}, "push \\(box\\)"),
        ({"turn": DiscreteSpec(2), "jump": DiscreteSpec(3)}, "turn \\(discrete\\), jump \\(discrete\\)"),
    ],
)
def test_balanced_sampling_is_of_one_choice(actions, found):
    replay = ReplayParameters.model_validate({"sampler": {"kind": "balanced"}})
    replay.check_spec(EnvSpec("Toy-v0", {}, {"turn": DiscreteSpec(2)}))
    with pytest.raises(ConfigError, match=f"balanced is for a single action, a choice; Toy-v0 has {found}; use unif"):
        replay.check_spec(EnvSpec("Toy-v0", {}, actions))
