"""Values of choices beside rlax: double Q-learning, C51, Rainbow, QR-DQN, R2D2's rescaled values; and a sum tree."""

import jax
import numpy as np
import pytest
import rlax
import tensorflow as tf
from dopamine.tf.replay_memory.sum_tree import SumTree as DopamineSumTree
from keras import ops

from benchmarks.references import tasks
from benchmarks.references.figures import agree
from distrl.algorithms.maths.td_targets import rescaled, unscaled
from distrl.networks.heads.losses import quantile_fractions
from distrl.replay.sum_tree import SumTree
from distrl.types import Batch

ATOMS, V_MIN, V_MAX = 21, -4.0, 4.0


def outputs_of(algorithm, networks, batch):
    """The outputs of the online and the target copy, as `Algorithm.loss` gets them."""
    main = networks["main"]
    online, target = (
        copy.unroll(batch.observations, batch.recurrent_state, batch.valid) for copy in (main.online, main.target)
    )
    return dict(online) | {f"target/{name}": rows for name, rows in target.items()}


def drawn(random, shape):
    """A kernel or a bias that makes outputs of several units."""
    return (1.5 * shape[0] ** -0.5 * random.standard_normal(shape)).astype(np.float32)


def built(name, heads=None, **sections):
    """An algorithm whose target network is another one than its online network, and their outputs for transitions."""
    network = {} if heads is None else {"heads_parameters": [heads]}
    algorithm, networks = tasks.make(name, tasks.DISCRETE, network, **sections)
    random, main = np.random.default_rng(5), networks["main"]
    for copy in (main.online, main.target):
        copy.set_weights([drawn(random, weight.shape) for weight in copy.get_weights()])
    batch = tasks.transitions(5, tasks.DISCRETE)
    return algorithm, outputs_of(algorithm, networks, batch), batch


def rows_of(outputs, batch):
    """A transition as rlax takes it: the numbers before and after, choices, rewards and discounts."""
    numbers = {name: ops.convert_to_numpy(rows) for name, rows in outputs.items()}
    discounts = tasks.GAMMA * (1.0 - batch.terminated[0].astype(np.float32))
    return numbers, batch.actions["action"][0], batch.rewards[0], discounts


@pytest.mark.parametrize("double", [False, True], ids=["", "double"])
def test_q_learning(double):
    algorithm, outputs, batch = built("dqn", double=double)
    made = algorithm.temporal_differences(outputs, batch)
    numbers, actions, rewards, discounts = rows_of(outputs, batch)
    q, slow = numbers["q/q"], numbers["target/q/q"]
    if double:
        errors = jax.vmap(rlax.double_q_learning)(q[0], actions, rewards, discounts, slow[1], q[1])
    else:
        errors = jax.vmap(rlax.q_learning)(q[0], actions, rewards, discounts, slow[1])
    name = "rlax.double_q_learning" if double else "rlax.q_learning"
    agree(
        "DQN",
        "absolute TD errors" + (", double" if double else ""),
        name,
        made.errors[0].numpy(),
        np.abs(errors),
        allowed=2e-6,
    )


@pytest.mark.parametrize("name", ["c51", "rainbow"])
def test_categorical(name):
    """Losses, and their gradient by the online logits."""
    kind = "rainbow_q" if name == "rainbow" else "categorical_q"
    algorithm, outputs, batch = built(name, {"kind": kind, "atoms": ATOMS, "v_min": V_MIN, "v_max": V_MAX})
    atoms = np.linspace(V_MIN, V_MAX, ATOMS, dtype=np.float32)
    with tf.GradientTape() as tape:
        tape.watch(outputs[kind])
        losses = algorithm.temporal_differences(outputs, batch).losses[0]
        mean = tf.reduce_mean(losses)
    gradient = tape.gradient(mean, outputs[kind]).numpy()[0]
    numbers, actions, rewards, discounts = rows_of(outputs, batch)
    logits, slow, choosing = numbers[kind], numbers[f"target/{kind}"], numbers[f"{kind}/q"]

    def reference(logits):
        if name == "rainbow":  # double
            return jax.vmap(rlax.categorical_double_q_learning, (None, 0, 0, 0, 0, None, 0, 0))(
                atoms, logits, actions, rewards, discounts, atoms, slow[1], choosing[1]
            )
        return jax.vmap(rlax.categorical_q_learning, (None, 0, 0, 0, 0, None, 0))(
            atoms, logits, actions, rewards, discounts, atoms, slow[1]
        )

    used = "rlax.categorical_double_q_learning" if name == "rainbow" else "rlax.categorical_q_learning"
    group = {"c51": "C51", "rainbow": "Rainbow"}[name]
    agree(
        group,
        "loss of each transition: projection, cross-entropy",
        used,
        losses.numpy(),
        reference(logits[0]),
        allowed=1e-5,
    )
    expected = jax.grad(lambda logits: reference(logits).mean())(logits[0])
    agree(group, "gradient by every logit", used, gradient, expected, allowed=1e-6)


