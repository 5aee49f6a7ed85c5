"""ACER against a slow twin in NumPy, what each of its losses moves, and what it refuses. Runs on TensorFlow and JAX."""

import numpy as np
import pytest

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.networks.framework.backend import Gradients
from distrl.networks.objective import outputs_of
from distrl.networks.weights import to_numpy
from distrl.types import CHOICE_PROBABILITIES, ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec
from tests.algorithms.arm import assert_same, restore, states
from tests.traces import traces

T, N, A, GAMMA, SCALE, C, BETA = 5, 4, 3, 0.9, 0.5, 0.7, 0.1
OBSERVATIONS = {"observation": ArraySpec((3,), "float32"), "allowed": ArraySpec((A,), "int8")}
SPEC = EnvSpec("Toy-v0", OBSERVATIONS, {"action": DiscreteSpec(A)})
LSTM = {"middleware_parameters": {"kind": "lstm", "scheme": [], "number_of_lstm_cells": 5}}
SEPARATE = {"use_separate_networks_per_head": True}


def config(network=None, sections=None, **algorithm):
    given = {"name": "acer", "discount": GAMMA, "reward_scale": SCALE, "importance_weight_truncation": C}
    layers = {
        "input_embedders_parameters": {"allowed": None},
        "middleware_parameters": {"scheme": [8], "activation": "tanh"},
        "learning_rate": 0.01,
    }
    tree = {"seed": 3, "algorithm": given | {"entropy_weight": BETA} | algorithm, "network": layers | (network or {})}
    return RunConfig.model_validate(tree | {"actors": {"unroll_length_steps": T}} | (sections or {}))


def make(network=None, spec=SPEC, **algorithm):
    """An algorithm and its network, whose average policy is another one."""
    made = make_algorithm(config(network, **algorithm))
    networks = made.build(spec)
    rng = np.random.default_rng(9)
    for variable in networks["main"].target.model.trainable_variables:
        variable.assign(to_numpy(variable) + rng.normal(0.0, 0.3, variable.shape).astype("float32"))
    return made, networks


def sequences(networks=None, seed=0, **fields):
    """Episodes that terminate and that are cut off, rows that the environment ignored, and policies of any kind."""
    rng = np.random.default_rng(seed)
    terminated, valid = np.zeros((T, N), bool), np.ones((T, N), bool)
    terminated[1, 0] = True
    valid[[2, 3], [0, 1]] = False  # after a termination, and after a step that was cut off
    probabilities = rng.dirichlet(np.ones(A), (T, N)).astype("float32")
    actions = rng.integers(0, A, (T, N)).astype("int32")
    recurrent = {} if networks is None else networks["main"].online.recurrent_state
    given = {
        "observations": {
            "observation": rng.standard_normal((T + 1, N, 3)).astype("float32"),
            "allowed": np.ones((T + 1, N, A), "int8"),
        },
        "actions": {"action": actions},
        "rewards": np.where(valid, rng.standard_normal((T, N)), 0.0).astype("float32"),
        "terminated": terminated,
        "truncated": np.zeros((T, N), bool),
        "valid": valid,
        "behaviour_log_probabilities": np.log(np.take_along_axis(probabilities, actions[..., None], -1)[..., 0]),
        "recurrent_state": {name: rng.normal(size=(N, *of.shape)).astype("float32") for name, of in recurrent.items()},
        "extras": {CHOICE_PROBABILITIES: probabilities},
    }
    return Batch(**(given | fields))


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def twin(networks, batch):
    """Every term of the loss, step by step as algorithms 1 and 2 of the paper go through a trajectory, and its mean."""
    main = networks["main"]
    found, _ = outputs_of(main.online, batch, main.target, training=False)
    logits, q, average = (
        to_numpy(found[name]).astype(float) for name in ("policy/action", "q/q", "target/policy/action")
    )
    pi, average, mu = softmax(logits), softmax(average), batch.extras[CHOICE_PROBABILITIES].astype(float)
    rows = {name: [] for name in ("policy", "critic", "bias", "entropy", "kl", "value", "q", "target", "rho")}
    for n in range(N):
        q_ret = (pi[T, n] * q[T, n]).sum()
        for t in reversed(range(T)):
            value, action = (pi[t, n] * q[t, n]).sum(), batch.actions["action"][t, n]
            if not batch.valid[t, n]:
                q_ret = value  # V of the final observation, for the step before that was cut off
                continue
            q_ret = SCALE * batch.rewards[t, n] + GAMMA * (not batch.terminated[t, n]) * q_ret
            rho = pi[t, n] / mu[t, n]
            gain = min(C, rho[action]) * np.log(pi[t, n, action]) * (q_ret - value)
            bias = sum(
                max(0.0, 1.0 - C / rho[b]) * pi[t, n, b] * np.log(pi[t, n, b]) * (q[t, n, b] - value) for b in range(A)
            )
            entropy = -(pi[t, n] * np.log(pi[t, n])).sum()
            rows["policy"].append(-gain - bias - BETA * entropy)
            rows["critic"].append(0.5 * (q_ret - q[t, n, action]) ** 2)
            rows["bias"].append(-bias)
            rows["entropy"].append(entropy)
            rows["kl"].append((average[t, n] * np.log(average[t, n] / pi[t, n])).sum())
            rows["value"].append(value)
            rows["q"].append(q[t, n, action])
            rows["target"].append(q_ret)
            rows["rho"].append(min(1.0, rho[action]))
            q_ret = min(1.0, rho[action]) * (q_ret - q[t, n, action]) + value
    return {name: np.mean(numbers) for name, numbers in rows.items()}


