"""Updates of TRPO: against a slow twin, the trust region, and what stays as it was. Runs on TensorFlow and JAX."""

import math

import numpy as np
import pytest
from keras import ops

from distrl.algorithms import context_of, make_algorithm
from distrl.algorithms.epochs import by_sequences, shuffled
from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.networks.framework.backend import Outputs, hessian_product
from distrl.networks.framework.differentiation import PureLoss
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec
from tests.algorithms.states import assert_same, states
from tests.traces import traces

T, N, INPUTS = 4, 6, 3
OBSERVATION = {"observation": ArraySpec((INPUTS,), "float32")}
SPEC = EnvSpec("x", OBSERVATION, {"action": DiscreteSpec(3)})
BOX = BoxSpec((2,), (-2.0, 0.0), (2.0, 1.0))
LSTM = {"kind": "lstm", "scheme": [], "number_of_lstm_cells": 4}
LINEAR = {"middleware_parameters": {"scheme": "Empty"}, "optimizer_type": "SGD", "learning_rate": 0.1}


def configuration(network=None, **algorithm):
    """Batches of 2 unrolls x 3 environments x 4 steps."""
    return RunConfig.model_validate(
        {
            "algorithm": {"name": "trpo", "value_epochs": 3, "value_minibatches": 2, **algorithm},
            "network": {
                "middleware_parameters": {"scheme": [8], "activation": "tanh"},
                "learning_rate": 0.01,
                "use_separate_networks_per_head": True,
                **(network or {}),
            },
            "actors": {"environments": 3, "unroll_length_steps": T},
            "learner": {"batch_size": 2},
        }
    )


def make(spec=SPEC, network=None, **algorithm):
    made = make_algorithm(configuration(network, **algorithm))
    return made, made.build(spec)


def draw(rng, action):
    if isinstance(action, DiscreteSpec):
        return rng.integers(0, action.n, (T, N)).astype("int32")
    if isinstance(action, MultiDiscreteSpec):
        return np.stack([rng.integers(0, n, (T, N)) for n in action.choices], axis=-1).astype("int32")
    if isinstance(action, MultiBinarySpec):
        return rng.integers(0, 2, (T, N, action.n)).astype("int32")
    return (np.float32([-2, 0]) + rng.uniform(0.1, 0.9, (T, N, 2)) * np.float32([4, 1])).astype("float32")


def make_batch(networks, spec=SPEC, seed=0, **fields):
    """Random observations, actions and rewards, nearly all valid. The recorded policy is no network's."""
    rng = np.random.default_rng(seed)
    states = networks["main"].online.recurrent_state
    given = {
        "observations": {"observation": rng.standard_normal((T + 1, N, INPUTS)).astype("float32")},
        "actions": {name: draw(rng, action) for name, action in spec.actions.items()},
        "rewards": rng.standard_normal((T, N)).astype("float32"),
        "terminated": rng.random((T, N)) < 0.1,
        "truncated": np.zeros((T, N), bool),
        "valid": rng.random((T, N)) < 0.9,
        "behaviour_log_probabilities": np.full((T, N), math.log(0.4), "float32"),
        "recurrent_state": {name: np.zeros((N, *state.shape), "float32") for name, state in states.items()},
    }
    return Batch(**(given | fields))


def acted(algorithm, networks, batch):
    """The batch as if the networks' policy had acted."""
    online = networks["main"].online

    def function(batch):
        outputs = online.unroll(batch.observations, batch.recurrent_state, batch.valid)
        acting = {name: rows[:-1] for name, rows in outputs.items() if name != "value"}
        return ops.zeros(()), {"acted": algorithm.distribution.log_probability(acting, batch.actions)}

    found = Outputs(function, [*online.model.variables, *online.state_variables])(batch)
    return batch._replace(behaviour_log_probabilities=found["acted"])


def weights_of(networks, head):
    online = networks["main"].online
    return [np.array(ops.convert_to_numpy(variable)) for variable in online.trainable_variables_of(head)]


