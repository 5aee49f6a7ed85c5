"""PPO and A2C beside Stable-Baselines3's: it collects, distrl gets the same steps, both update."""

import numpy as np
import pytest
import torch
from keras import ops
from stable_baselines3 import A2C, PPO

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

EPOCHS, MINIBATCHES, LAMBDA, CLIPPING = 5, 4, 0.95, 0.5
SPECS = pytest.mark.parametrize("spec", [tasks.DISCRETE, tasks.BOX], ids=["discrete", "Gaussian"])


def ppo(spec, optimizer=(Adam, {"epsilon": tasks.EPSILON}), normalize=False, **settings):
    """Both sides with equal weights, the script, and the model's buffer of it."""
    head = {"kind": "ppo", "distribution": "gaussian"} if spec is tasks.BOX else {"kind": "ppo"}
    algorithm, networks = tasks.make(
        "ppo",
        spec,
        {
            "use_separate_networks_per_head": True,
            "heads_parameters": [head],
            "clip_gradients": CLIPPING,
            "learning_rate": 1e-2,
        },
        gae_lambda=LAMBDA,
        epochs=EPOCHS,
        minibatches=MINIBATCHES,
        value_loss_weight=1.0,
        entropy_weight=0.01,
        normalize_advantages="minibatch" if normalize else None,
        run={"actors": {"environments": 1, "unroll_length_steps": STEPS}, "learner": {"batch_size": 1}},
        **settings,
    )
    given = script()
    optimizer_class, optimizer_kwargs = optimizer
    theirs = model(
        PPO,
        Scripted(action_space(spec), given),
        learning_rate=1e-2,
        n_steps=int(given.valid.sum()),
        batch_size=STEPS // MINIBATCHES,
        n_epochs=EPOCHS,
        gamma=tasks.GAMMA,
        gae_lambda=LAMBDA,
        clip_range=0.2,
        clip_range_vf=settings.get("value_clip_range"),
        normalize_advantage=normalize,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=CLIPPING,
        policy_kwargs={
            "net_arch": [tasks.HIDDEN],
            "optimizer_class": optimizer_class,
            "optimizer_kwargs": optimizer_kwargs,
        },
    )
    both = Twins(networks["main"].online, list(actor_critic_pairs(theirs.policy, spec)))
    return algorithm, networks, theirs, both, given, collect(theirs, given)


def ppo_update(spec, **options):
    """Make one update of all epochs; return both metrics and the weights."""
    algorithm, networks, theirs, both, given, buffer = ppo(spec, **options)
    batch = unroll(given, buffer, spec)
    order = shuffled(STEPS, epochs=EPOCHS, minibatches=MINIBATCHES, seed=tasks.SEED, step=0)
    set_minibatches(buffer, given.valid, order)
    update = algorithm.update(networks, batch)
    theirs.train()
    return update.metrics, theirs.logger.name_to_value, both


@SPECS
def test_ppo(spec, request):
    actions = request.node.callspec.id
    metrics, logged, both = ppo_update(spec)
    reference, what = "SB3 PPO.train()", f"{EPOCHS} epochs of {MINIBATCHES} minibatches, {actions}"
    ours = [metrics[name] for name in ("value_loss", "entropy", "clip_fraction")]
    theirs = [0.5 * logged["train/value_loss"], -logged["train/entropy_loss"], logged["train/clip_fraction"]]
    agree("PPO", f"value loss, entropy, clip fraction: {what}", reference, ours, theirs, allowed=5e-6, note=LIKE_KERAS)
    assert metrics["clip_fraction"] > 0.05  # else the clip was not compared
    both.agree("PPO", f"every weight after {what}", reference, allowed=2e-6, note=LIKE_KERAS)


def test_ppo_conventions():
    reference, what = "SB3 PPO.train()", f"every weight after {EPOCHS} epochs of {MINIBATCHES} minibatches"
    _, _, both = ppo_update(tasks.DISCRETE, optimizer=(torch.optim.Adam, {"eps": tasks.EPSILON}))
    both.differ("PPO", what, reference, least=1e-4, note="Adam's epsilon is PyTorch's here")
    _, _, both = ppo_update(tasks.DISCRETE, normalize=True)
    both.differ(
        "PPO",
        what,
        reference,
        least=1e-6,
        note="normalised advantages: by the population's deviation, not the sample's",
    )
    _, _, both = ppo_update(tasks.DISCRETE, value_clip_range=0.01)
    both.differ(
        "PPO",
        what,
        reference,
        least=1e-4,
        note="clipped value loss: the larger of both losses, not the clipped one alone",
    )


def test_advantages_and_targets():
    algorithm, networks, _, _, given, buffer = ppo(tasks.DISCRETE)
    batch = unroll(given, buffer, tasks.DISCRETE)
    outputs = networks["main"].online.unroll(batch.observations, {}, batch.valid)
    made = algorithm.estimates(outputs, batch)
    for name, theirs in (("advantages", buffer.advantages), ("value_targets", buffer.returns)):
        ours = ops.convert_to_numpy(made[name])[given.valid]
        what = f"{name.replace('_', ' ')}, GAE, episodes terminated and cut off"
        agree("PPO", what, "SB3 collect_rollouts()", ours, theirs, allowed=5e-6)


@SPECS
def test_a2c(spec, request):
    actions = request.node.callspec.id
    head = {"kind": "policy", "distribution": "gaussian"} if spec is tasks.BOX else {"kind": "policy"}
    algorithm, networks = tasks.make(
        "a2c",
        spec,
        {"use_separate_networks_per_head": True, "heads_parameters": [head], "clip_gradients": CLIPPING},
        gae_lambda=LAMBDA,
        value_loss_weight=1.0,
        entropy_weight=0.01,
        run={"actors": {"environments": 1, "unroll_length_steps": STEPS}},
    )
    given = script()
    theirs = model(
        A2C,
        Scripted(action_space(spec), given),
        n_steps=int(given.valid.sum()),
        gamma=tasks.GAMMA,
        gae_lambda=LAMBDA,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=CLIPPING,
        policy_kwargs={"net_arch": [tasks.HIDDEN]},
    )
    both = Twins(networks["main"].online, list(actor_critic_pairs(theirs.policy, spec)))
    buffer = collect(theirs, given)
    batch = unroll(given, buffer, spec)
    set_minibatches(buffer, given.valid, [])
    found = algorithm.differentiate(networks, batch)
    theirs.train()
    ours = [found.metrics[name] for name in ("policy_loss", "value_loss", "entropy")]
    logged = [theirs.logger.name_to_value[f"train/{name}"] for name in ("policy_loss", "value_loss", "entropy_loss")]
    expected = [logged[0], 0.5 * logged[1], -logged[2]]
    agree("A2C", f"losses and entropy, {actions}", "SB3 A2C.train()", ours, expected, allowed=2e-6)
    gradients = both.gradients(found.gradients)
    what = f"gradient of every weight, clipped to a norm of {CLIPPING}, {actions}"
    agree("A2C", what, "SB3 A2C.train()", *gradients, allowed=1e-6)
    assert np.sqrt(sum((np.asarray(g) ** 2).sum() for g in gradients[0])) == pytest.approx(CLIPPING, rel=1e-4)