@pytest.mark.row("D164", "P07.3")
@pytest.mark.parametrize("network", [{}, LSTM], ids=["feed-forward", "lstm"])
def test_the_loss_is_that_of_a_slow_twin(network):
    algorithm, networks = make(network)
    batch = sequences(networks)
    expected = twin(networks, batch)
    assert abs(expected["bias"]) > 1e-3
    told = algorithm.update(networks, batch).metrics
    assert told == pytest.approx(
        {
            "policy_loss": expected["policy"],
            "critic_loss": expected["critic"],
            "bias_correction_loss": expected["bias"],
            "entropy": expected["entropy"],
            "kl": expected["kl"],
            "mean_value": expected["value"],
            "mean_q": expected["q"],
            "mean_target": expected["target"],
            "mean_rho": expected["rho"],
            "loss": expected["policy"] + 0.5 * expected["critic"],
            "gradient_norm": told["gradient_norm"],
            "learning_rate": 0.01,
            "finite": True,
        },
        rel=1e-4,
    )


def gradients(algorithm, networks, batch, head):
    """The gradient of one head's loss by every weight of the network, by name."""
    main = networks["main"]
    names = [name for name, variable in main.online.variables.items() if variable.trainable]
    trainable = [main.online.variables[name] for name in names]

    def of_head(given):
        terms, _ = algorithm.loss(*outputs_of(main.online, given, main.target, training=True))
        return terms[head], {}

    *_, found = Gradients(of_head, trainable, main.step_states)(batch)
    return dict(zip(names, map(np.asarray, found), strict=True))


def test_each_loss_moves_its_own_network_alone():
    """Values are constants to the policy's loss and the policy is one to the values', V and Retrace included."""
    algorithm, networks = make(SEPARATE)
    for head, other in (("policy", "q"), ("q", "policy")):
        found = gradients(algorithm, networks, sequences(), head)
        assert found
        for name, gradient in found.items():
            assert gradient.any() == name.startswith(f"main/{head}_"), (name, other)


