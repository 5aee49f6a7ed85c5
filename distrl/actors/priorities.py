"""First priorities of replayed steps, by the actor that made them (Horgan et al. 2018, section 3).

Values of all choices are there already, as actions are chosen by them. So what a step's temporal difference was under
the weights that acted costs next to nothing, and the replay memory need not prefer whatever is new.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from distrl.config.algorithms import AlgorithmSection
from distrl.errors import ConfigError
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.values import choices_made, valued, values_of_choices
from distrl.types import Array, BoolArray, FloatArray, Unroll


class FirstPriorities:
    """Keeps the values of an unroll's rows, and tells |n-step temporal difference| of each when it is full.

    Args:
        parameters: The algorithm's: discount, scale of rewards, and n.
        distributions: Action -> where the values of its choices are; nothing else is looked at.

    Raises:
        ConfigError: There are no values, or there is no replay memory.
    """

    def __init__(self, parameters: AlgorithmSection, distributions: Mapping[str, FamilySpec]) -> None:
        replay = parameters.replay_parameters
        if replay is None:
            raise ConfigError(f"algorithm {parameters.name}: tells_priorities is for a replay memory, and it has none")
        self._steps = replay.n_step
        self._discount, self._reward_scale = parameters.discount, parameters.reward_scale
        self._specs = valued(distributions)
        if not self._specs:
            raise ConfigError(
                f"algorithm {parameters.name}: tells_priorities needs values of choices, as of a q head, and no action "
                f"of {', '.join(distributions)} has them"
            )
        self.begin()

    def begin(self) -> None:
        """Forgets the rows of an unroll that is abandoned."""
        self._rows: list[list[FloatArray]] = []

    def add(self, outputs: Mapping[str, FloatArray]) -> None:
        """One row's outputs of the policy, by name, [B, P]."""
        self._rows.append(values_of_choices(outputs, self._specs))

    def told(self, unroll: Unroll, last: Mapping[str, FloatArray]) -> Unroll:
        """The full unroll with its priorities; the next one begins.

        Args:
            unroll: Of T steps, each of which was added.
            last: Outputs for its last observations, from which no action has been taken yet.
        """
        self.add(last)
        values = [np.stack(rows) for rows in zip(*self._rows, strict=True)]  # [T+1, B, A_k] of every choice
        self.begin()
        made = choices_made(unroll.actions, self._specs)
        targets = n_step_targets(
            np.mean([choice.max(axis=-1) for choice in values], axis=0),
            self._reward_scale * unroll.rewards,
            self._discount * (1.0 - unroll.terminated),
            unroll.valid,
            self._steps,
        )
        chosen = [
            np.take_along_axis(choice[:-1], taken[..., None], axis=-1)[..., 0]
            for choice, taken in zip(values, made, strict=True)
        ]
        errors = np.mean([np.abs(targets - value) for value in chosen], axis=0)
        return replace(unroll, priorities=np.where(unroll.valid, errors, 0.0).astype(np.float32))


def n_step_targets(values: Array, rewards: Array, discounts: Array, valid: BoolArray, steps: int) -> Array:
    """The learner's `returns.n_step`, of which this is the twin in NumPy.

    Fewer than n steps where an episode ends before, or the unroll: the bootstrap is from there.

    Args:
        values: [T+1, B]. What the best choice is worth in every row.
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