# --- the twin ---------------------------------------------------------------------------------------------------------


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class Twin:
    """One update of a linear softmax policy and a linear value function in float64, step by step, from the paper."""

    def __init__(self, batch, policy, value, parameters):
        self.batch, self.parameters = batch, parameters
        self.rows = batch.observations["observation"].astype("float64")
        self.actions, self.valid = batch.actions["action"], batch.valid
        self.theta = np.concatenate([weight.ravel() for weight in policy]).astype("float64")
        self.kernel, self.bias = (weight.astype("float64") for weight in value)
        self.old = self.probabilities(self.theta)

    def probabilities(self, theta):
        kernel, bias = theta[:9].reshape(3, 3), theta[9:]
        return softmax(self.rows[:-1] @ kernel + bias)

    def features(self, t, n):
        """The derivatives of the logits by theta, [3, 12]."""
        x = self.rows[t, n]
        return np.stack([np.concatenate([np.outer(x, np.eye(3)[i]).ravel(), np.eye(3)[i]]) for i in range(3)])

    def steps(self):
        return [(t, n) for t in range(T) for n in range(N) if self.valid[t, n]]

    def estimates(self):
        values = self.rows @ self.kernel[:, 0] + self.bias[0]
        targets, advantages = np.zeros((T, N)), np.zeros((T, N))
        gamma, trace = self.parameters["discount"], self.parameters["gae_lambda"]
        for n in range(N):
            later = 0.0
            for t in reversed(range(T)):
                discount = 0.0 if self.batch.terminated[t, n] else gamma
                delta = self.batch.rewards[t, n] + discount * values[t + 1, n] - values[t, n]
                later = delta + discount * trace * later if self.valid[t, n] else 0.0
                advantages[t, n], targets[t, n] = later, values[t, n] + later
        chosen = advantages[self.valid]
        return targets, (advantages - chosen.mean()) / (chosen.std() + 1e-8)

    def objective(self, theta, advantages):
        """Mean of ratio x advantage plus the entropy bonus, and the mean divergence from the old policy."""
        gain, kl = 0.0, 0.0
        new = self.probabilities(theta)
        for t, n in self.steps():
            ratio = new[t, n][self.actions[t, n]] / np.exp(self.batch.behaviour_log_probabilities[t, n])
            entropy = -(new[t, n] * np.log(new[t, n])).sum()
            gain += ratio * advantages[t, n] + self.parameters["entropy_weight"] * entropy
            kl += (self.old[t, n] * np.log(self.old[t, n] / new[t, n])).sum()
        return gain / len(self.steps()), kl / len(self.steps())

    def gradient(self, advantages):
        """By differences of the objective."""
        found = np.zeros_like(self.theta)
        for i in range(len(found)):
            step = np.zeros_like(found)
            step[i] = 1e-5
            up, down = (self.objective(self.theta + sign * step, advantages)[0] for sign in (1.0, -1.0))
            found[i] = (up - down) / 2e-5
        return found

    def fisher(self):
        """E[J^T (diag p - p p^T) J], the explicit matrix."""
        found = np.zeros((12, 12))
        for t, n in self.steps():
            p, jacobian = self.old[t, n], self.features(t, n)
            found += jacobian.T @ (np.diag(p) - np.outer(p, p)) @ jacobian
        return found / len(self.steps())

    def policy_step(self, advantages):
        parameters = self.parameters
        gradient = self.gradient(advantages)
        damped = self.fisher() + parameters["damping"] * np.eye(12)
        x = np.linalg.solve(damped, gradient)  # as many iterations as there are weights
        step = np.sqrt(2.0 * parameters["max_kl"] / (x @ damped @ x)) * x
        base, fraction = self.objective(self.theta, advantages)[0], 1.0
        for _ in range(10):
            value, kl = self.objective(self.theta + fraction * step, advantages)
            enough = value - base >= parameters["accept_ratio"] * fraction * gradient @ step
            if value > base and enough and kl <= parameters["max_kl"]:
                return self.theta + fraction * step, fraction, value - base, kl
            fraction *= parameters["line_search_factor"]
        return self.theta, 0.0, 0.0, 0.0

    def fit(self, targets, order, rate):
        rows, goals, valid = self.rows[:-1].reshape(-1, 3), targets.ravel(), self.valid.ravel()
        kernel, bias = self.kernel.copy(), self.bias.copy()
        for items in order:
            errors = np.where(valid[items], rows[items] @ kernel[:, 0] + bias[0] - goals[items], 0.0)
            errors /= max(valid[items].sum(), 1)
            kernel[:, 0] -= rate * rows[items].T @ errors
            bias[0] -= rate * errors.sum()
        return kernel, bias