def test_rows_that_the_environment_ignored_move_nothing():
    algorithm, networks = make()
    batch = sequences()
    other = sequences(rewards=batch.rewards, actions={"action": np.where(batch.valid, batch.actions["action"], 0)})
    far = np.where(batch.valid, batch.behaviour_log_probabilities, -80.0).astype("float32")
    other = other._replace(behaviour_log_probabilities=far)
    for head in ("policy", "q"):
        one, another = (gradients(algorithm, networks, given, head) for given in (batch, other))
        for name, gradient in one.items():
            np.testing.assert_allclose(gradient, another[name], rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.row("D07.16")
def test_the_region_is_around_the_average_policy():
    """A small region changes the gradient of a policy that has left the average one, and of no other."""
    batch = sequences()
    for moved in (True, False):
        found = []
        for delta in (None, 1e-4):
            algorithm, networks = make(SEPARATE, trust_region_delta=delta, entropy_weight=0.0)
            main = networks["main"]
            if not moved:
                main.sync()
            found.append(gradients(algorithm, networks, batch, "policy"))
        free, bound = ({name: of for name, of in one.items() if name.startswith("main/policy_")} for one in found)
        same = all(np.allclose(free[name], bound[name], rtol=1e-4, atol=1e-6) for name in free)
        assert same != moved


def test_without_a_region_there_is_no_divergence():
    algorithm, networks = make(trust_region_delta=None)
    assert "kl" not in algorithm.update(networks, sequences()).metrics


@pytest.mark.row("D164")
def test_the_average_policy_follows_after_every_update_at_its_rate():
    algorithm, networks = make(average_policy_rate=0.25)
    main = networks["main"]
    for seed in range(3):
        before = main.target.get_weights()
        algorithm.update(networks, sequences(seed=seed))
        expected = [0.25 * new + 0.75 * old for new, old in zip(main.online.get_weights(), before, strict=True)]
        for weight, wanted in zip(main.target.get_weights(), expected, strict=True):
            np.testing.assert_allclose(weight, wanted, rtol=1e-5, atol=1e-7)
    assert traces(algorithm._step) == 1
    after = main.target.get_weights()
    bad = sequences(rewards=np.full((T, N), np.nan, "float32"))
    assert algorithm.update(networks, bad).metrics["finite"] is False
    for weight, wanted in zip(main.target.get_weights(), after, strict=True):
        np.testing.assert_array_equal(weight, wanted)


def test_a_restored_training_goes_on_bit_by_bit():
    algorithm, networks = make(LSTM)
    algorithm.update(networks, sequences(networks))
    saved = states(networks)
    expected = [algorithm.update(networks, sequences(networks, seed)).metrics for seed in (1, 2)]
    after = states(networks)
    restore(networks, saved)
    assert [algorithm.update(networks, sequences(networks, seed)).metrics for seed in (1, 2)] == expected
    assert_same(states(networks), after)


def test_a_burn_in_is_not_learned_from():
    """Two rows bring the stored state up to date: the loss is that of the rows after them, from the state there."""
    short = {"replay": {"item": {"kind": "sequence", "burn_in_steps": 2}}}
    algorithm, networks = make(LSTM, **short)
    batch = sequences(networks)
    main = networks["main"]
    trained = outputs_of(main.online, batch, main.target, training=False, burn_in_steps=2)
    terms, _ = algorithm.loss(*trained)
    told = algorithm.update(networks, batch).metrics
    assert told["loss"] == pytest.approx(sum(float(to_numpy(term)) for term in terms.values()), rel=1e-5)
    assert trained[1].extras[CHOICE_PROBABILITIES].shape == (T - 2, N, A)


def test_choices_that_a_mask_forbids_have_no_probability_and_no_gradient():
    head = {"kind": "acer_policy", "action_mask": "allowed"}
    algorithm, networks = make({"heads_parameters": [head]})
    batch = sequences()
    batch.observations["allowed"][..., 2] = 0
    allowed = {"actions": {"action": batch.actions["action"] % 2}}
    mu = batch.extras[CHOICE_PROBABILITIES] * np.float32([1, 1, 0])
    batch = batch._replace(**allowed, extras={CHOICE_PROBABILITIES: mu / mu.sum(axis=-1, keepdims=True)})
    found = gradients(algorithm, networks, batch, "policy")
    kernel = found["main/policy_head/kernel"]
    assert all(np.isfinite(gradient).all() for gradient in found.values())
    assert kernel[:, :2].any()
    np.testing.assert_array_equal(kernel[:, 2], 0.0)
    told = algorithm.update(networks, batch).metrics
    assert told["finite"]
    assert told["entropy"] <= np.log(2.0) + 1e-6


def test_actors_act_by_the_policy_and_defaults_are_the_papers():
    main = make()[1]["main"]
    assert main.online.actions["action"].kind == "categorical"
    parameters = RunConfig.model_validate({"algorithm": {"name": "acer"}}).algorithm
    assert (parameters.importance_weight_truncation, parameters.trust_region_delta) == (10.0, 1.0)
    assert (parameters.average_policy_rate, parameters.trace_lambda, parameters.entropy_weight) == (0.01, 1.0, 0.001)
    assert (parameters.replay.samples_per_insert, parameters.replay.item.kind) == (5.0, "sequence")
    assert (parameters.unroll_extras, parameters.learns_from) == ((CHOICE_PROBABILITIES,), "own policy")


@pytest.mark.parametrize(
    ("actions", "kinds"),
    [
        ({"action": BoxSpec((1,), (-1.0,), (1.0,))}, "box"),
        ({"left": DiscreteSpec(2), "right": DiscreteSpec(2)}, "discrete, discrete"),
    ],
)
def test_other_actions_than_one_choice_are_refused(actions, kinds):
    with pytest.raises(ConfigError) as refused:
        config().algorithm.check_actions(EnvSpec("Arm-v0", OBSERVATIONS, actions))
    assert str(refused.value) == (
        f"algorithm acer: Arm-v0 has the actions {kinds}, and it learns from the probabilities of all choices of one "
        "discrete action; use algorithm impala"
    )


@pytest.mark.parametrize(
    ("algorithm", "network", "sections", "line"),
    [
        ({"replay": {"item": {"kind": "transition"}}}, {}, {}, "Input should be 'sequence'"),
        (
            {"replay": {"item": {"kind": "sequence", "n_step": 3}}},
            {},
            {},
            "replay.item.n_step: 3; acer's returns use all steps of a sequence; leave it out, or set trace_lambda",
        ),
        (
            {"replay": {"sampler": {"kind": "prioritized"}}},
            {},
            {},
            "replay.sampler.kind: prioritized; acer samples all sequences alike; leave it out",
        ),
        (
            {},
            {},
            {"exploration": {"kind": "epsilon_greedy"}},
            "exploration.kind: epsilon_greedy is of algorithms that correct for it; acer learns from the actions of "
            "its own policy alone: leave it out",
        ),
        (
            {},
            {"heads_parameters": [{"kind": "q", "action_mask": "allowed"}]},
            {},
            "network.heads_parameters: q: action_mask: the policy of acer chooses; name the mask in the head "
            "acer_policy",
        ),
        ({"max_staleness_updates": 3}, {}, {}, "the replay memory of acer keeps unrolls of any age; leave it out"),
        ({"average_policy_rate": 0.0}, {}, {}, "greater than 0"),
    ],
)
def test_what_it_cannot_learn_from_is_refused(algorithm, network, sections, line):
    with pytest.raises(ValueError, match="validation error") as refused:
        config(network, sections, **algorithm)
    assert line in str(refused.value)


def test_settings_of_the_loss_belong_to_the_algorithm():
    head = {"kind": "acer_policy", "importance_weight_truncation": 5.0}
    with pytest.raises(ConfigError, match="importance_weight_truncation is a part of a loss that algorithm acer"):
        make({"heads_parameters": [head]})
