"""Actor-critics from replay on both sides: SAC, TQC, TD3 and DDPG, with equal weights, batches and noise."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.references import tasks
from benchmarks.references.stable_baselines import Adam, Spaces, feed, model, move_together, observations
from benchmarks.references.weights import Pair, Twins, dense
from distrl.algorithms.algorithm import Algorithm, Networks


@dataclass
class Sides:
    """An algorithm of both libraries.

    Attributes:
        theirs: The model of Stable-Baselines3.
        policy, critic: The weights.
        metrics: Name -> distrl's numbers, update by update.
        logged: Name -> the model's numbers, update by update.
    """

    algorithm: Algorithm
    networks: Networks
    theirs: Any
    policy: Twins
    critic: Twins
    metrics: dict[str, list[float]] = field(default_factory=dict)
    logged: dict[str, list[float]] = field(default_factory=dict)

    def train(self, updates: int) -> None:
        """Let both make so many updates on the same batches."""
        batches = [tasks.transitions(seed, tasks.BOX) for seed in range(updates)]
        feed(self.theirs, batches)
        for batch in batches:
            for name, value in self.algorithm.update(self.networks, batch).metrics.items():
                self.metrics.setdefault(name, []).append(float(value))
            self.theirs.train(gradient_steps=1, batch_size=tasks.ROWS)
            for name, value in self.theirs.logger.name_to_value.items():
                self.logged.setdefault(name, []).append(float(value))
            self.theirs.logger.name_to_value.clear()


def pair_up(
    class_: Any,
    name: str,
    *,
    critics: int,
    together: bool = True,
    gradient_scale: float = 1.0,
    settings: dict[str, Any] | None = None,
    policy_kwargs: dict[str, Any] | None = None,
    **sections: Any,
) -> Sides:
    """Make both sides.

    Args:
        class_: Of the model.
        name: Of distrl's algorithm; its section has `sections`.
        together: The reference's policy moves with its critics, as distrl's; else after them.
        gradient_scale: Factor of the critics' gradients in the reference.
        settings: Of the model.
        policy_kwargs: Of the model's policy.
    """
    if name == "tqc":
        sections["critics"] = critics
    algorithm, networks = tasks.make(name, tasks.BOX, activation="relu", target_update_rate=0.05, **sections)
    theirs = model(
        class_,
        Spaces(observations(tasks.INPUTS), gymnasium.spaces.Box(-1.0, 1.0, (tasks.NUMBERS,), np.float32)),
        learning_rate=tasks.RATE,
        gamma=tasks.GAMMA,
        tau=0.05,
        buffer_size=10,
        policy_kwargs={"net_arch": [tasks.HIDDEN], "n_critics": critics} | (policy_kwargs or {}),
        **(settings or {}),
    )
    sides = Sides(
        algorithm,
        networks,
        theirs,
        Twins(networks["main"].online, list(policy_pairs(theirs.actor))),
        Twins(networks["critic"].online, list(critic_pairs(theirs.critic, networks["critic"].online.heads[0].name))),
    )
    theirs.critic_target.load_state_dict(theirs.critic.state_dict())
    if hasattr(theirs, "actor_target"):
        theirs.actor_target.load_state_dict(theirs.actor.state_dict())
    theirs.actor.optimizer = Adam(theirs.actor.parameters(), tasks.RATE, epsilon=tasks.EPSILON)
    theirs.critic.optimizer = Adam(
        theirs.critic.parameters(), tasks.RATE, epsilon=tasks.EPSILON, gradient_scale=gradient_scale
    )
    if together:
        period = getattr(theirs, "policy_delay", 1)
        due = lambda: period == 1 or theirs._n_updates % period == 0  # noqa: E731
        move_together(theirs.critic, theirs.critic.optimizer, theirs.actor.optimizer, due)
    return sides


def policy_pairs(actor: Any) -> Iterator[Pair]:
    """Return the pairs of a policy: a squashed Gaussian's, or a deterministic one's."""
    if hasattr(actor, "latent_pi"):
        yield from dense("middleware_dense_0", actor.latent_pi[0])
        yield from dense("policy_head_action", actor.mu)
        yield from dense("policy_head_action_log_sigma", actor.log_std)
    else:
        yield from dense("middleware_dense_0", actor.mu[0])
        yield from dense("deterministic_policy_head", actor.mu[2])


def critic_pairs(critic: Any, name: str) -> Iterator[Pair]:
    """Return the pairs of all critics.

    Args:
        name: Of the first critic's head.
    """
    stem = name.removesuffix("_0")
    networks = critic.q_networks
    for index, network in enumerate(networks):
        prefix = stem if len(networks) == 1 else f"{stem}_{index}"
        trunk = "" if len(networks) == 1 else f"{prefix}_"
        yield from dense(f"{trunk}middleware_dense_0", network[0], rows=tasks.CRITIC_ROWS)
        yield from dense(f"{prefix}_head", network[2])


def as_the_paper(theirs: Any) -> None:
    """Let the temperature's loss be -alpha (log pi + target), and log pi be exact, without 1e-6 inside a logarithm."""
    theirs.actor.action_dist.epsilon = 0.0
    theirs.log_ent_coef.register_hook(lambda gradient: gradient * torch.exp(theirs.log_ent_coef.detach()))