@pytest.mark.row("G29", "I12")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({}, marks=pytest.mark.long),
        {"max_kl": 0.5, "accept_ratio": 0.0},
        {"max_kl": 0.3, "entropy_weight": 0.5},
    ],
    ids=str,
)
def test_one_update_is_its_twin(seed, changed):
    parameters = {"damping": 0.1, "max_kl": 0.02, "accept_ratio": 0.1, "line_search_factor": 0.7, "entropy_weight": 0.0}
    parameters |= {"discount": 0.9, "gae_lambda": 0.8} | changed
    algorithm, networks = make(network=LINEAR, conjugate_gradient_iterations=12, **parameters)
    batch = make_batch(networks, seed=seed)
    twin = Twin(batch, weights_of(networks, "policy"), weights_of(networks, "value"), parameters)
    targets, advantages = twin.estimates()
    theta, fraction, gain, kl = twin.policy_step(advantages)
    metrics = algorithm.update(networks, batch).metrics
    assert metrics["step_fraction"] == pytest.approx(fraction, rel=1e-5)
    assert (metrics["surrogate_gain"], metrics["kl"]) == pytest.approx((gain, kl), rel=1e-2)
    moved = np.concatenate([weight.ravel() for weight in weights_of(networks, "policy")])
    np.testing.assert_allclose(moved, theta, rtol=1e-3, atol=1e-4)
    order = shuffled(T * N, epochs=3, minibatches=2, seed=1, step=0)
    for found, expected in zip(weights_of(networks, "value"), twin.fit(targets, order, 0.1), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert (metrics["optimizer_steps"], metrics["finite"], traces(algorithm._step)) == (6, True, 1)


# --- the Fisher matrix ------------------------------------------------------------------------------------------------

EVERY = {
    "choice": ({"action": DiscreteSpec(3)}, {}),
    "choices": ({"action": MultiDiscreteSpec((2, 3), (0, 0))}, {}),
    "switches": ({"action": MultiBinarySpec((3,))}, {}),
    "gaussian": ({"action": BOX}, {"log_sigma": "state_independent"}),
    "gaussian by state": ({"action": BOX}, {"log_sigma": "state_dependent"}),
    "beta": ({"action": BOX}, {"distribution": "beta"}),
    "several": ({"gas": BOX, "steer": DiscreteSpec(2)}, {}),
}


def fisher_matrix(algorithm, networks, batch):
    """Products of the Hessian of the mean KL with every unit vector, as `TrustRegionUpdate` takes them, and more."""
    update = algorithm._step
    online, policy = networks["main"].online, update._policy
    sizes = [int(np.prod(variable.shape)) for variable in policy]

    def function(data):
        batch, units = data["batch"], data["units"]
        outputs = online.unroll(batch.observations, batch.recurrent_state, batch.valid)
        experience = by_sequences(batch, algorithm.estimates(outputs, batch))
        objective = PureLoss(update._policy_objective, policy, [], update._held)
        start, held = ([ops.convert_to_tensor(each.value) for each in group] for group in (policy, update._held))

        def kl(values):
            return objective(values, [], experience, held)[1][0]["kl"]

        product = hessian_product(kl, start)

        def column(unit):
            parts = ops.split(unit, np.cumsum(sizes)[:-1].tolist())
            vectors = [ops.reshape(part, variable.shape) for part, variable in zip(parts, policy, strict=True)]
            return ops.concatenate([ops.reshape(each, (-1,)) for each in product(vectors)])

        return ops.zeros(()), {"matrix": ops.map(column, units)}

    data = {"batch": batch, "units": np.eye(sum(sizes), dtype="float32")}
    return Outputs(function, [*online.model.variables, *online.state_variables])(data)["matrix"]


def mean_kl(algorithm, networks, batch, weights):
    """The divergence of the policy with these weights from the present one, in float32."""
    update, online = algorithm._step, networks["main"].online

    def function(data):
        outputs = online.unroll(data["batch"].observations, {}, data["batch"].valid)
        experience = by_sequences(data["batch"], algorithm.estimates(outputs, data["batch"]))
        held = [ops.convert_to_tensor(each.value) for each in update._held]
        objective = PureLoss(update._policy_objective, update._policy, [], update._held)
        return ops.zeros(()), {"kl": objective(data["weights"], [], experience, held)[1][0]["kl"]}

    compiled = Outputs(function, [*online.model.variables, *online.state_variables])
    return lambda weights: float(compiled({"batch": batch, "weights": weights})["kl"])


@pytest.mark.row("I12")
def test_products_are_those_of_the_explicit_fisher_matrix():
    """The linear policy's matrix, from its Jacobian; it is also the mean of outer products of scores."""
    algorithm, networks = make(network=LINEAR)
    batch = make_batch(networks)
    parameters = {"discount": 0.9, "gae_lambda": 0.8}
    twin = Twin(batch, weights_of(networks, "policy"), weights_of(networks, "value"), parameters)
    found = fisher_matrix(algorithm, networks, batch)
    np.testing.assert_allclose(found, twin.fisher(), atol=1e-6)
    scores = np.zeros((12, 12))
    for t, n in twin.steps():
        for action, p in enumerate(twin.old[t, n]):
            score = (np.eye(3)[action] - twin.old[t, n]) @ twin.features(t, n)
            scores += p * np.outer(score, score) / len(twin.steps())
    np.testing.assert_allclose(found, scores, atol=1e-6)


@pytest.mark.row("I12")
@pytest.mark.parametrize(
    "kind",
    ["switches", "beta", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("choice", "gaussian by state"))],
)
def test_products_are_second_differences_of_the_divergence(kind):
    """A network with a hidden layer: KL(old || old + d) = 1/2 d F d, and F is symmetric and positive."""
    actions, head = EVERY[kind]
    spec = EnvSpec("x", OBSERVATION, actions)
    network = {"middleware_parameters": {"scheme": [2], "activation": "tanh"}}
    algorithm, networks = make(spec, network | {"heads_parameters": [{"kind": "policy", **head}]})
    batch = make_batch(networks, spec)
    matrix = fisher_matrix(algorithm, networks, batch)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-5)
    assert np.linalg.eigvalsh(matrix).min() > -1e-5
    start = weights_of(networks, "policy")
    divergence = mean_kl(algorithm, networks, batch, start)
    rng = np.random.default_rng(3)
    for _ in range(3):
        along = [0.03 * rng.standard_normal(weight.shape).astype("float32") for weight in start]
        both = [divergence([w + sign * d for w, d in zip(start, along, strict=True)]) for sign in (1.0, -1.0)]
        flat = np.concatenate([part.ravel() for part in along])
        assert sum(both) / 2.0 == pytest.approx(0.5 * flat @ matrix @ flat, rel=0.05)


