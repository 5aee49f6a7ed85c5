"""Returns, advantages and IMPALA's loss beside rlax, which knows single episodes alone: each is given by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
import tensorflow as tf
from keras import ops

from benchmarks.references import tasks
from benchmarks.references.figures import agree, differ
from benchmarks.references.rollouts import STEPS, script
from distrl.algorithms.maths import returns
from distrl.types import Batch

COLUMNS, UNBOUNDED = 4, 1e9
WHAT = f"{COLUMNS} unrolls of {STEPS} rows, episodes terminated and cut off"


@pytest.fixture(autouse=True)
def _op_by_op():
    """Episodes have many lengths, and JAX would compile each of rlax's loops for each of them."""
    with jax.disable_jit():
        yield


def arrays(seed=0):
    """Values [T+1, N], and rewards, discounts, valid and log rhos [T, N] of unrolls."""
    scripts = [script(COLUMNS * seed + index) for index in range(COLUMNS)]
    random = np.random.default_rng(seed)
    rewards, terminated, valid = (
        np.stack([getattr(given, name) for given in scripts], axis=1) for name in ("rewards", "terminated", "valid")
    )
    return {
        "values": 3.0 * random.standard_normal((STEPS + 1, COLUMNS)).astype(np.float32),
        "rewards": rewards,
        "discounts": ops.convert_to_numpy(returns.step_discounts(terminated, tasks.GAMMA)),
        "valid": valid,
        "log_rhos": random.standard_normal((STEPS, COLUMNS)).astype(np.float32),
    }


def episodes(valid):
    """(column, first row, row after the last) of every episode or part of one."""
    for column in range(valid.shape[1]):
        first = None
        for row in range(len(valid) + 1):
            goes_on = row < len(valid) and valid[row, column]
            if goes_on and first is None:
                first = row
            elif not goes_on and first is not None:
                yield column, first, row
                first = None


def by_episode(function, given):
    """Results [T, N] of a function of (values before, after, rewards, discounts, rhos) [K], one episode at a time."""
    made = np.zeros(given["valid"].shape, np.float32)
    for column, first, end in episodes(given["valid"]):
        values = given["values"][first : end + 1, column]
        rows = (slice(first, end), column)
        rhos = np.exp(given["log_rhos"][rows])
        made[rows] = function(values[:-1], values[1:], given["rewards"][rows], given["discounts"][rows], rhos)
    return made


def compared(found, expected, valid):
    """Both at valid rows."""
    return [np.asarray(ops.convert_to_numpy(rows))[valid] for rows in (found, expected)]


@pytest.mark.parametrize("bar", [0.5, 1.0, None])
@pytest.mark.parametrize("trace_lambda", [1.0, 0.8])
def test_vtrace(bar, trace_lambda):
    given = arrays()
    found = returns.vtrace(**given, rho_bar=bar, rho_bar_policy_gradient=bar, trace_lambda=trace_lambda)
    limit = UNBOUNDED if bar is None else bar

    def reference(field):
        def of(v_tm1, v_t, rewards, discounts, rhos):
            made = rlax.vtrace_td_error_and_advantage(v_tm1, v_t, rewards, discounts, rhos, trace_lambda, limit, limit)
            return made.errors + v_tm1 if field == "targets" else made.pg_advantage

        return by_episode(of, given)

    name, what = "rlax.vtrace_td_error_and_advantage", f"rho bar {bar}, lambda {trace_lambda:g}"
    group, valid = "V-trace", given["valid"]
    agree(group, f"targets, {what}", name, *compared(found.value_targets, reference("targets"), valid), allowed=5e-5)
    advantages = compared(found.advantages, reference("advantages"), valid)
    if trace_lambda == 1.0:
        agree(group, f"advantages, {what}", name, *advantages, allowed=5e-5)
    elif bar == 1.0:
        note = "advantages use the next target itself (section 4.2); rlax mixes lambda of it with the value"
        differ(group, f"advantages, {what}", name, *advantages, least=0.1, note=note)


def test_gae_and_lambda_returns():
    given = arrays(1)
    log_rhos = given.pop("log_rhos")
    found = returns.gae(**given, trace_lambda=0.9)
    given["log_rhos"], valid = log_rhos, given["valid"]

    def advantages(v_tm1, v_t, rewards, discounts, _):
        values = np.append(v_tm1, v_t[-1:])
        return rlax.truncated_generalized_advantage_estimation(rewards, discounts, 0.9, values)

    def targets(_, v_t, rewards, discounts, __):
        return rlax.lambda_returns(rewards, discounts, v_t, 0.9)

    name = "rlax.truncated_generalized_advantage_estimation"
    agree(
        "GAE",
        f"advantages, {WHAT}",
        name,
        *compared(found.advantages, by_episode(advantages, given), valid),
        allowed=5e-6,
    )
    agree(
        "GAE",
        "TD(lambda) targets",
        "rlax.lambda_returns",
        *compared(found.value_targets, by_episode(targets, given), valid),
        allowed=5e-6,
    )


