"""DQN beside Stable-Baselines3's: 40 whole updates."""

import numpy as np
import torch
from gymnasium.spaces import Discrete
from stable_baselines3 import DQN
from stable_baselines3.common.utils import polyak_update

from benchmarks.references import tasks
from benchmarks.references.figures import agree, differ
from benchmarks.references.stable_baselines import LIKE_KERAS, Adam, Spaces, feed, model, observations
from benchmarks.references.weights import Twins, dense

UPDATES, TARGET_EVERY = 40, 10
REFERENCE = "SB3 DQN.train()"


def twins(optimizer_class, optimizer_kwargs):
    """distrl's networks and SB3's model with equal weights."""
    algorithm, networks = tasks.make(
        "dqn",
        tasks.DISCRETE,
        {"replace_mse_with_huber_loss": True, "clip_gradients": 10.0},
        activation="relu",
        target_update_every_updates=TARGET_EVERY,
    )
    made = model(
        DQN,
        Spaces(observations(tasks.INPUTS), Discrete(tasks.CHOICES)),
        learning_rate=tasks.RATE,
        gamma=tasks.GAMMA,
        max_grad_norm=10.0,
        buffer_size=10,
        policy_kwargs={
            "net_arch": [tasks.HIDDEN],
            "optimizer_class": optimizer_class,
            "optimizer_kwargs": optimizer_kwargs,
        },
    )
    layers = made.q_net.q_net
    pairs = [*dense("middleware_dense_0", layers[0]), *dense("q_head", layers[2])]
    both = Twins(networks["main"].online, pairs)
    made.q_net_target.load_state_dict(made.q_net.state_dict())
    return algorithm, networks, made, both


def train(optimizer_class, **optimizer_kwargs):
    """Losses and mean values of both, update by update, and the networks."""
    algorithm, networks, made, both = twins(optimizer_class, optimizer_kwargs)
    batches = [tasks.transitions(seed, tasks.DISCRETE) for seed in range(UPDATES)]
    feed(made, batches)
    losses, references = [], []
    for index, batch in enumerate(batches):
        losses.append(algorithm.update(networks, batch).metrics["td_loss"])
        made.train(gradient_steps=1, batch_size=tasks.ROWS)
        references.append(made.logger.name_to_value["train/loss"])
        if (index + 1) % TARGET_EVERY == 0:  # as `DQN._on_step` does
            polyak_update(made.q_net.parameters(), made.q_net_target.parameters(), made.tau)
    return losses, references, both


def test_updates():
    losses, references, both = train(Adam, epsilon=tasks.EPSILON)
    what = f"{UPDATES} updates, the target copied after every {TARGET_EVERY}"
    agree("DQN", f"loss (Huber) of {what}", REFERENCE, losses, references, allowed=2e-6, note=LIKE_KERAS)
    agree(
        "DQN",
        f"every weight after {what}",
        REFERENCE,
        both.found,
        both.expected,
        allowed=1e-6,
        of=both.moved,
        note=LIKE_KERAS,
    )


def test_updates_with_its_own_epsilon():
    _, _, both = train(torch.optim.Adam, eps=tasks.EPSILON)
    note = "Adam's epsilon is PyTorch's here: added after the correction of its bias"
    differ(
        "DQN",
        f"every weight after {UPDATES} updates",
        REFERENCE,
        both.found,
        both.expected,
        least=1e-5,
        of=both.moved,
        note=note,
    )
    assert np.isfinite(both.moved)