# --- the trust region -------------------------------------------------------------------------------------------------


@pytest.mark.row("G29", "I12")
def test_the_divergence_is_nearly_the_bound_on_a_small_net():
    """At max_kl .001, damping .001 and 20 iterations."""
    algorithm, networks = make(max_kl=0.001, damping=0.001, conjugate_gradient_iterations=20)
    for seed in range(4):
        batch = acted(algorithm, networks, make_batch(networks, seed=seed))
        metrics = algorithm.update(networks, batch).metrics
        assert 0.0005 < metrics["kl"] <= 0.001
        assert metrics["step_fraction"] > 0.5
        assert metrics["surrogate_gain"] > 0.0


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind in ("choice", "several") else pytest.mark.long) for kind in EVERY],
)
def test_every_kind_of_action_moves_within_the_region_and_gains(kind):
    actions, head = EVERY[kind]
    spec = EnvSpec("x", OBSERVATION, actions)
    algorithm, networks = make(spec, {"heads_parameters": [{"kind": "policy", **head}]})
    before = weights_of(networks, "policy")
    batch = acted(algorithm, networks, make_batch(networks, spec))
    metrics = algorithm.update(networks, batch).metrics
    assert metrics["finite"]
    assert metrics["step_fraction"] > 0.1
    assert 0.1 * metrics["step_fraction"] * metrics["expected_gain"] <= metrics["surrogate_gain"]
    assert 0.001 < metrics["kl"] <= 0.01
    assert all((old != new).any() for old, new in zip(before, weights_of(networks, "policy"), strict=True))


