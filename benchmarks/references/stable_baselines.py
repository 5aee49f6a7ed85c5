"""Stable-Baselines3 on given data: models without training of their own, batches, noise, and distrl's conventions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from distrl.types import Batch

LIKE_KERAS = "Adam's epsilon"
"""Note of the table for `Adam`; docs/references.md explains it."""
TOGETHER = "order of steps"
"""Note of the table for `move_together`."""


class Spaces(gymnasium.Env[Any, Any]):
    """An environment of given spaces that is never stepped."""

    def __init__(self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def observations(size: int) -> gymnasium.spaces.Box:
    """Return the space of vectors of this size."""
    return gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)


def model(class_: Any, environment: gymnasium.Env[Any, Any], policy: str = "MlpPolicy", **arguments: Any) -> Any:
    """Return a model whose `train` can be called."""
    made = class_(policy, environment, device="cpu", seed=0, **arguments)
    made.set_logger(Logger(folder=None, output_formats=[]))
    return made


class Adam(torch.optim.Adam):
    """PyTorch's Adam with Keras' epsilon: PyTorch adds it to sqrt(v / (1 - beta2^t)), Keras to sqrt(v).

    Args:
        gradient_scale: Factor of all gradients, for a loss that the reference weighs otherwise.
    """

    def __init__(
        self, parameters: Any, lr: float = 1e-3, *, epsilon: float, beta2: float = 0.999, gradient_scale: float = 1.0
    ) -> None:
        super().__init__(parameters, lr=lr, betas=(0.9, beta2), eps=epsilon)
        self._epsilon, self._beta2, self._scale, self._count = epsilon, beta2, gradient_scale, 0

    def step(self, closure: Any = None) -> Any:
        self._count += 1
        for group in self.param_groups:
            group["eps"] = self._epsilon / np.sqrt(1.0 - self._beta2**self._count)
            if self._scale != 1.0:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(self._scale)
        return super().step(closure)


def move_together(critic: Any, critic_optimizer: Any, policy_optimizer: Any, policy_is_due: Callable[[], bool]) -> None:
    """Let the critics' step come after the policy's, which sees the critics as they were: distrl moves both at once.

    Args:
        policy_is_due: Whether the policy moves in this update.
    """
    step_critic, step_policy = critic_optimizer.step, policy_optimizer.step
    after: list[torch.Tensor] = []
    tensors = [*critic.parameters()]

    def first(closure: Any = None) -> None:
        before = [tensor.detach().clone() for tensor in tensors]
        step_critic()
        if policy_is_due():
            after[:] = [tensor.detach().clone() for tensor in tensors]
            put(before)

    def second(closure: Any = None) -> None:
        step_policy()
        put(after)

    def put(values: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)

    critic_optimizer.step, policy_optimizer.step = first, second


def feed(made: Any, batches: Sequence[Batch]) -> None:
    """Let the model sample these batches of transitions, in order; actions are within -1 and 1, or choices."""
    samples = iter([samples_of(batch) for batch in batches])
    made.replay_buffer.sample = lambda *_, **__: next(samples)


def samples_of(batch: Batch) -> ReplayBufferSamples:
    """Return a batch of transitions, T = 1, as Stable-Baselines3 has it."""
    actions = batch.actions["action"][0]
    steps = np.ones_like(batch.rewards[0]) if batch.bootstrap_steps is None else batch.bootstrap_steps[0]
    assert (steps == 1).all()
    before, after = batch.observations["observation"]
    columns = [rows.astype(np.float32).reshape(-1, 1) for rows in (batch.terminated[0], batch.rewards[0])]
    return ReplayBufferSamples(
        torch.from_numpy(before),
        torch.from_numpy(actions.reshape(len(before), -1)),
        torch.from_numpy(after),
        *map(torch.from_numpy, columns),
    )


def set_noise(monkeypatch: Any, noises: Iterator[np.ndarray]) -> None:
    """Let normal variables of PyTorch's distributions, and those of TD3's target, be these."""

    def standard_normal(shape: Any, dtype: Any, device: Any) -> torch.Tensor:
        given = next(noises)
        assert tuple(given.shape) == tuple(shape)
        return torch.from_numpy(given)

    def normal_(self: torch.Tensor, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        return self.copy_(mean + std * torch.from_numpy(next(noises)))

    monkeypatch.setattr("torch.distributions.normal._standard_normal", standard_normal)
    monkeypatch.setattr(torch.Tensor, "normal_", normal_)
