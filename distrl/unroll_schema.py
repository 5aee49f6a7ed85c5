"""The schema of a run's unrolls: names, dtypes and shapes of their arrays, and the bounds that follow from these."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from distrl.types import (
    ATTRIBUTES,
    CHOICE_PROBABILITIES,
    EPISODE_FIELDS,
    EPISODE_METRICS,
    GROUPS,
    MOMENTS,
    PRIORITIES,
    STEP_FIELDS,
    ActionSpec,
    ArraySpec,
    DiscreteSpec,
    EnvSpec,
    Form,
    MultiBinarySpec,
    MultiDiscreteSpec,
    StepField,
)

_MOST_TEXT_BYTES = 256
"""Bound on the bytes that describe an encoded array beside its name: at most 32 axes of 5 bytes, and 5 keys."""


@dataclass(frozen=True)
class UnrollSchema:
    """Names, dtypes and shapes of every unroll of a run.

    Attributes:
        unroll_length_steps: T.
        environments: B, the environments of one actor.
        observations: name -> (dtype, shape [T+1, B, ...], or [T+n, B, *one frame] for stacks of n frames).
        frames: name -> n; observations of one frame are not in it.
        actions: name -> (dtype, shape [T, B, ...]).
        highest_choices: name -> highest number of each choice, counted from 0. Actions that are real numbers are not in
            it: they need only be finite.
        steps: name -> (dtype, shape [T, B, ...]) of `STEP_FIELDS`, and of `PRIORITIES` and `CHOICE_PROBABILITIES` where
            unrolls carry them.
        recurrent_state: name -> (dtype, shape [S, B, ...]); empty for feed-forward policies.
        reward_moments: `MOMENTS`; empty where rewards are not normalised.
        metrics: M, the number of `environment.metrics`.
    """

    unroll_length_steps: int
    environments: int
    observations: Mapping[str, Form]
    frames: Mapping[str, int]
    actions: Mapping[str, Form]
    highest_choices: Mapping[str, tuple[int, ...]]
    steps: Mapping[str, Form]
    recurrent_state: Mapping[str, Form]
    reward_moments: Mapping[str, Form]
    metrics: int = 0

    @property
    def tells_priorities(self) -> bool:
        """Whether unrolls carry first priorities for the replay memory; otherwise they must not."""
        return PRIORITIES.name in self.steps

    @cached_property
    def extras(self) -> tuple[str, ...]:
        """Names of the `extras` of unrolls and batches."""
        return tuple(name for name in self.steps if name not in ATTRIBUTES and name != PRIORITIES.name)

    @cached_property
    def fields(self) -> frozenset[str]:
        """Names of the parts of an encoded unroll: groups of arrays, and single arrays."""
        metrics = (EPISODE_METRICS,) if self.metrics else ()
        return frozenset({*GROUPS, *self.steps, *EPISODE_FIELDS, *metrics})

    @cached_property
    def max_arrays(self) -> int:
        """Bound on the names in an unroll."""
        groups = (self.observations, self.actions, self.recurrent_state, self.reward_moments)
        return sum(map(len, groups)) + len(self.fields)

    @cached_property
    def most_bytes(self) -> int:
        """Bound on the bytes of an encoded unroll, in which an episode may end at every step."""
        episodes = self.unroll_length_steps * self.environments
        ends: dict[str, Form] = {name: (dtype, (episodes,)) for name, dtype in EPISODE_FIELDS.items()}
        if self.metrics:
            ends[EPISODE_METRICS] = (np.dtype("float32"), (episodes, self.metrics))
        groups = (self.observations, self.actions, self.steps, self.recurrent_state, self.reward_moments, ends)
        names = [*self.fields, *(name for group in groups for name in group)]
        return sum(map(bytes_of, groups)) + sum(_MOST_TEXT_BYTES + len(name.encode()) for name in names)

    @property
    def least_bytes(self) -> int:
        """Bytes of one unroll's arrays without recurrent state and finished episodes."""
        return sum(map(bytes_of, (self.observations, self.actions, self.steps)))

    @staticmethod
    def of(
        spec: EnvSpec,
        unroll_length_steps: int,
        environments: int,
        recurrent_state: Mapping[str, ArraySpec],
        *,
        normalizes_rewards: bool = False,
        tells_priorities: bool = False,
        tells_choice_probabilities: bool = False,
        states: int = 1,
        metrics: int = 0,
    ) -> "UnrollSchema":
        """The schema of a run: T = `unroll_length_steps`, B = `environments`, arrays of `spec` and the policy.

        Args:
            states: S.
            metrics: M.
        """
        shape = (unroll_length_steps, environments)
        actions = {name: action.array for name, action in spec.actions.items()}
        highest = {name: _highest_choices(action) for name, action in spec.actions.items()}
        steps = [*STEP_FIELDS, PRIORITIES] if tells_priorities else [*STEP_FIELDS]
        if tells_choice_probabilities:
            (action,) = spec.actions.values()
            assert isinstance(action, DiscreteSpec)  # as `AlgorithmSection.check_actions` says
            steps.append(StepField(CHOICE_PROBABILITIES, shape=(action.n,), least=0.0))
        return UnrollSchema(
            unroll_length_steps=unroll_length_steps,
            environments=environments,
            observations={
                name: (np.dtype(array.dtype), (unroll_length_steps + array.frames, environments, *array.frame_shape))
                for name, array in spec.observations.items()
            },
            frames=spec.frames,
            actions=_forms(actions, shape),
            highest_choices={name: numbers for name, numbers in highest.items() if numbers},
            steps={entry.name: (np.dtype(entry.dtype), (*shape, *entry.shape)) for entry in steps},
            recurrent_state=_forms(recurrent_state, (states, environments)),
            reward_moments=MOMENTS if normalizes_rewards else {},
            metrics=metrics,
        )


def bytes_of(forms: Mapping[str, Form]) -> int:
    """Bytes of arrays of these dtypes and shapes."""
    return sum(dtype.itemsize * math.prod(shape) for dtype, shape in forms.values())


def _forms(specs: Mapping[str, ArraySpec], leading: tuple[int, ...]) -> dict[str, Form]:
    return {name: (np.dtype(spec.dtype), (*leading, *spec.shape)) for name, spec in specs.items()}


def _highest_choices(action: ActionSpec) -> tuple[int, ...]:
    """Highest number of each choice, counted from 0; empty for real numbers."""
    if isinstance(action, DiscreteSpec):
        return (action.n - 1,)
    if isinstance(action, MultiDiscreteSpec):
        return tuple(n - 1 for n in action.choices)
    return (1,) if isinstance(action, MultiBinarySpec) else ()
