"""TRPO beside sb3-contrib's: natural gradient by Fisher-vector products, step, line search, fit of the values."""

import pytest
import torch
from sb3_contrib import TRPO
from sb3_contrib.trpo import trpo

from benchmarks.references import tasks
from benchmarks.references.figures import agree
from benchmarks.references.rollouts import (
    STEPS,
    Scripted,
    action_space,
    actor_critic_pairs,
    collect,
    script,
    set_minibatches,
    unroll,
)
from benchmarks.references.stable_baselines import LIKE_KERAS, Adam, model
from benchmarks.references.weights import Twins
from distrl.algorithms.epochs import shuffled

EPOCHS, MINIBATCHES, ITERATIONS, DAMPING, MAX_KL = 3, 4, 10, 0.1, 0.01


def set_divergence(monkeypatch):
    """Let the reference's divergence be KL(old || new), summed over the numbers of an action.

    It takes KL(new || old), which has the same second derivatives at the old policy, and of a Gaussian the mean over
    the action's numbers.
    """
    divergence = trpo.kl_divergence

    def of_policies(new, old):
        made = divergence(old, new)
        return made.sum(dim=-1) if made.ndim == 2 else made

    monkeypatch.setattr(trpo, "kl_divergence", of_policies)


@pytest.mark.parametrize("spec", [tasks.DISCRETE, tasks.BOX], ids=["discrete", "Gaussian"])
def test_update(spec, monkeypatch, request):
    head = {"kind": "policy", "distribution": "gaussian"} if spec is tasks.BOX else {"kind": "policy"}
    algorithm, networks = tasks.make(
        "trpo",
        spec,
        {"use_separate_networks_per_head": True, "heads_parameters": [head]},
        gae_lambda=0.95,
        normalize_advantages=None,
        max_kl=MAX_KL,
        damping=DAMPING,
        conjugate_gradient_iterations=ITERATIONS,
        accept_ratio=0.0,
        value_epochs=EPOCHS,
        value_minibatches=MINIBATCHES,
        run={"actors": {"environments": 1, "unroll_length_steps": STEPS}, "learner": {"batch_size": 1}},
    )
    given = script()
    theirs = model(
        TRPO,
        Scripted(action_space(spec), given),
        learning_rate=tasks.RATE,
        n_steps=int(given.valid.sum()),
        batch_size=STEPS // MINIBATCHES,
        gamma=tasks.GAMMA,
        gae_lambda=0.95,
        cg_max_steps=ITERATIONS,
        cg_damping=DAMPING,
        target_kl=MAX_KL,
        n_critic_updates=EPOCHS,
        normalize_advantage=False,
        policy_kwargs={
            "net_arch": [tasks.HIDDEN],
            "optimizer_class": Adam,
            "optimizer_kwargs": {"epsilon": tasks.EPSILON, "gradient_scale": 0.5},
        },
    )
    both = Twins(networks["main"].online, list(actor_critic_pairs(theirs.policy, spec)))
    buffer = collect(theirs, given)
    batch = unroll(given, buffer, spec)
    order = shuffled(STEPS, epochs=EPOCHS, minibatches=MINIBATCHES, seed=tasks.SEED, step=0)
    set_minibatches(buffer, given.valid, order)
    metrics = algorithm.update(networks, batch).metrics
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)  # where its conjugate gradients begin
    set_divergence(monkeypatch)
    theirs.train()
    logged, name, actions = theirs.logger.name_to_value, "sb3-contrib TRPO.train()", request.node.callspec.id
    assert metrics["step_fraction"] > 0.0
    note = f"{LIKE_KERAS}; ½ of value loss; conjugate gradients from 0; KL(old to new), summed"
    expected = 0.5 * logged["train/value_loss"]
    agree("TRPO", f"value loss, {actions}", name, metrics["value_loss"], expected, allowed=1e-5, note=note)
    what = f"every weight after a step and {EPOCHS} epochs of the values, {actions}"
    both.agree("TRPO", what, name, allowed=2e-5, note=note)