def test_corrected_gae():
    given = arrays(2)
    found = returns.corrected_gae(**given, trace_lambda=0.9)

    def advantages(v_tm1, v_t, rewards, discounts, rhos):
        made = rlax.vtrace_td_error_and_advantage(v_tm1, v_t, rewards, discounts, rhos, 0.9)
        return made.q_estimate - v_tm1

    name = "rlax.vtrace_td_error_and_advantage, q_estimate - V"
    agree(
        "APPO",
        "corrected GAE",
        name,
        *compared(found.advantages, by_episode(advantages, given), given["valid"]),
        allowed=2e-5,
    )


@pytest.mark.parametrize("steps", [1, 3, 100])
def test_n_step(steps):
    given = arrays(3)
    log_rhos = given.pop("log_rhos")
    found = returns.n_step(**given, steps=steps)
    given["log_rhos"] = log_rhos

    def targets(_, v_t, rewards, discounts, __):
        return rlax.n_step_bootstrapped_returns(rewards, discounts, v_t, min(steps, len(rewards)))

    name = "rlax.n_step_bootstrapped_returns"
    agree(
        "n-step returns",
        f"n = {steps}",
        name,
        *compared(found.value_targets, by_episode(targets, given), given["valid"]),
        allowed=1e-5,
    )


def test_impala():
    """Loss and its gradient by every logit and value; the unrolls are of another policy."""
    algorithm, _ = tasks.make("impala", tasks.DISCRETE, entropy_weight=0.02, value_loss_weight=0.7)
    given, random = arrays(4), np.random.default_rng(4)
    logits = random.standard_normal((STEPS + 1, COLUMNS, tasks.CHOICES)).astype(np.float32)
    actions = random.integers(0, tasks.CHOICES, (STEPS, COLUMNS)).astype(np.int32)
    behaviour = np.log(random.uniform(0.05, 1.0, (STEPS, COLUMNS))).astype(np.float32)
    valid, terminated = given["valid"], given["discounts"] == 0.0
    batch = Batch(
        observations={},
        actions={"action": actions},
        rewards=given["rewards"],
        terminated=terminated,
        truncated=np.zeros_like(terminated),
        valid=valid,
        behaviour_log_probabilities=behaviour,
        recurrent_state={},
    )
    outputs = {"policy/action": tf.constant(logits), "value": tf.constant(given["values"])}
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        loss = sum(algorithm.loss(outputs, batch).terms.values())
    found = [gradient.numpy() for gradient in tape.gradient(loss, outputs).values()]

    log_p = np.take_along_axis(np.asarray(jax.nn.log_softmax(logits[:-1])), actions[..., None], axis=-1)[..., 0]
    given["log_rhos"] = log_p - behaviour
    made = {
        field: by_episode(lambda *rows, field=field: getattr(rlax.vtrace_td_error_and_advantage(*rows), field), given)
        for field in ("errors", "pg_advantage")
    }
    targets = (made["errors"] + given["values"][:-1])[valid]

    def reference(logits, values):
        of_valid, weights = logits[:-1][valid], jnp.ones(int(valid.sum()))
        policy_loss = rlax.policy_gradient_loss(of_valid, actions[valid], made["pg_advantage"][valid], weights)
        value_loss = rlax.l2_loss(values[:-1][valid], targets).mean()
        return policy_loss + 0.7 * value_loss + 0.02 * rlax.entropy_loss(of_valid, weights)

    expected, gradients = jax.value_and_grad(reference, (0, 1))(jnp.asarray(logits), jnp.asarray(given["values"]))
    name = "rlax: V-trace, policy_gradient_loss, entropy_loss, l2_loss"
    agree("IMPALA", f"loss, {WHAT}", name, float(loss), float(expected), allowed=1e-5)
    agree("IMPALA", "gradient by every logit and value", name, found, gradients, allowed=1e-6)


def test_retrace():
    given, random = arrays(3), np.random.default_rng(3)
    shape = (STEPS + 1, COLUMNS)
    q = 3.0 * random.standard_normal((*shape, 3)).astype(np.float32)
    pi = random.dirichlet(np.ones(3), shape).astype(np.float32)
    mu = random.uniform(0.1, 1.0, shape).astype(np.float32)
    actions = random.integers(3, size=shape)
    q_a, pi_a = (np.take_along_axis(each, actions[..., None], axis=-1)[..., 0] for each in (q, pi))
    found = returns.retrace(
        values=(pi * q).sum(axis=-1),
        action_values=q_a[:-1],
        rewards=given["rewards"],
        discounts=given["discounts"],
        valid=given["valid"],
        log_rhos=np.log(pi_a / mu)[:-1],
        trace_lambda=0.9,
    )
    expected = np.zeros_like(q_a[:-1])
    for column, first, end in episodes(given["valid"]):
        rows, after = (slice(first, end), column), (slice(first + 1, end + 1), column)
        steps = (given[name][rows] for name in ("rewards", "discounts"))
        with jax.disable_jit(False):  # op by op, rlax refuses an episode of one step
            errors = rlax.retrace(
                q[rows], q[after], actions[rows], actions[after], *steps, pi[after], mu[after], 0.9, eps=0.0
            )
        expected[rows] = errors + q_a[rows]
    agree("ACER", "Retrace, lambda 0.9", "rlax.retrace", *compared(found, expected, given["valid"]), allowed=5e-5)
