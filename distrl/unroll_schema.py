"""The schema of a run's unrolls: names, dtypes and shapes of their arrays, and the bounds that follow from these."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from distrl.errors import ConfigError
from distrl.types import (
    ATTRIBUTES,
    CHOICE_PROBABILITIES,
    EPISODE_FIELDS,
    EPISODE_METRICS,
    EXTRAS,
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
)

_MOST_TEXT_BYTES = 256
"""Bound on the bytes that describe an encoded array beside its name: at most 32 axes of 5 bytes, and 5 keys."""


class StepExtra(NamedTuple):
    """An array that unrolls carry for every step, [T, B, *shape], where the algorithm asks for it.

    Attributes:
        name: Name by which `AlgorithmSection.unroll_extras` asks for it; its key in `extras` of unrolls and batches.
        collector: package.module:Class of the actor's `Extra` that makes it. Actors alone import it.
        shape: Returns the shape of one environment's value.
        least: Lowest valid value. NaN and infinity are never valid.
        in_batches: Whether batches have it; otherwise only the replay memory reads it, when it stores the unroll.
    """

    name: str
    collector: str
    shape: Callable[[EnvSpec], tuple[int, ...]] = lambda _spec: ()
    dtype: str = "float32"
    least: float | None = None
    in_batches: bool = True


def _choices(spec: EnvSpec) -> tuple[int, ...]:
    (action,) = spec.actions.values()
    assert isinstance(action, DiscreteSpec)  # as `AlgorithmSection.check_actions` says
    return (action.n,)


STEP_EXTRAS = (
    StepExtra(
        CHOICE_PROBABILITIES,
        "distrl.actors.extras.choice_probabilities:ChoiceProbabilities",
        shape=_choices,
        least=0.0,
    ),
    StepExtra(PRIORITIES, "distrl.actors.extras.priorities:FirstPriorities", least=0.0, in_batches=False),
)
"""All that algorithms can ask for, in the order in which it travels. Actors, codec, batches and the replay memory loop
over it: a further one is a line here and a module in `actors/extras/`."""
LEAST = {entry.name: entry.least for entry in (*STEP_FIELDS, *STEP_EXTRAS) if entry.least is not None}
"""Name of an array of steps -> its lowest valid value."""
BATCH_EXTRAS = (*EXTRAS, *(extra.name for extra in STEP_EXTRAS if extra.in_batches))
"""Names of the extras of unrolls that batches have."""


def step_extras(names: Iterable[str]) -> tuple[StepExtra, ...]:
    """Return the extras of these names, in the order of `STEP_EXTRAS`.

    Raises:
        ConfigError: There is none of that name.
    """
    wanted = {*names}
    if unknown := sorted(wanted.difference(extra.name for extra in STEP_EXTRAS)):
        known = ", ".join(extra.name for extra in STEP_EXTRAS)
        raise ConfigError(f"unroll_extras: {unknown[0]!r} is none of {known}")
    return tuple(extra for extra in STEP_EXTRAS if extra.name in wanted)


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
        steps: name -> (dtype, shape [T, B, ...]) of `STEP_FIELDS`, and of those of `STEP_EXTRAS` that unrolls carry.
        recurrent_state: name -> (dtype, shape [S, B, ...]); empty for feed-forward policies.
        reward_moments: `MOMENTS`; empty where rewards are not normalised.
        episodes: name -> (dtype, shape of one episode's value), as of `episode_forms`.
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
    episodes: Mapping[str, Form]

    @cached_property
    def extras(self) -> tuple[str, ...]:
        """Names of the `extras` of unrolls."""
        return tuple(name for name in (*self.steps, *self.episodes) if name not in (*ATTRIBUTES, *EPISODE_FIELDS))

    @cached_property
    def sampled(self) -> dict[str, Form]:
        """Those of `steps` that batches have, also those of a replay memory."""
        return {name: form for name, form in self.steps.items() if name in (*ATTRIBUTES, *BATCH_EXTRAS)}

    @cached_property
    def batch_extras(self) -> tuple[str, ...]:
        """Names of the `extras` of batches."""
        return tuple(name for name in self.sampled if name not in ATTRIBUTES)

    @cached_property
    def fields(self) -> frozenset[str]:
        """Names of the parts of an encoded unroll: groups of arrays, and single arrays."""
        return frozenset({*GROUPS, *self.steps, *self.episodes})

    @cached_property
    def max_arrays(self) -> int:
        """Bound on the names in an unroll."""
        groups = (self.observations, self.actions, self.recurrent_state, self.reward_moments)
        return sum(map(len, groups)) + len(self.fields)

    @cached_property
    def most_bytes(self) -> int:
        """Bound on the bytes of an encoded unroll, in which an episode may end at every step."""
        most = self.unroll_length_steps * self.environments
        ends = {name: (dtype, (most, *shape)) for name, (dtype, shape) in self.episodes.items()}
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
        extras: Iterable[str] = (),
        states: int = 1,
        metrics: int = 0,
    ) -> "UnrollSchema":
        """The schema of a run: T = `unroll_length_steps`, B = `environments`, arrays of `spec` and the policy.

        Args:
            extras: Names of those of `STEP_EXTRAS` that unrolls carry.
            states: S.
            metrics: M of `EPISODE_METRICS`.

        Raises:
            ConfigError: See `step_extras`.
        """
        shape = (unroll_length_steps, environments)
        actions = {name: action.array for name, action in spec.actions.items()}
        highest = {name: _highest_choices(action) for name, action in spec.actions.items()}
        steps = {entry.name: (entry.dtype, entry.shape) for entry in STEP_FIELDS}
        steps |= {extra.name: (extra.dtype, extra.shape(spec)) for extra in step_extras(extras)}
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
            steps={name: (np.dtype(dtype), (*shape, *own)) for name, (dtype, own) in steps.items()},
            recurrent_state=_forms(recurrent_state, (states, environments)),
            reward_moments=MOMENTS if normalizes_rewards else {},
            episodes=episode_forms(metrics),
        )


def episode_forms(metrics: int) -> dict[str, Form]:
    """Return dtype and shape of one episode's values by name.

    Args:
        metrics: M of `EPISODE_METRICS`; 0 if there are none.
    """
    forms: dict[str, Form] = {name: (dtype, ()) for name, dtype in EPISODE_FIELDS.items()}
    return forms | ({EPISODE_METRICS: (np.dtype("float32"), (metrics,))} if metrics else {})


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
