"""CrossQ beside sb3-contrib's: batch renormalisation (values, gradients, running moments), and whole updates."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
import torch
from sb3_contrib import CrossQ
from sb3_contrib.common.torch_layers import BatchRenorm1d

from benchmarks.references import tasks
from benchmarks.references.actor_critics import Sides, as_the_paper
from benchmarks.references.figures import agree
from benchmarks.references.stable_baselines import (
    LIKE_KERAS,
    TOGETHER,
    Adam,
    Spaces,
    model,
    move_together,
    observations,
    set_noise,
)
from benchmarks.references.weights import Pair, Twins, dense
from distrl.networks.parts.own_layers import BatchRenormalization

UNITS, ROWS, BATCHES = 5, 32, 10
PERIOD, UPDATES = 3, 30


def set_variance(monkeypatch):
    """Let PyTorch's variance be that of the population."""
    variance = torch.Tensor.var
    monkeypatch.setattr(torch.Tensor, "var", lambda self, dim: variance(self, dim, unbiased=False))


@pytest.mark.parametrize(("warm_up", "epsilon"), [(100, 1e-3), (0, 1e-8)], ids=["warm-up", "after it"])
def test_batch_renormalization(monkeypatch, request, warm_up, epsilon):
    set_variance(monkeypatch)
    ours = BatchRenormalization(momentum=0.9, epsilon=epsilon, warm_up_updates=warm_up, name="renorm")
    theirs = BatchRenorm1d(UNITS, momentum=0.1, eps=epsilon, warmup_steps=warm_up - 1)
    ours.build((None, UNITS))
    random = np.random.default_rng(0)
    for own, other in ((ours.gamma, theirs.scale), (ours.beta, theirs.bias)):
        own.assign(random.standard_normal(UNITS).astype(np.float32))
        other.data = torch.from_numpy(np.array(own))
    found, expected = {"values": [], "gradients": []}, {"values": [], "gradients": []}
    for index in range(BATCHES):
        rows = (index * 0.3 + (1.0 + index) * random.standard_normal((ROWS, UNITS))).astype(np.float32)
        weights = random.standard_normal((ROWS, UNITS)).astype(np.float32)
        given = tf.Variable(rows)
        with tf.GradientTape() as tape:
            values = ours(given, training=True)
            total = tf.reduce_sum(weights * values)
        found["values"].append(values.numpy())
        gradients = tape.gradient(total, [given, ours.gamma.value, ours.beta.value])
        found["gradients"] += [gradient.numpy() for gradient in gradients]
        theirs.zero_grad()
        other = torch.from_numpy(rows).requires_grad_()
        made = theirs(other)
        (made * torch.from_numpy(weights)).sum().backward()
        expected["values"].append(made)
        expected["gradients"] += [other.grad, theirs.scale.grad.clone(), theirs.bias.grad.clone()]
    when, name = request.node.callspec.id, "sb3-contrib BatchRenorm1d"
    note = "variance of the population" + ("" if warm_up else "; epsilon 1e-8")
    for what in ("values", "gradients"):
        agree(
            "CrossQ", f"{what} of {BATCHES} batches, {when}", name, found[what], expected[what], allowed=5e-5, note=note
        )
    moments = [np.array(ours.moving_mean), np.array(ours.moving_variance)]
    agree("CrossQ", f"running moments, {when}", name, moments, [theirs.ra_mean, theirs.ra_var], allowed=1e-5, note=note)


def renorm(path: str, layer: Any, columns: Sequence[int] | None = None) -> Iterator[Pair]:
    """Return the pairs of a normalisation's weights and running moments."""
    for ours, theirs in (
        ("gamma", "scale"),
        ("beta", "bias"),
        ("moving_mean", "ra_mean"),
        ("moving_variance", "ra_var"),
    ):
        yield Pair(f"{path}/{ours}", getattr(layer, theirs), columns=columns)


def policy_pairs(actor: Any) -> Iterator[Pair]:
    """Return the pairs of the policy."""
    yield from renorm("middleware_batch_renorm_0", actor.latent_pi[0])
    yield from dense("middleware_dense_1", actor.latent_pi[1])
    yield from renorm("middleware_batch_renorm_2", actor.latent_pi[3])
    yield from dense("policy_head_action", actor.mu)
    yield from dense("policy_head_action_log_sigma", actor.log_std)


def critic_pairs(critic: Any) -> Iterator[Pair]:
    """Return the pairs of both critics."""
    for index, network in enumerate(critic.q_networks):
        name = f"q_value_{index}"
        yield from renorm(f"{name}_middleware_batch_renorm_0", network[0], tasks.CRITIC_ROWS)
        yield from dense(f"{name}_middleware_dense_1", network[1], rows=tasks.CRITIC_ROWS)
        yield from renorm(f"{name}_middleware_batch_renorm_2", network[3])
        yield from dense(f"{name}_head", network[4])