def test_actions_that_a_mask_excludes_do_not_count():
    spec = EnvSpec(
        "x",
        OBSERVATION | {"mask": ArraySpec((3,), "int8", low=(0.0,) * 3, high=(1.0,) * 3)},
        {"action": DiscreteSpec(3)},
    )
    algorithm, networks = make(spec, {"heads_parameters": [{"kind": "policy", "action_mask": "mask"}]})
    mask = np.ones((T + 1, N, 3), "int8")
    mask[..., 2] = 0
    batch = make_batch(networks, spec)
    batch = batch._replace(
        observations={**batch.observations, "mask": mask}, actions={"action": batch.actions["action"] % 2}
    )
    metrics = algorithm.update(networks, acted(algorithm, networks, batch)).metrics
    assert (metrics["finite"], metrics["step_fraction"] > 0.1) == (True, True)
    assert 0.001 < metrics["kl"] <= 0.01
    assert metrics["entropy"] <= math.log(2.0) + 1e-6


@pytest.mark.row("G29", "I08", "I15")
def test_a_step_that_is_not_good_is_refused():
    """One point, from which more is asked than it gains: the policy stays bit by bit, the value function moves.

    AdamW would shrink weights of the policy that no gradient moves, had it moments of them.
    """
    network = {"optimizer_type": "AdamW", "weight_decay": 0.5}
    algorithm, networks = make(network=network, line_search_steps=1, max_kl=3.0, accept_ratio=0.9)
    policy, value = weights_of(networks, "policy"), weights_of(networks, "value")
    metrics = algorithm.update(networks, make_batch(networks)).metrics
    assert (metrics["step_fraction"], metrics["surrogate_gain"], metrics["kl"]) == (0.0, 0.0, 0.0)
    assert (metrics["finite"], metrics["expected_gain"] > 0.0) == (True, True)
    for old, new in zip(policy, weights_of(networks, "policy"), strict=True):
        np.testing.assert_array_equal(old, new)
    assert all((old != new).any() for old, new in zip(value, weights_of(networks, "value"), strict=True))
    saved = networks["main"].state_arrays()["optimizer"]
    assert sum("momentum" in name for name in saved) == len(value)
    assert not any("policy" in name for name in saved)


def test_more_steps_of_the_search_find_a_good_point():
    algorithm, networks = make(line_search_steps=30, max_kl=3.0, accept_ratio=0.9)
    metrics = algorithm.update(networks, make_batch(networks)).metrics
    assert 0.0 < metrics["step_fraction"] < 1.0
    assert metrics["surrogate_gain"] >= 0.9 * metrics["step_fraction"] * metrics["expected_gain"] * (1.0 - 1e-5)


# --- what stays -------------------------------------------------------------------------------------------------------


def test_an_update_that_is_not_finite_changes_nothing():
    """A bad reward is in advantages and targets; a bad probability is in the policy's loss alone."""
    normalized = {"input_embedders_parameters": {"observation": {"normalize": True}}}
    algorithm, networks = make(network=normalized)
    fields = ("rewards", "behaviour_log_probabilities")
    for field, bad in [(field, bad) for field in fields for bad in (np.nan, np.inf)]:
        assert algorithm.update(networks, make_batch(networks)).metrics["finite"] is True
        before, batch = states(networks), make_batch(networks, valid=np.ones((T, N), bool))
        getattr(batch, field)[0, 0] = -bad  # exp(inf)
        metrics = algorithm.update(networks, batch).metrics
        assert metrics["finite"] is False, (field, bad)
        assert_same(before, states(networks))
    assert algorithm.update(networks, make_batch(networks)).metrics["finite"] is True


