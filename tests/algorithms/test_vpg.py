"""VPG's loss: the rows' numbers, where episodes and unrolls end, and what it does to a policy."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.joint import JointDistribution
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec

LOGITS = "policy/action"
LN2 = math.log(2.0)


def spec_of(longest=3, **observations):
    arrays = observations or {"observation": ArraySpec((1,), "float32")}
    return EnvSpec("Walk", arrays, {"action": DiscreteSpec(2)}, max_episode_steps=longest)


def make(network=None, length=3, longest=3, **algorithm):
    config = {"algorithm": {"name": "vpg", **algorithm}, "network": network or {}}
    algorithm = make_algorithm(RunConfig.model_validate(config | {"actors": {"unroll_length_steps": length}}))
    algorithm.distribution = JointDistribution({"action": CategoricalSpec(2)})  # these two `build` knows
    algorithm.longest_episode_steps = longest
    return algorithm


def make_batch(rewards, **fields):
    rewards = np.array(rewards, "float32")
    rewards = rewards[:, None] if rewards.ndim == 1 else rewards
    given = {
        "observations": {"observation": np.zeros((len(rewards) + 1, rewards.shape[1], 1), "float32")},
        "actions": {"action": np.zeros(rewards.shape, "int32")},
        "rewards": rewards,
        "terminated": np.zeros(rewards.shape, bool),
        "truncated": np.zeros(rewards.shape, bool),
        "valid": np.ones(rewards.shape, bool),
        "behaviour_log_probabilities": np.full(rewards.shape, -7.0, "float32"),  # which the loss does not look at
        "recurrent_state": {},
    }
    return Batch(**(given | fields))


def flags(text):
    return np.array([letter == "x" for letter in text])[:, None]


def weights_of(algorithm, batch, values=None):
    """Return the factor of each row's log pi over the number of rows that count: the loss' negated derivative."""
    length, sequences = batch.rewards.shape
    log_ratios = tf.Variable(np.zeros((length + 1, sequences, 2), "float32"))
    outputs = {LOGITS: log_ratios} | ({} if values is None else {"value": np.array(values, "float32")[:, None]})
    with tf.GradientTape() as tape:
        terms, metrics = algorithm.loss(outputs, batch)
    gradient = tape.gradient(terms["policy"], log_ratios).numpy()
    # d log pi(action 0) / d logit 0 is 1 - .5 for a uniform policy.
    return -2.0 * gradient[:-1, 0, 0], {name: float(value) for name, value in metrics.items()}


WITHOUT = {"baseline": "none", "discount": 0.5, "entropy_weight": 0.0}
# Row 0 is what is left of the episode before; then a whole one, which pays 1, 2, 3; the unroll's end cuts the last one.
PLAYED = make_batch([0, 1, 2, 3, 0, 5, 5], terminated=flags("...x..."), valid=~flags("x...x.."))


@pytest.mark.row("D162")
@pytest.mark.parametrize(
    ("rescaler", "expected"),
    [
        ("total_return", [2.75, 2.75, 2.75]),
        ("future_return", [2.75, 3.5, 3.0]),
        ("future_return_normalized_by_episode", [-1.069045, 1.336306, -0.267261]),
    ],
)
def test_the_rows_returns(rescaler, expected):
    """Rewards 1, 2, 3 and gamma .5; a mean over the three steps that count, of five valid ones."""
    given, metrics = weights_of(make(length=7, rescaler=rescaler, **WITHOUT), PLAYED)
    np.testing.assert_allclose(given[1:4] * 3, expected, rtol=1e-5)
    assert not given[[0, 4, 5, 6]].any()
    assert metrics["learned_share"] == pytest.approx(3 / 5)
    assert metrics["policy_loss"] == pytest.approx(LN2 * np.mean(expected), abs=1e-5)
    assert metrics["entropy"] == pytest.approx(LN2)


@pytest.mark.row("D162")
def test_less_the_mean_of_other_episodes_at_the_same_step_unless_told_otherwise():
    algorithm = make(length=7, **WITHOUT)
    assert algorithm.parameters.rescaling == "future_return_normalized_by_timestep"
    two = make_batch(
        np.array([[0, 1, 2, 3, 0, 5, 5], [0, 4, 2, 0, 5, 5, 5]]).T,
        terminated=np.concatenate([flags("...x..."), flags("..x....")], axis=1),
        valid=~np.concatenate([flags("x...x.."), flags("x..x...")], axis=1),
    )
    given, metrics = weights_of(algorithm, two)
    # G = [2.75, 3.5, 3] and [5, 2]; nobody is there to compare the third step with. The second sequence's last episode
    # begins at row 4, which is early enough, and pays 8.75 at its first step.
    others = [2.75 - (5.0 + 8.75) / 2, 3.5 - (2.0 + 7.5) / 2]
    np.testing.assert_allclose(given[1:3] * metrics["learned_share"] * 10, others, rtol=1e-5)


@pytest.mark.row("D162", "H13")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [2.5745, 1.805, 0.95]),  # 1 + .9 + .81 + .729 x .5 - .5, and so on
        ({"rescaler": "a_value"}, [2.5745, 1.805, 0.95]),
        ({"gae_lambda": 0.8}, [2.12648, 1.634, 0.95]),
        ({"rescaler": "gae", "gae_lambda": 0.8}, [2.12648, 1.634, 0.95]),
        ({"rescaler": "td_residual"}, [0.95, 0.95, 0.95]),
        ({"rescaler": "td_residual", "discount": 1.0}, [1.0, 1.0, 1.0]),
    ],
)
def test_with_a_baseline_the_unrolls_end_bootstraps(settings, expected):
    """r = [1, 1, 1], V = .5, the last one too, gamma .9. The ancestor took 0 for the last value, so .5 was missing."""
    algorithm = make(**{"discount": 0.9, "entropy_weight": 0.0, **settings})
    given, metrics = weights_of(algorithm, make_batch([1.0, 1.0, 1.0]), [0.5] * 4)
    np.testing.assert_allclose(given * 3, expected, rtol=1e-5)
    assert metrics["value_loss"] == pytest.approx(0.5 * np.mean(np.square(expected)), rel=1e-5)


@pytest.mark.row("H13", "T18")
@pytest.mark.parametrize(("ended", "advantage"), [("terminated", 0.0), ("truncated", 1.5), (None, 1.5)])
def test_with_a_baseline_only_a_termination_leaves_nothing(ended, advantage):
    """One step, V = 1, then V = 3, reward 1, gamma .5: 1 - 1, or 1 + 1.5 - 1."""
    flagged = {} if ended is None else {ended: np.ones((1, 1), bool)}
    given, _ = weights_of(make(discount=0.5, entropy_weight=0.0), make_batch([1.0], **flagged), [1.0, 3.0])
    np.testing.assert_allclose(given, [advantage])


def test_without_a_baseline_an_episode_that_the_unroll_cuts_does_not_count_even_if_it_is_seen_to_end():
    """Only the last row, which ends at once, would be whole: counting it would favour ending."""
    survives = make_batch([1, 1, 1, 1])
    ends = survives._replace(terminated=flags("...x"))
    algorithm = make(length=4, rescaler="future_return", **WITHOUT)
    for batch in (survives, ends):
        given, metrics = weights_of(algorithm, batch)
        assert given[:2].all()
        assert not given[2:].any()
        assert metrics["learned_share"] == 0.5


def test_the_gradient_is_that_of_the_expected_return_wherever_unrolls_cut():
    """All ways to play 5 rows of a game that one may leave: their mean gradient, weighed by their probability.

    Each step pays 1; action 1 ends the episode, a third step does too. From a fresh start the expected return is
    1 + p + p^2, with p the probability to go on, and its derivative by the logit of going on is (p + 2 p^2)(1 - p).
    """
    p = 0.7
    algorithm = make(length=5, rescaler="total_return", baseline="none", discount=1.0, entropy_weight=0.0)
    games, probabilities = [], []
    for choices in itertools.product((0, 1), repeat=5):
        rewards, terminated, valid = np.zeros((5, 1)), np.zeros((5, 1), bool), np.ones((5, 1), bool)
        step, probability = 3, 1.0  # row 0 is an ignored one: the episode before has just ended
        for t, choice in enumerate(choices):
            if step == 3:
                valid[t], step = False, 0
                probability *= 0.5  # an ignored choice counts as often with 0 as with 1
                continue
            rewards[t], step = 1.0, 3 if choice else step + 1
            terminated[t] = step == 3
            probability *= 1.0 - p if choice else p
        actions = {"action": np.array(choices, "int32")[:, None]}
        games.append(make_batch(rewards, terminated=terminated, valid=valid, actions=actions))
        probabilities.append(probability)
    batch = Batch(
        *(
            {name: np.concatenate([game[field][name] for game in games], axis=1) for name in games[0][field]}
            if isinstance(games[0][field], dict)
            else np.concatenate([game[field] for game in games], axis=1)
            for field in range(8)
        )
    )
    assert sum(probabilities) == pytest.approx(1.0)
    rescaled, learned = (tensor.numpy() for tensor in algorithm.rescaled_returns(batch))
    going_on = batch.actions["action"] == 0
    score = np.where(going_on, 1.0 - p, -p)  # d log pi / d logit
    gradient = np.sum(np.where(learned, rescaled * score, 0.0), axis=0) @ probabilities
    # Episodes that begin at row 1 or 2 count, and none begins at row 2: the shortest one takes rows 1 and 2.
    assert gradient == pytest.approx((p + 2 * p**2) * (1.0 - p), rel=1e-5)


@pytest.mark.row("G28")
@pytest.mark.parametrize(
    "rescaler", ["total_return", "future_return", "future_return_normalized_by_episode", None], ids=str
)
def test_without_a_baseline_there_is_no_value_head(rescaler):
    algorithm = make(length=7, rescaler=rescaler, **WITHOUT)
    networks = algorithm.build(spec_of())
    outputs = networks["main"].online.predict({"observation": np.zeros((1, 1), np.float32)}, [LOGITS])
    assert [head.kind for head in algorithm.heads] == ["policy"]
    assert len(outputs) == 1
    assert set(algorithm.update(networks, PLAYED).metrics) >= {"learned_share", "loss", "finite"}


@pytest.mark.parametrize(
    ("longest", "length", "words"),
    [
        (
            None,
            10,
            "environment Walk states no limit to their length (max_episode_steps); take algorithm.baseline: value",
        ),
        (6, 5, "of up to 6 steps in environment Walk; actors.unroll_length_steps: 5 is too short, the least is 8, 12"),
    ],
)
def test_without_a_baseline_episodes_must_fit_into_unrolls(longest, length, words):
    with pytest.raises(ConfigError) as caught:
        make(length=length, **WITHOUT).build(spec_of(longest))
    assert words in str(caught.value)
    make(length=length).build(spec_of(longest))  # with one, they need not


WHOLE = ("total_return", "future_return_normalized_by_episode", "future_return_normalized_by_timestep")


@pytest.mark.parametrize("longest", [1, 4])
@pytest.mark.parametrize("rescaler", ["future_return", *WHOLE])
def test_the_shortest_unrolls_of_which_anything_is_learned(rescaler, longest):
    """Episodes of M steps, a row ignored after each, cut into unrolls one after the other: in some, rows count."""
    for further in (-1, 0, 1, 2):
        length = longest + further
        if length == 0:
            continue
        rows = np.arange(length * 2 * (longest + 1)) % (longest + 1)
        valid = (rows < longest).reshape(-1, length).T  # [T, N]: the unrolls side by side
        batch = make_batch(valid.astype("float32"), valid=valid, terminated=(rows == longest - 1).reshape(-1, length).T)
        algorithm = make(length=length, longest=longest, rescaler=rescaler, **WITHOUT)
        learned = bool(np.any(algorithm.rescaled_returns(batch)[1]))
        assert learned == (further >= (0 if rescaler == "future_return" else 2))
        if learned:
            algorithm._check_that_episodes_end(spec_of(longest))
            continue
        least = longest if rescaler == "future_return" else longest + 2
        with pytest.raises(
            ConfigError, match=f"rescaler: {rescaler} .*: {length} is too short, the least is {least}, "
        ):
            algorithm._check_that_episodes_end(spec_of(longest))


JOINT = {"middleware_parameters": {"scheme": [16], "activation": "tanh"}}
OF_EACH = {"scheme": [8, 1], "activation": "tanh"}
AGGREGATED = {
    "input_embedders_parameters": {"left": OF_EACH, "right": OF_EACH},
    "middleware_parameters": {"scheme": "Empty"},
}
TWO = {"left": ArraySpec((2,), "float32"), "right": ArraySpec((1,), "float32")}


@pytest.mark.row("H17")
def test_an_aggregated_baseline_is_a_linear_mix_of_baselines_of_single_observations():
    """Both embedders end in one number; left ones a, b and right ones c, d: V(a, c) - V(b, c) = V(a, d) - V(b, d)."""
    algorithm = make({"use_separate_networks_per_head": True, **AGGREGATED})
    online = algorithm.build(spec_of(**TWO))["main"].online
    left, right = np.float32([[0.3, -1.0], [2.0, 0.5]]), np.float32([[0.7], [-1.5]])
    values = online.predict({"left": left[[0, 1, 0, 1]], "right": right[[0, 0, 1, 1]]}, ["value"])
    assert values[0] - values[1] == pytest.approx(values[2] - values[3], abs=1e-6)
    assert len(np.unique(values)) == 4
    joint = make({"use_separate_networks_per_head": True, **JOINT}).build(spec_of(**TWO))["main"].online
    values = joint.predict({"left": left[[0, 1, 0, 1]], "right": right[[0, 0, 1, 1]]}, ["value"])
    assert abs((values[0] - values[1]) - (values[2] - values[3])) > 1e-3


@pytest.mark.row("H17")
@pytest.mark.parametrize("structure", [JOINT, AGGREGATED], ids=["joint", "aggregated"])
def test_a_baseline_in_a_network_of_its_own_learns_constant_returns(structure):
    """Every episode is one step that pays 2; two kinds of observation go into one baseline."""
    network = {"use_separate_networks_per_head": True, "learning_rate": 0.02, **structure}
    algorithm = make(network, length=4, discount=0.9)
    arrays = TWO
    networks = algorithm.build(spec_of(**arrays))
    rng = np.random.default_rng(0)

    def batch():
        return make_batch(
            np.full((4, 16), 2.0),
            terminated=np.ones((4, 16), bool),
            actions={"action": rng.integers(0, 2, (4, 16)).astype("int32")},
            observations={
                name: rng.standard_normal((5, 16, *array.shape)).astype("float32") for name, array in arrays.items()
            },
        )

    policy = {name for name in networks["main"].online.variables if "policy" in name}
    value = {name for name in networks["main"].online.variables if "value" in name}
    assert min(len(policy), len(value)) >= 4
    assert policy | value == set(networks["main"].online.variables)  # nothing is shared
    first = algorithm.update(networks, batch()).metrics
    for _ in range(150):
        metrics = algorithm.update(networks, batch()).metrics
    assert first["value_loss"] > 1.0
    assert metrics["value_loss"] < 0.002
    assert metrics["mean_value"] == pytest.approx(2.0, abs=0.05)
    assert abs(metrics["policy_loss"]) < 0.02  # nothing is better than was expected


@pytest.mark.parametrize("settings", [{}, {"baseline": "none", "rescaler": "future_return"}], ids=["value", "none"])
def test_the_rewarded_action_becomes_likely(settings):
    network = {"optimizer_type": "SGD", "learning_rate": 0.5, "middleware_parameters": {"scheme": "Empty"}}
    algorithm = make(network, length=4, discount=0.0, **settings)
    networks = algorithm.build(spec_of(longest=1))
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(0, 2, (4, 8)).astype("int32")
        batch = make_batch(actions, actions={"action": actions}, terminated=np.ones((4, 8), bool))
        assert algorithm.update(networks, batch).metrics["finite"] is True
    logits = networks["main"].online.predict({"observation": np.zeros((1, 1), np.float32)}, [LOGITS])[0]
    assert logits[1] - logits[0] > 2.0