def noises() -> Iterator[np.ndarray]:
    """Return distrl's normal variables in the reference's order: next actions first, the policy's where it moves."""
    drawn = tasks.noise()
    for update in itertools.count(1):
        of_policy, following = next(drawn), next(drawn)
        yield following
        if update % PERIOD == 0:
            yield of_policy


class AtOnce(CrossQ):
    """CrossQ whose running moments move as distrl's.

    Those of the policy move with every update, before next actions are drawn; those of the critics after the policy
    has used them.
    """

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        sample = self.replay_buffer.sample
        data = sample(batch_size)
        self.replay_buffer.sample = lambda *_, **__: data
        self._set_momentum(0.01)
        self.actor.set_bn_training_mode(True)
        with torch.no_grad():
            self.actor.get_action_dist_params(data.observations)
        self._set_momentum(0.0)
        self._kept = [moments.clone() for moments in self._moments()]
        super().train(gradient_steps, batch_size)
        self.replay_buffer.sample = sample

    def _set_momentum(self, momentum: float) -> None:
        for module in self.actor.modules():
            if isinstance(module, BatchRenorm1d):
                module.momentum = momentum

    def _moments(self) -> list[torch.Tensor]:
        """Return the critics' running moments."""
        return [moments for name, moments in self.critic.named_buffers() if "ra_" in name]

    def move_together(self) -> None:
        """Let the critics' weights and moments change after the policy's step; see `stable_baselines.move_together`."""

        def due() -> bool:
            return self._n_updates % PERIOD == 0

        move_together(self.critic, self.critic.optimizer, self.actor.optimizer, due)
        step_critic, step_policy = self.critic.optimizer.step, self.actor.optimizer.step

        def exchange() -> None:
            for moments, kept in zip(self._moments(), self._kept, strict=True):
                now = moments.clone()
                moments.copy_(kept)
                kept.copy_(now)

        def first() -> None:
            step_critic()
            if due():
                exchange()

        def second() -> None:
            step_policy()
            exchange()

        self.critic.optimizer.step, self.actor.optimizer.step = first, second


def make_sides(monkeypatch) -> Sides:
    """Make both sides, with equal weights and noise, in the warm-up of the normalisation."""
    set_variance(monkeypatch)
    set_noise(monkeypatch, noises())
    algorithm, networks = tasks.make(
        "crossq", tasks.BOX, activation="relu", critic_layers=[tasks.HIDDEN], policy_every_updates=PERIOD
    )
    theirs = model(
        AtOnce,
        Spaces(observations(tasks.INPUTS), gymnasium.spaces.Box(-1.0, 1.0, (tasks.NUMBERS,), np.float32)),
        learning_rate=tasks.RATE,
        gamma=tasks.GAMMA,
        buffer_size=10,
        policy_delay=PERIOD,
        policy_kwargs={"net_arch": [tasks.HIDDEN], "n_critics": 2},
    )
    policy = Twins(networks["main"].online, list(policy_pairs(theirs.actor)))
    critic = Twins(networks["critic"].online, list(critic_pairs(theirs.critic)))
    for part in (theirs.actor, theirs.critic):
        part.optimizer = Adam(part.parameters(), tasks.RATE, epsilon=tasks.EPSILON)
    theirs.move_together()
    as_the_paper(theirs)
    return Sides(algorithm, networks, theirs, policy, critic)


def test_crossq(monkeypatch):
    """The policy and the temperature move with every third update."""
    sides, name = make_sides(monkeypatch), "sb3-contrib CrossQ.train()"
    sides.train(UPDATES)
    note = f"{LIKE_KERAS}; {TOGETHER}; order of moments; temperature's loss; log π without 1e-6"
    note += "; variance of the population"
    ours, theirs = sides.metrics, sides.logged
    for what, found, expected, allowed in (
        (f"critics' loss of {UPDATES} updates", ours["critic_loss"], theirs["train/critic_loss"], 5e-5),
        ("policy's loss where it moves", ours["policy_loss"][PERIOD - 1 :: PERIOD], theirs["train/actor_loss"], 2e-5),
        (f"temperature after {UPDATES} updates", ours["temperature"], theirs["train/ent_coef"], 1e-6),
    ):
        agree("CrossQ", what, name, found, expected, allowed=allowed, note=note)
    for part, twins, allowed in (("critics", sides.critic, 5e-6), ("policy", sides.policy, 2e-5)):
        what = f"every weight and running moment of the {part} after {UPDATES} updates"
        twins.agree("CrossQ", what, name, allowed=allowed, note=note)