def assert_what_was_ignored_does_not_count(algorithm, networks):
    start, told = networks["main"].state_arrays(), []
    for action, log_probability in ((0, -0.7), (1, -80.0)):
        networks["main"].restore(start)
        batch = make_batch(networks)
        batch.actions["action"][~batch.valid] = action
        batch.behaviour_log_probabilities[~batch.valid] = log_probability
        algorithm.update(networks, batch)
        told.append(states(networks))
    assert_same(*told)


@pytest.mark.long
@pytest.mark.slow
def test_memory_is_unrolled():
    """With memory a step that is better for whole sequences is found, from the state before their first rows."""
    algorithm, networks = make(network={"middleware_parameters": LSTM})
    batch = make_batch(networks)
    states = {name: np.full_like(rows, 0.5) for name, rows in batch.recurrent_state.items()}
    batch = acted(algorithm, networks, batch._replace(recurrent_state=states))
    metrics = algorithm.update(networks, batch).metrics
    assert metrics["policy_loss"] == pytest.approx(0.0, abs=1e-5)  # advantages of mean 0, ratios of 1
    assert 0.001 < metrics["kl"] <= 0.01
    assert metrics["surrogate_gain"] > 0.5 * metrics["step_fraction"] * metrics["expected_gain"] > 0.0
    assert_what_was_ignored_does_not_count(algorithm, networks)


def test_a_restored_update_goes_on_bit_by_bit_and_ignores_what_is_not_valid():
    algorithm, networks = make()
    assert_what_was_ignored_does_not_count(algorithm, networks)
    nothing = algorithm.update(networks, make_batch(networks, valid=np.zeros((T, N), bool))).metrics
    assert (nothing["finite"], nothing["step_fraction"], nothing["kl"]) == (True, 0.0, 0.0)
    algorithm.update(networks, make_batch(networks, seed=1))
    saved, after = networks["main"].state_arrays(), []
    for _ in range(2):
        networks["main"].restore(saved)
        algorithm.update(networks, make_batch(networks, seed=2))
        after.append(states(networks))
        algorithm.update(networks, make_batch(networks, seed=3))  # something else, before it is repeated
    assert_same(*after)


@pytest.mark.long
def test_the_region_and_the_bonus_may_change_while_training():
    now = configuration(network={"learning_rate": 0.002}, max_kl=0.002, entropy_weight=0.5)
    was = configuration()
    told, weights = [], []
    for steered, given in ((True, was), (False, now)):
        algorithm = make_algorithm(given)
        networks = algorithm.build(SPEC)
        if steered:
            saved = networks["main"].state_arrays()
            algorithm.update(networks, make_batch(networks))
            networks["main"].restore(saved)
            algorithm.steer(networks, context_of(now))
        told.append(algorithm.update(networks, make_batch(networks)).metrics)
        weights.append(networks["main"].online.get_weights())
        assert traces(algorithm._step) == 1
    assert told[0] == pytest.approx(told[1], rel=1e-5)
    assert told[0]["kl"] <= 0.002
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


# --- networks that it cannot train ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "network",
    [
        {"middleware_parameters": {"scheme": [8], "dropout_rate": 0.1}},
        {"middleware_parameters": {"scheme": [8], "batchnorm": True}},
        {"middleware_parameters": {"scheme": [8], "dense_layer": "noisy_dense"}},
    ],
    ids=["dropout", "batchnorm", "noise"],
)
def test_layers_that_are_not_a_function_of_the_weights_are_refused(network):
    with pytest.raises(ConfigError, match="algorithm trpo compares policies by their weights alone; leave out dropout"):
        make(network=network)
