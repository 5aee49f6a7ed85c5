"""Settings of Stable-Baselines3's algorithms in distrl's terms, as docs/stable_baselines.md converts them.

Steps and updates alternate in one process, as they do there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Sets = Mapping[str, Any]
"""Dotted path of a setting -> its value."""


def network(layers: Sequence[int], activation: str, initial: str, learning_rate: float, epsilon: float) -> Sets:
    """Return settings of a network that Adam trains with PyTorch's beta2."""
    return {
        "network.initial_weights": initial,
        "network.middleware_parameters.scheme": [*layers],
        "network.middleware_parameters.activation": activation,
        "network.learning_rate": learning_rate,
        "network.optimizer_epsilon": epsilon,
        "network.adam_optimizer_beta2": 0.999,
    }


def _vector(n_envs: int, n_steps: int, gamma: float, gae_lambda: float, normalize: bool) -> Sets:
    """Return settings of every policy gradient; by `normalize`, those of observations and rewards."""
    sets = {
        "algorithm.discount": gamma,
        "algorithm.gae_lambda": gae_lambda,
        "actors.environments": n_envs,
        "actors.unroll_length_steps": n_steps,
        "learner.batch_size": 1,
        "network.use_separate_networks_per_head": True,
    }
    if normalize:
        sets["network.input_embedders_parameters.observation.normalize"] = True
        sets["algorithm.reward_normalization.clip"] = 10.0
    return sets


def ppo(
    *,
    n_envs: int,
    n_steps: int,
    n_epochs: int,
    gamma: float,
    gae_lambda: float,
    batch_size: int = 64,
    clip_range: float = 0.2,
    ent_coef: float = 0.0,
    vf_coef: float = 0.5,
    max_grad_norm: float = 0.5,
    learning_rate: float = 3e-4,
    linear_updates: int | None = None,
    normalize: bool = False,
    wide: bool = False,
) -> Sets:
    """Convert settings of `PPO`, with SB3's other defaults.

    Args:
        linear_updates: Optimizer steps in which the learning rate falls to 0, all of the training; None: it stays.
        wide: RL Zoo's `policy_kwargs` for MuJoCo: two rectified layers of 256 that begin as PyTorch's do
            (ortho_init=False), and actions that begin with a deviation of exp(-2).
    """
    minibatches = n_envs * n_steps // batch_size
    shape = ((256, 256), "relu", "uniform") if wide else ((64, 64), "tanh", "orthogonal")
    sets = {
        "algorithm.name": "ppo",
        **_vector(n_envs, n_steps, gamma, gae_lambda, normalize),
        **network(*shape, learning_rate, 1e-5),
        "algorithm.epochs": n_epochs,
        "algorithm.minibatches": minibatches,
        "algorithm.clip_range": clip_range,
        "algorithm.entropy_weight": ent_coef,
        "algorithm.value_loss_weight": 2.0 * vf_coef,
        "network.clip_gradients": max_grad_norm,
    }
    if wide:
        sets["network.heads_parameters"] = [{"kind": "ppo", "initial_log_sigma": -2.0}, {"kind": "value"}]
    if linear_updates is not None:
        sets["network.learning_rate_schedule"] = "linear"
        sets["network.learning_rate_schedule_updates"] = linear_updates
        sets["network.learning_rate_final"] = 0.0
    return sets


def trpo(
    *,
    n_steps: int,
    n_critic_updates: int = 10,
    batch_size: int = 128,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
    cg_damping: float = 0.1,
    normalize: bool = False,
) -> Sets:
    """Convert settings of sb3-contrib's `TRPO` with two environments, with its other defaults."""
    return {
        "algorithm.name": "trpo",
        **_vector(2, n_steps, gamma, gae_lambda, normalize),
        **network((64, 64), "tanh", "orthogonal", 1e-3, 1e-5),
        "algorithm.max_kl": 0.01,
        "algorithm.damping": cg_damping,
        "algorithm.conjugate_gradient_iterations": 15,
        "algorithm.accept_ratio": 0.0,
        "algorithm.value_epochs": n_critic_updates,
        "algorithm.value_minibatches": 2 * n_steps // batch_size,
    }


def replay(buffer_size: int, batch_size: int, starts: int, ratio: float, train_freq: int) -> Sets:
    """Return settings of every replay memory; `ratio`: updates for each step."""
    # SB3 first learns after the first round of `train_freq` steps that ends beyond `starts`. With the end of the round
    # before it as the least size, the updates of one whole round are due then. A size of 0 is not allowed: with
    # `starts` 0 this learns one round later.
    return {
        "algorithm.replay.capacity_steps": buffer_size,
        "algorithm.replay.min_size_steps": max(starts // train_freq, 1) * train_freq,
        "algorithm.replay.samples_per_insert": batch_size * ratio,
        "exploration.random_steps": starts,
        "actors.environments": 1,
        "actors.unroll_length_steps": train_freq,
        "learner.batch_size": batch_size,
    }


def dqn(
    *,
    batch_size: int,
    buffer_size: int,
    learning_starts: int,
    target_update_interval: int,
    train_freq: int,
    gradient_steps: int,
    exploration_steps: int,
    exploration_final_eps: float,
    learning_rate: float,
    gamma: float = 0.99,
    n_quantiles: int | None = None,
) -> Sets:
    """Convert settings of `DQN`, or with `n_quantiles` of sb3-contrib's `QRDQN`, with two layers of 256 units.

    Args:
        exploration_steps: `exploration_fraction` of all steps.
    """
    ratio = gradient_steps / train_freq
    own: Sets = (
        {"algorithm.name": "dqn", "network.replace_mse_with_huber_loss": True, "network.clip_gradients": 10.0}
        if n_quantiles is None
        else {
            "algorithm.name": "qrdqn",
            "network.heads_parameters": [{"kind": "quantile_q", "quantiles": n_quantiles}],
        }
    )
    return {
        **own,
        **network((256, 256), "relu", "uniform", learning_rate, 1e-8 if n_quantiles is None else 0.01 / batch_size),
        **replay(buffer_size, batch_size, learning_starts, ratio, train_freq),
        "algorithm.discount": gamma,
        # SB3 copies while it collects, so between two rounds of updates.
        "algorithm.target_update_every_updates": max(round(target_update_interval / train_freq), 1) * gradient_steps,
        "exploration.kind": "epsilon_greedy",
        "exploration.epsilon": {
            "kind": "linear",
            "start": 1.0,
            "end": exploration_final_eps,
            "steps": exploration_steps,
        },
    }
