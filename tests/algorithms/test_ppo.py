"""PPO's estimates and loss: the rows' numbers, by hand, and against a slow twin. Runs on every Keras backend."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from distrl.algorithms import make_algorithm
from distrl.algorithms.epochs import by_sequences
from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.joint import JointDistribution
from distrl.networks.heads import make_heads
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec

SPEC = EnvSpec("Bandit", {"observation": ArraySpec((1,), "float32")}, {"action": DiscreteSpec(2)})
LOGITS = "policy/action"
FEW = settings(max_examples=min(25, settings.default.max_examples), deadline=None)


def make(name="ppo", network=None, **algorithm):
    """The algorithm as `build` leaves it, without a network."""
    config = RunConfig.model_validate({"algorithm": {"name": name, **algorithm}, "network": network or {}})
    made = make_algorithm(config)
    made.distribution = JointDistribution({"action": CategoricalSpec(2)})
    made._loss_heads = make_heads(made.configured_heads(), SPEC, config.network, seed=1)
    return made


def make_batch(rewards, **fields):
    rewards = np.array(rewards, "float32")
    given = {
        "observations": {"observation": np.zeros((len(rewards) + 1, rewards.shape[1], 1), "float32")},
        "actions": {"action": np.zeros(rewards.shape, "int32")},
        "rewards": rewards,
        "terminated": np.zeros(rewards.shape, bool),
        "truncated": np.zeros(rewards.shape, bool),
        "valid": np.ones(rewards.shape, bool),
        "behaviour_log_probabilities": np.full(rewards.shape, math.log(0.5), "float32"),
        "recurrent_state": {},
    }
    return Batch(**(given | fields))


def logits_of(probabilities):
    """Logits [..., 2] of policies that take action 0 with these probabilities."""
    chosen = np.asarray(probabilities, "float32")
    return np.log(np.stack([chosen, 1.0 - chosen], axis=-1))


def estimates_of(algorithm, logits, values, batch):
    made = algorithm.estimates({LOGITS: logits, "value": np.asarray(values, "float32")}, batch)
    return {name: ops.convert_to_numpy(rows) for name, rows in made.items()}


def loss_of(algorithm, probabilities, values, batch, **estimates):
    """Terms and metrics of policies and values [T, N] against the given estimates; those not given are of no effect."""
    shape = batch.rewards.shape
    made = {
        "advantages": np.zeros(shape, "float32"),
        "value_targets": np.asarray(values, "float32"),
        "old_values": np.asarray(values, "float32"),
        "old_log_probabilities": batch.behaviour_log_probabilities,
        f"old/{LOGITS}": logits_of(np.full(shape, 0.5)),
        **{name: np.asarray(rows, "float32") for name, rows in estimates.items()},
    }
    outputs = {LOGITS: logits_of(probabilities), "value": np.asarray(values, "float32")}
    terms, metrics = algorithm.surrogate_loss(outputs, by_sequences(batch, made))
    return [{name: float(ops.convert_to_numpy(value)) for name, value in told.items()} for told in (terms, metrics)]


# --- the surrogate ----------------------------------------------------------------------------------------------------


@pytest.mark.row("D166", "G30", "H14", "P07.3")
@pytest.mark.parametrize(("ratio", "advantage", "objective"), [(1.5, 1.0, 1.2), (0.5, -1.0, -0.8)])
def test_the_clipped_objective_is_the_rows(ratio, advantage, objective):
    """Action 0 was taken with probability .5 and is now with ratio x .5."""
    terms, metrics = loss_of(
        make(normalize_advantages=None), [[0.5 * ratio]], [[0.0]], make_batch([[0.0]]), advantages=[[advantage]]
    )
    assert terms["policy"] == pytest.approx(-objective, rel=1e-5)
    assert metrics["policy_loss"] == pytest.approx(-objective, rel=1e-5)
    assert (metrics["mean_ratio"], metrics["clip_fraction"]) == pytest.approx((ratio, 1.0))


@pytest.mark.row("G30", "T18")
@pytest.mark.parametrize("clip_range", [0.1, 0.2, 0.3])
def test_the_clip_is_symmetric_around_one(clip_range):
    """An ancestor clipped to [1 / (1 + c), 1 + c], whose lower end is .833 for c = .2 where it should be .8."""
    algorithm = make(normalize_advantages=None, clip_range=clip_range)
    for ratio, advantage, edge in ((0.4, -1.0, 1.0 - clip_range), (1.9, 1.0, 1.0 + clip_range)):
        terms, _ = loss_of(algorithm, [[0.5 * ratio]], [[0.0]], make_batch([[0.0]]), advantages=[[advantage]])
        assert terms["policy"] == pytest.approx(-edge * advantage, rel=1e-5)


@pytest.mark.row("H14")
def test_without_a_clip_the_objective_is_the_ratio_times_the_advantage():
    algorithm = make(normalize_advantages=None, clip_range=None, kl_penalty={"initial_coefficient": 1e-9})
    terms, metrics = loss_of(
        algorithm, [[0.75], [0.25]], np.zeros((2, 1)), make_batch([[0.0]] * 2), advantages=[[1.0], [-1.0]]
    )
    assert terms["policy"] == pytest.approx(-(1.5 - 0.5) / 2, rel=1e-5)
    assert metrics["clip_fraction"] == 0.0


@pytest.mark.row("D165")
def test_the_penalty_is_the_coefficient_times_the_divergence():
    """KL((.5, .5) || (.75, .25)) = .5 ln(.5 / .75) + .5 ln(.5 / .25) = .143841."""
    divergence = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    algorithm = make(normalize_advantages=None, clip_range=None, kl_penalty={"initial_coefficient": 3.0})
    terms, metrics = loss_of(algorithm, [[0.75]], [[0.0]], make_batch([[0.0]]), advantages=[[2.0]])
    assert terms["policy"] == pytest.approx(-1.5 * 2.0 + 3.0 * divergence, rel=1e-5)
    assert metrics["kl"] == pytest.approx(divergence, rel=1e-5)


@pytest.mark.row("D07.11")
def test_the_value_may_be_clipped_around_the_old_one():
    """Old 1, new 2, range .2, target 3: max((2 - 3)^2, (1.2 - 3)^2) = 3.24, of which the value loss is half."""
    told = {"value_targets": [[3.0]], "old_values": [[1.0]]}
    _, clipped = loss_of(make(value_clip_range=0.2), [[0.5]], [[2.0]], make_batch([[0.0]]), **told)
    _, plain = loss_of(make(), [[0.5]], [[2.0]], make_batch([[0.0]]), **told)
    assert (clipped["value_loss"], plain["value_loss"]) == pytest.approx((3.24 / 2, 1.0 / 2), rel=1e-5)


def test_entropy_and_weights():
    algorithm = make(entropy_weight=0.1, value_loss_weight=0.25, normalize_advantages=None)
    terms, metrics = loss_of(algorithm, [[0.5]], [[2.0]], make_batch([[0.0]]), value_targets=[[4.0]])
    assert metrics["entropy"] == pytest.approx(math.log(2.0), rel=1e-5)
    assert terms == pytest.approx({"policy": -0.1 * math.log(2.0), "value": 0.25 * 0.5 * 4.0}, rel=1e-5)


def test_advantages_of_a_minibatch_are_normalised_over_its_valid_rows():
    """2, 4 and, not valid, 99: -1 and 1; ratios 1.1 and .9."""
    batch = make_batch([[0.0]] * 3, valid=np.array([[True], [True], [False]]))
    terms, _ = loss_of(make(), [[0.55], [0.45], [0.9]], np.zeros((3, 1)), batch, advantages=[[2.0], [4.0], [99.0]])
    assert terms["policy"] == pytest.approx(-(-1.1 + 0.9) / 2, rel=1e-4)


@pytest.mark.row("P07.3")
@FEW
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.2]), st.sampled_from([None, 0.3]))
def test_the_loss_is_its_twin(seed, clip_range, value_clip_range):
    rng = np.random.default_rng(seed)
    shape = (3, 4)
    batch = make_batch(
        np.zeros(shape),
        valid=rng.random(shape) < 0.8,
        actions={"action": rng.integers(0, 2, shape).astype("int32")},
        behaviour_log_probabilities=np.log(rng.uniform(0.2, 0.8, shape)).astype("float32"),
    )
    new, old = rng.uniform(0.1, 0.9, shape), rng.uniform(0.1, 0.9, shape)
    values, old_values, targets, advantages = rng.normal(size=(4, *shape))
    algorithm = make(
        normalize_advantages=None, clip_range=clip_range, value_clip_range=value_clip_range, entropy_weight=0.2
    )
    terms, metrics = loss_of(
        algorithm, new, values, batch, advantages=advantages, value_targets=targets, old_values=old_values,
        **{f"old/{LOGITS}": logits_of(old)},
    )  # fmt: skip
    surrogates, value_losses, entropies, divergences, beyond = [], [], [], [], []
    for at in zip(*np.nonzero(batch.valid), strict=True):
        p, q = (np.array([one[at], 1.0 - one[at]]) for one in (old, new))
        ratio = q[batch.actions["action"][at]] / np.exp(batch.behaviour_log_probabilities[at])
        within = min(max(ratio, 1.0 - clip_range), 1.0 + clip_range)
        surrogates.append(min(ratio * advantages[at], within * advantages[at]))
        moves = [values[at]]
        if value_clip_range is not None:
            moved = values[at] - old_values[at]
            moves.append(old_values[at] + min(max(moved, -value_clip_range), value_clip_range))
        value_losses.append(max(0.5 * (move - targets[at]) ** 2 for move in moves))
        entropies.append(-(q * np.log(q)).sum())
        divergences.append((p * np.log(p / q)).sum())
        beyond.append(abs(ratio - 1.0) > clip_range)
    count = max(len(surrogates), 1)
    expected = {
        "policy": -sum(surrogates) / count - 0.2 * sum(entropies) / count,
        "value": 0.5 * sum(value_losses) / count,
    }
    assert terms == pytest.approx(expected, rel=1e-4, abs=1e-5)
    counted = advantages[batch.valid] if surrogates else np.zeros(1)
    assert metrics["mean_advantage"] == pytest.approx(np.mean(counted), rel=1e-4, abs=1e-5)
    assert metrics["std_advantage"] == pytest.approx(np.std(counted), rel=1e-4, abs=1e-5)
    told = {"kl": divergences, "clip_fraction": beyond, "entropy": entropies, "value_loss": value_losses}
    for name, numbers in told.items():
        assert metrics[name] == pytest.approx(sum(numbers) / count, rel=1e-4, abs=1e-5), name


# --- what is made of a batch before its first epoch -------------------------------------------------------------------


@pytest.mark.row("D163", "H13", "G30")
@pytest.mark.parametrize(
    ("terminated", "advantages"), [(None, [2.12648, 1.634, 0.95]), (1, [1.31, 0.5, 0.95])], ids=["whole", "terminated"]
)
def test_advantages_bootstrap_from_the_last_value(terminated, advantages):
    """An ancestor took 0 for the value beyond the unroll, which would make the last advantage .5 instead of .95."""
    ended = np.zeros((3, 1), bool)
    if terminated is not None:
        ended[terminated] = True
    batch = make_batch([[1.0]] * 3, terminated=ended)
    algorithm = make(discount=0.9, gae_lambda=0.8, normalize_advantages="minibatch")
    made = estimates_of(algorithm, logits_of(np.full((4, 1), 0.3)), np.full((4, 1), 0.5), batch)
    np.testing.assert_allclose(made["advantages"][:, 0], advantages, rtol=1e-5)
    np.testing.assert_allclose(made["value_targets"][:, 0], np.add(advantages, 0.5), rtol=1e-5)
    np.testing.assert_allclose(made["old_values"], np.full((3, 1), 0.5))


@pytest.mark.parametrize("name", ["ppo", "appo"])
def test_a_minibatch_with_one_valid_row_learns_from_its_advantage(name):
    """Its advantage cannot be normalised; as 0 it would teach nothing. The ratio is .55 / .5."""
    batch = make_batch([[0.0], [0.0]], valid=np.array([[True], [False]]))
    terms, _ = loss_of(make(name), [[0.55], [0.9]], np.zeros((2, 1)), batch, advantages=[[-2.0], [9.0]])
    assert terms["policy"] == pytest.approx(1.1 * 2.0, rel=1e-5)


def test_old_log_probabilities_are_those_of_the_policy_that_acted_where_something_was_done():
    batch = make_batch([[0.0], [0.0]], valid=np.array([[True], [False]]))
    made = estimates_of(make(), logits_of([[0.25], [0.25], [0.9]]), np.zeros((3, 1)), batch)
    np.testing.assert_allclose(np.exp(made["old_log_probabilities"]), [[0.5], [0.25]], rtol=1e-5)
    np.testing.assert_allclose(made[f"old/{LOGITS}"], logits_of([[0.25], [0.25]]), rtol=1e-5)


def test_advantages_of_a_batch_are_normalised_once():
    """gamma 0 and V = 0: advantages are the rewards 2 and 4, scaled by anything."""
    algorithm = make(discount=0.0, normalize_advantages="batch", reward_scale=7.0)
    batch = make_batch([[2.0], [4.0], [0.0]], valid=np.array([[True], [True], [False]]))
    made = estimates_of(algorithm, logits_of(np.full((4, 1), 0.5)), np.zeros((4, 1)), batch)
    np.testing.assert_allclose(made["advantages"][:, 0], [-1.0, 1.0, 0.0], rtol=1e-5)
    np.testing.assert_allclose(made["value_targets"][:, 0], [14.0, 28.0, 0.0], rtol=1e-5)


@pytest.mark.row("D165")
def test_value_targets_may_be_mixed_with_the_old_values():
    """V = 2, target 1 + .5 x 2 = 2 + 0; reward 3 instead: target 4, and a tenth of the way from 2 to it is 2.2."""
    algorithm = make(discount=0.5, value_target_mix=0.1)
    made = estimates_of(algorithm, logits_of(np.full((2, 1), 0.5)), np.full((2, 1), 2.0), make_batch([[3.0]]))
    np.testing.assert_allclose(made["value_targets"], [[2.2]], rtol=1e-6)


def test_the_loss_of_a_whole_batch_is_that_of_its_estimates():
    rng = np.random.default_rng(3)
    batch = make_batch(rng.normal(size=(4, 3)), valid=rng.random((4, 3)) < 0.8)
    probabilities, values = rng.uniform(0.2, 0.8, (5, 3)), rng.normal(size=(5, 3)).astype("float32")
    algorithm = make(name="appo", entropy_weight=0.1)
    terms, _ = algorithm.loss({LOGITS: logits_of(probabilities), "value": values}, batch)
    made = estimates_of(algorithm, logits_of(probabilities), values, batch)
    expected, metrics = loss_of(algorithm, probabilities[:-1], values[:-1], batch, **made)
    assert {name: float(ops.convert_to_numpy(term)) for name, term in terms.items()} == pytest.approx(expected)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6)


# --- heads ------------------------------------------------------------------------------------------------------------


def test_the_algorithm_says_what_the_heads_losses_are():
    algorithm = make(
        network={"heads_parameters": [{"kind": "ppo", "units": [8]}]},
        clip_range=0.3,
        entropy_weight=0.1,
        kl_penalty={"initial_coefficient": 2.0},
        value_clip_range=0.4,
    )
    policy, value = algorithm.configured_heads()
    assert (policy.units, policy.clip_range) == ((8,), 0.3)
    assert policy.beta_entropy == 0.0  # the algorithm adds the bonus, whose weight may change while it trains
    assert (policy.initial_kl_coefficient, value.clip_range) == (2.0, 0.4)


def test_a_heads_own_setting_of_the_loss_is_refused():
    algorithm = make_algorithm(
        RunConfig.model_validate(
            {
                "algorithm": {"name": "ppo"},
                "network": {"heads_parameters": [{"kind": "ppo", "clip_range": 0.1}]},
            }
        )
    )
    with pytest.raises(ConfigError, match="ppo: clip_range is a part of a loss that algorithm ppo states itself"):
        algorithm.build(SPEC)