@pytest.mark.parametrize("kappa", [0.5, 1.0, 2.0])
def test_quantiles(kappa):
    quantiles = 17
    algorithm, outputs, batch = built("qrdqn", {"kind": "quantile_q", "quantiles": quantiles}, huber_kappa=kappa)
    found = algorithm.temporal_differences(outputs, batch).losses[0].numpy()
    numbers, actions, rewards, discounts = rows_of(outputs, batch)
    online, slow = (np.swapaxes(numbers[name], -1, -2) for name in ("quantile_q", "target/quantile_q"))
    losses = jax.vmap(rlax.quantile_q_learning, (0, None, 0, 0, 0, 0, 0, None))(
        online[0], quantile_fractions(quantiles), actions, rewards, discounts, slow[1], slow[1], kappa
    )
    note = "" if kappa == 1.0 else "divided by kappa, as in the paper"
    agree(
        "QR-DQN",
        f"loss of each transition, kappa {kappa:g}",
        "rlax.quantile_q_learning",
        found,
        losses / kappa,
        allowed=2e-5,
        note=note,
    )


def test_rescaling():
    values = np.concatenate([-np.logspace(-2, 3, 200), np.logspace(-2, 3, 200)]).astype(np.float32)
    pair = rlax.SIGNED_HYPERBOLIC_PAIR
    agree(
        "R2D2",
        "h(x), x from -1,000 to 1,000",
        "rlax.signed_hyperbolic",
        rescaled(values).numpy(),
        pair.apply(values),
        allowed=1e-5,
    )
    small = pair.apply(values)
    with jax.enable_x64(True):  # its own formula loses 4 digits in float32
        inverse = pair.apply_inv(np.asarray(small, np.float64))
    agree(
        "R2D2",
        "inverse of h",
        "rlax.signed_parabolic in float64",
        unscaled(np.asarray(small)).numpy(),
        inverse,
        allowed=1e-3,
    )


def test_r2d2():
    """Absolute n-step errors of sequences without an end, by double Q-learning."""
    length, sequences, steps = 12, 6, 5
    algorithm, networks = tasks.make(
        "r2d2",
        tasks.DISCRETE,
        {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 8}},
        replay={"item": {"kind": "sequence", "n_step": steps}},
        run={"actors": {"unroll_length_steps": length}},
    )
    random, main = np.random.default_rng(6), networks["main"]
    for copy in (main.online, main.target):
        copy.set_weights([drawn(random, weight.shape) for weight in copy.get_weights()])
    shape = (length, sequences)
    batch = Batch(
        observations={"observation": random.standard_normal((length + 1, sequences, tasks.INPUTS)).astype(np.float32)},
        actions={"action": random.integers(0, tasks.CHOICES, shape).astype(np.int32)},
        rewards=10.0 * random.standard_normal(shape).astype(np.float32),
        terminated=np.zeros(shape, bool),
        truncated=np.zeros(shape, bool),
        valid=np.ones(shape, bool),
        behaviour_log_probabilities=np.zeros(shape, np.float32),
        recurrent_state={
            name: random.standard_normal((sequences, *state.shape)).astype(np.float32)
            for name, state in main.online.recurrent_state.items()
        },
        importance_weights=np.ones(sequences, np.float32),
    )
    outputs = outputs_of(algorithm, networks, batch)
    found = algorithm.temporal_differences(outputs, batch).errors.numpy()
    q, slow = (ops.convert_to_numpy(outputs[name]) for name in ("dueling_q/q", "target/dueling_q/q"))
    errors = [
        rlax.transformed_n_step_q_learning(
            q[:-1, at],
            batch.actions["action"][:, at],
            slow[1:, at],
            q[1:, at].argmax(axis=-1),
            batch.rewards[:, at],
            np.full(length, tasks.GAMMA, np.float32),
            steps,
            tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR,
        )
        for at in range(sequences)
    ]
    what = f"absolute errors of {steps} steps, rescaled, double"
    agree("R2D2", what, "rlax.transformed_n_step_q_learning", found, np.abs(np.stack(errors, axis=1)), allowed=2e-3)


@pytest.mark.parametrize("capacity", [1, 16, 17, 1000])
def test_sum_tree(capacity):
    random = np.random.default_rng(capacity)
    ours, theirs = SumTree(capacity), DopamineSumTree(capacity)
    for _ in range(3):
        items = random.integers(0, capacity, capacity)
        weights = random.exponential(size=capacity)
        ours.update(items, weights)
        for item, weight in zip(items, weights, strict=True):
            theirs.set(int(item), float(weight))
    shares = random.random(3000)
    found = ours.find(shares * ours.total)
    expected = [theirs.sample(query_value=float(share)) for share in shares]
    agree(
        "Prioritised replay",
        f"items drawn by 3,000 prefixes, a tree of {capacity}",
        "Dopamine SumTree",
        found + 1,
        np.array(expected) + 1,
        allowed=0.0,
    )
