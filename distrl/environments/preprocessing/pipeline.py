"""Steps in order, for an environment's spaces first and then for its observations, rewards and actions.

Every kind of vector returns batches, name -> [B, ...], so that one list of steps serves them all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from distrl.config.action_masks import mask_of
from distrl.config.preprocessing import (
    REWARD,
    ActionStep,
    ClipStep,
    ConcatStep,
    EwmaBaselineStep,
    MapDiscreteStep,
    OneHotStep,
    PreprocessingStep,
    ScaleStep,
    StackStep,
    steps_from_json,
    steps_to_json,
)
from distrl.environments.preprocessing import action, image, numeric, shaping
from distrl.environments.preprocessing.fit import Fitted, Function, UnfitError, is_whole
from distrl.environments.preprocessing.reward import EwmaBaseline, RewardFunction
from distrl.errors import ConfigError
from distrl.frames import FrameStack
from distrl.types import ActionSpec, Array, ArraySpec, BoolArray, EnvSpec, FloatArray, Unprocessed

Observations = dict[str, Array]

FITS: Mapping[str, Callable[[Any, ArraySpec], Fitted]] = {
    "crop": image.crop,
    "resize": image.resize,
    "grayscale": image.grayscale,
    "binary": image.binary,
    "clip": numeric.clip,
    "scale": numeric.scale,
    "to_dtype": numeric.to_dtype,
    "to_uint8": numeric.to_uint8,
    "center": numeric.center,
    "normalize": numeric.normalize,
    "standardize": numeric.standardize,
    "one_hot": numeric.one_hot,
    "slice": shaping.cut,
    "move_axis": shaping.move_axis,
    "transpose": shaping.transpose,
    "squeeze": shaping.squeeze,
    "reshape": shaping.reshape,
    "flatten": shaping.flatten,
    "select": shaping.select,
}
"""Steps for single observations, by name; stacks have a state, and are made apart."""
_ONE_REWARD = ArraySpec((), "float32")


class Pipeline:
    """Everything between an environment and its policy.

    Attributes:
        spec: The spec that the policy sees.
        raw: The environment's own spec.
        trace: Observations by name after each step, by the step's name; first of all, the environment's own.
        narrowed: Names of observations that leave it narrower than its steps do.

    Args:
        steps: In order. Steps for observations and rewards are taken on the way to the policy; those for actions on the
            way back, the last one first.
        raw: The environment's own spec.
        narrow: Real numbers of more than 32 bits leave it as float32, to which a network converts them anyway: half
            the bytes in every hop from here on. A number beyond float32 becomes infinite.
        turning: How many of the first steps are those of `layout.turning`, and not the user's.

    Raises:
        ConfigError: A step does not fit; the message names its place in the list, and the reason.
    """

    def __init__(
        self, steps: Sequence[PreprocessingStep], raw: EnvSpec, *, narrow: bool = False, turning: int = 0
    ) -> None:
        self.raw = raw
        self.trace: list[tuple[str, dict[str, ArraySpec]]] = [("environment", dict(raw.observations))]
        self._arrays: dict[str, ArraySpec] = dict(raw.observations)
        self._action_specs: dict[str, ActionSpec] = dict(raw.actions)
        self._on_observations: list[Callable[[Observations, BoolArray], Observations]] = []
        self._on_rewards: list[RewardFunction] = []
        self._on_actions: list[tuple[str, Function]] = []
        self._memories: list[FrameStack | EwmaBaseline] = []
        for index, step in enumerate(steps, start=-turning):
            try:
                self._add(step)
            except UnfitError as error:
                place = f"environment.preprocessing[{index}] ({step.step})"
                raise ConfigError(f"environment {raw.id}: {place} does not fit {error}") from error
            self.trace.append((step.step, dict(self._arrays)))
        self.narrowed = frozenset(name for name, spec in self._arrays.items() if narrow and _is_wide(spec))
        for name in self.narrowed:
            self._arrays[name] = replace(self._arrays[name], dtype="float32")
        self._dtypes = {name: np.dtype(spec.dtype) for name, spec in self._arrays.items()}
        self.spec = raw
        if steps or self.narrowed:
            unprocessed = Unprocessed(raw.observations, raw.actions, steps_to_json(tuple(steps))) if steps else None
            self.spec = replace(raw, observations=self._arrays, actions=self._action_specs, unprocessed=unprocessed)

    @staticmethod
    def of(spec: EnvSpec) -> "Pipeline":
        """Return the pipeline that made this spec, for example a policy's: `Pipeline.of(policy.spec)`."""
        before = spec.unprocessed
        if before is None:
            return Pipeline((), spec)
        narrow = not any(map(_is_wide, spec.observations.values()))
        try:
            steps = steps_from_json(before.steps)
        except ValidationError as error:
            first = error.errors()[0]
            where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
            raise ConfigError(f"environment {spec.id}: preprocessing{where} is not valid: {first['msg']}") from error
        raw = replace(spec, observations=before.observations, actions=before.actions, unprocessed=None)
        return Pipeline(steps, raw, narrow=narrow)

    def reset(self) -> None:
        """Forget all observations: the next ones are an episode's first in every row."""
        for memory in self._memories:
            memory.reset()

    def observations(self, raw: Mapping[str, Array], valid: BoolArray) -> Observations:
        """Return the policy's observations.

        Args:
            raw: name -> [B, ...], the environment's own.
            valid: bool [B]. As in `Step`: False where these are the first of an episode. All are, after `reset`.
        """
        arrays = dict(raw)
        for change in self._on_observations:
            arrays = change(arrays, valid)
        return {name: np.ascontiguousarray(array, self._dtypes[name]) for name, array in arrays.items()}

    def rewards(self, raw: FloatArray, valid: BoolArray) -> FloatArray:
        """Return the rewards to learn from: float32 [B]; 0 where not valid."""
        rewards = raw
        for change in self._on_rewards:
            rewards = change(rewards, valid)
        return np.where(valid, rewards, np.float32(0.0)) if self._on_rewards else raw

    def actions(self, chosen: Mapping[str, Array]) -> dict[str, Array]:
        """The environment's actions for the policy's, both name -> [B, ...] as `ActionSpec.array` of the raw spec and
        of `spec`."""
        actions = dict(chosen)
        for name, change in reversed(self._on_actions):
            actions[name] = change(actions[name])
        return actions

    def _add(self, step: PreprocessingStep) -> None:
        if isinstance(step, ActionStep):
            self._add_action(step)
        elif isinstance(step, EwmaBaselineStep):
            baseline = EwmaBaseline(step)
            self._memories.append(baseline)
            self._on_rewards.append(baseline)
        elif isinstance(step, ClipStep | ScaleStep) and step.of == REWARD:
            self._add_reward(step)
        elif isinstance(step, ConcatStep):
            self._add_concat(step)
        else:
            for name in _targets(step.of, self._arrays, "observation"):
                self._add_array(step, name)

    def _add_reward(self, step: ClipStep | ScaleStep) -> None:
        if REWARD in self.raw.observations:
            raise UnfitError(f"its target: '{REWARD}' is the reward, and an observation has that name, too")
        with _about("rewards, float32"):
            apply = FITS[step.step](step, _ONE_REWARD).apply
        self._on_rewards.append(lambda rewards, valid: apply(rewards))

    def _add_array(self, step: Any, name: str) -> None:
        """Add one of the steps for single observations."""
        given = self._arrays[name]
        with _about(f"observation '{name}', {given.dtype} {given.shape}"):
            if given.frames > 1:
                raise UnfitError(self._stacked_by(name))
            if isinstance(step, StackStep):
                self._add_stack(step, name)
                return
            if not isinstance(step, OneHotStep):
                shaping.check_quantities(given)
            fitted, apply = FITS[step.step](step, given)
            self._arrays[name] = _tokens_or_numbers(fitted)
        self._on_observations.append(lambda arrays, valid: {**arrays, name: apply(arrays[name])})

    def _add_stack(self, step: StackStep, name: str) -> None:
        frame_shape, stack = shaping.frame_shape(self._arrays[name]), FrameStack(step.frames)
        self._arrays[name] = shaping.stacked(step, self._arrays[name])
        self._memories.append(stack)

        def push(arrays: Observations, valid: BoolArray) -> Observations:
            newest = arrays[name].reshape(len(valid), *frame_shape)
            return {**arrays, name: stack.push(newest, ~valid)}

        self._on_observations.append(push)

    def _stacked_by(self, name: str) -> str:
        """Return the reason why no step may follow a stack, and the remedy."""
        given = self.raw.observations.get(name)
        if given is not None and given.frames > 1:
            return "the environment stacks its frames; set environment.atari.stack: 1 and put a stack step last"
        return f"'{name}' is a stack of frames; stack is the last step of its observation"

    def _add_concat(self, step: ConcatStep) -> None:
        names = tuple(self._arrays) if step.of is None else step.of
        for name in names:
            _targets(name, self._arrays, "observation")
        with _about(f"observations {', '.join(names)}"):
            if len(set(names)) < len(names):
                raise UnfitError("one is there twice")
            stacks = [name for name in names if self._arrays[name].frames > 1]
            if stacks:
                raise UnfitError(self._stacked_by(stacks[0]))
            if step.to in self._arrays.keys() - set(names):
                raise UnfitError(f"there is another observation '{step.to}'")
            for name in names:
                shaping.check_quantities(self._arrays[name], f"'{name}'")
            spec = shaping.joined(step, [self._arrays[name] for name in names])

        def put(tree: dict[str, Any], whole: Any) -> dict[str, Any]:
            """The whole in the place of the first of its parts."""
            kept = {names[0], *(tree.keys() - set(names))}
            renamed = {step.to if name == names[0] else name: tree[name] for name in tree if name in kept}
            return {**renamed, step.to: whole}

        self._arrays = put(self._arrays, spec)
        self._on_observations.append(
            lambda arrays, valid: put(arrays, shaping.join([arrays[name] for name in names], step.axis))
        )

    def _add_action(self, step: ActionStep) -> None:
        if isinstance(step, MapDiscreteStep):
            self._add_joint_mask(step)
        for name in _targets(step.of, self._action_specs, "action"):
            given = self._action_specs[name]
            with _about(f"action '{name}', {given.kind}"):
                self._action_specs[name], apply = action.fit(step, given)
            self._on_actions.append((name, apply))

    def _add_joint_mask(self, step: MapDiscreteStep) -> None:
        """Let the mask of the only action follow the step, if there is one."""
        try:
            mask = mask_of(replace(self.raw, observations=self._arrays, actions=self._action_specs), step.action_mask)
        except ConfigError as error:
            raise UnfitError(f"its mask: {error}") from error
        if mask is None:
            return
        (given,) = self._action_specs.values()  # as `mask_of` says
        self._arrays[mask], apply = action.joint_mask(step, given, self._arrays[mask])
        self._on_observations.append(lambda arrays, valid: {**arrays, mask: apply(arrays[mask])})


@contextmanager
def _about(subject: str) -> Iterator[None]:
    """Put the subject before the reason of an UnfitError."""
    try:
        yield
    except UnfitError as error:
        raise UnfitError(f"{subject}: {error}") from error


def _is_wide(spec: ArraySpec) -> bool:
    dtype = np.dtype(spec.dtype)
    return dtype.kind == "f" and dtype.itemsize > 4


def _tokens_or_numbers(spec: ArraySpec) -> ArraySpec:
    """Return the spec, as tokens while they are whole numbers along one axis; numbers with fractions are no tokens.

    No step leaves the one-hot rows of an earlier version's categories as they are.
    """
    spec = replace(spec, one_hot=None)
    if spec.vocabulary is None or not is_whole(spec.dtype):
        return replace(spec, vocabulary=None)
    if len(spec.shape) != 1:
        raise UnfitError("its tokens would not lie along one axis any more; put to_dtype: float32 before it")
    return spec


def _targets(name: str | None, known: Mapping[str, Any], what: str) -> list[str]:
    """The one that is named, or all."""
    if name is None:
        return [*known]
    if name not in known:
        raise UnfitError(
            f"its target: there is no {what} '{name}'; there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"
        )
    return [name]
