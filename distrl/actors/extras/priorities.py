"""First priorities of replayed steps, computed by the actor that made them (Horgan et al. 2018, section 3).

The actor has the values of all choices, because it chooses actions by them. So temporal differences under the weights
that acted cost almost nothing, and the replay memory need not give every new item the highest priority.
"""

from dataclasses import replace

import numpy as np

from distrl.actors.acting import Acting, PolicyOutput
from distrl.actors.extras.extra import Extra
from distrl.actors.unroll import restarted
from distrl.config import RunConfig
from distrl.config.algorithms import AlgorithmSection
from distrl.config.algorithms.q_learning import RESCALING
from distrl.config.schedules import Progress
from distrl.environments.vector import EnvironmentStep
from distrl.errors import ConfigError
from distrl.networks.actions.values import choices_made, valued, values_of_choices
from distrl.types import PRIORITIES, Array, BoolArray, FloatArray, Unroll


class FirstPriorities(Extra):
    """Collects the values of an unroll's rows, and adds |n-step temporal difference| of each to the full unroll.

    Raises:
        ConfigError: There are no values, or there is no replay memory.
    """

    def __init__(self, parameters: AlgorithmSection, policy: Acting) -> None:
        replay = parameters.replay_parameters
        if replay is None:
            raise ConfigError(f"algorithm {parameters.name}: priorities are for a replay memory, and it has none")
        self._policy = policy
        self._steps = replay.item.n_step
        self._discount, self._reward_scale = parameters.discount, parameters.reward_scale
        self._rescales = parameters.rescales_values
        self._specs = valued(policy.distributions)
        if not self._specs:
            raise ConfigError(
                f"algorithm {parameters.name}: priorities need values of choices, as of a q head, and no action "
                f"of {', '.join(policy.distributions)} has them"
            )

    def begin(self, config: RunConfig, progress: Progress) -> None:
        self._rows: list[list[FloatArray]] = []

    def add(self, output: PolicyOutput, step: EnvironmentStep) -> None:
        self._rows.append(values_of_choices(output.outputs, self._specs))
        self._newest = output, step

    def close(self, unroll: Unroll) -> Unroll:
        """Return the full unroll with its priorities; the policy is evaluated once more, for the last row."""
        output, step = self._newest
        last = self._policy.step(step.observations, restarted(output.recurrent_state, step.valid))
        rows = [*self._rows, values_of_choices(last.outputs, self._specs)]
        values = [np.stack(choice) for choice in zip(*rows, strict=True)]  # [T+1, B, A_k] of every choice
        made = choices_made(unroll.actions, self._specs)
        best = np.mean([choice.max(axis=-1) for choice in values], axis=0)
        targets = n_step_targets(
            unscaled(best) if self._rescales else best,
            self._reward_scale * unroll.rewards,
            self._discount * (1.0 - unroll.terminated),
            unroll.valid,
            self._steps,
        )
        if self._rescales:
            targets = rescaled(targets)
        chosen = [
            np.take_along_axis(choice[:-1], taken[..., None], axis=-1)[..., 0]
            for choice, taken in zip(values, made, strict=True)
        ]
        errors = np.mean([np.abs(targets - value) for value in chosen], axis=0)
        priorities = np.where(unroll.valid, errors, 0.0).astype(np.float32)
        return replace(unroll, extras={**unroll.extras, PRIORITIES: priorities})


def n_step_targets(values: Array, rewards: Array, discounts: Array, valid: BoolArray, steps: int) -> Array:
    """Compute `returns.n_step` of the learner in NumPy.

    If an episode or the unroll ends before n steps, the return bootstraps there.

    Args:
        values: [T+1, B]. Value of the best choice in every row.
        rewards, discounts: [T, B]. gamma * (1 - terminated).
        valid: bool [T, B].
        steps: n.

    Returns:
        [T, B]; `values` where not valid.
    """
    targets = values[:-1]
    for _ in range(min(steps, len(rewards))):
        following = np.concatenate([targets[1:], values[-1:]])
        targets = np.where(valid, rewards + discounts * following, values[:-1])
    return targets


def rescaled(values: Array) -> Array:
    """Compute `td_targets.rescaled` of the learner in NumPy."""
    return np.sign(values) * (np.sqrt(np.abs(values) + 1.0) - 1.0) + RESCALING * values


def unscaled(values: Array) -> Array:
    """Compute `td_targets.unscaled` of the learner in NumPy."""
    size = np.abs(values)
    inner = 4.0 * RESCALING * (size + 1.0 + RESCALING)
    root = inner / (2.0 * RESCALING * (np.sqrt(1.0 + inner) + 1.0))
    return np.sign(values) * (root * root - 1.0)
