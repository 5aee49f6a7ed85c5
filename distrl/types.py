"""The vocabulary of distrl: what moves between the ten hops.

Shape letters, used in every docstring of the project:

    T   steps of one unroll (`actors.unroll_length_steps`)
    B   environments of one actor (`actors.environments`)
    N   sequences in a learner's batch: unrolls in the batch x B
    E   episodes that ended inside one unroll
    S   rows of an unroll before which it holds the policy's recurrent state (`RunConfig.state_rows`)
    A   number of discrete actions

Time runs along the first axis. Row ``t`` holds the observation ``o_t``, the action ``a_t`` chosen from it and what that
action led to: reward, ``terminated``, ``truncated``. Observations have one row more, ``T + 1``; the last row is the
first of the next unroll. The row after an episode's end holds the true final observation, and ``valid`` is False there:
the environment ignores the action and resets, and the reward is 0 (gymnasium's NEXT_STEP autoreset).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

Array = NDArray[Any]
FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class OneHot:
    """Whole numbers that stand for categories: networks meet them one-hot, one after the other.

    Attributes:
        shape: Shape of the environment's own observation; () for a Discrete.
        choices, starts: The k-th number, flat, is one of ``starts[k] … starts[k] + choices[k] - 1``.
    """

    shape: tuple[int, ...]
    choices: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def width(self) -> int:
        """Numbers of one one-hot row."""
        return sum(self.choices)

    @property
    def columns(self) -> tuple[IntArray, IntArray]:
        """For each column of a one-hot row: the choice that it belongs to, and the number that it stands for."""
        which = np.repeat(np.arange(len(self.choices), dtype=np.int32), self.choices)
        return which, np.concatenate([np.arange(count, dtype=np.int32) for count in self.choices])

    def rows(self, numbers: Array) -> FloatArray:
        """Return numbers [..., k], each counted from 0, as one-hot rows float32 [..., width]."""
        which, number = self.columns
        rows: FloatArray = (np.take(numbers, which, axis=-1) == number).astype(np.float32)
        return rows


@dataclass(frozen=True)
class ArraySpec:
    """One observation array of one environment, as the policy sees it.

    Attributes:
        shape: Without batch axes.
        dtype: NumPy's name.
        low, high: Uniform bounds, where there are finite ones.
        frames: Number of successive observations along the last axis, the newest at its end. If there are several,
            unrolls carry only the newest.
        vocabulary: For tokens, which a network embeds: numbers are 0 … vocabulary - 1, and 0 is padding.
        one_hot: The environment's own numbers, if these are Discrete or MultiDiscrete. They travel as whole numbers
            [k], each counted from 0; in policies of earlier versions as one-hot rows float32 [width].
    """

    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None
    frames: int = 1
    vocabulary: int | None = None
    one_hot: OneHot | None = None

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of one frame, as unrolls carry it; `shape` if there is only one."""
        return self.shape if self.frames == 1 else (*self.shape[:-1], self.shape[-1] // self.frames)

    @property
    def categories(self) -> OneHot | None:
        """The choices of all numbers, frame by frame, if these are whole numbers that stand for categories."""
        if self.one_hot is None or np.dtype(self.dtype).kind == "f":
            return None
        return replace(
            self.one_hot, choices=self.one_hot.choices * self.frames, starts=self.one_hot.starts * self.frames
        )

    @property
    def expanded(self) -> "ArraySpec":
        """The spec of the array as networks meet it: categories as one-hot rows, all else as it is."""
        categories = self.categories
        if categories is None:
            return replace(self, one_hot=None)
        return ArraySpec((categories.width,), "float32", 0.0, 1.0, frames=self.frames)

    def expand(self, rows: Array) -> Array:
        """Return rows [..., *shape] as networks meet them, [..., *expanded.shape]."""
        categories = self.categories
        return rows if categories is None else categories.rows(rows)


@dataclass(frozen=True)
class DiscreteSpec:
    """One choice among ``start … start + n - 1``. Policies and unrolls count from 0; the adapter adds `start`."""

    n: int
    start: int = 0
    kind: Literal["discrete"] = "discrete"

    @property
    def array(self) -> ArraySpec:
        """The action of one environment as it travels."""
        return ArraySpec((), "int32", 0, self.n - 1)


@dataclass(frozen=True)
class MultiDiscreteSpec:
    """Several choices at once, the k-th among ``starts[k] … starts[k] + choices[k] - 1``; unrolls count from 0.

    Several axes travel flat; `shape` is the environment's own. None: one axis, as files of earlier versions have it.
    """

    choices: tuple[int, ...]  # flat
    starts: tuple[int, ...]
    shape: tuple[int, ...] | None = field(default=None, compare=False)  # what travels is the same
    kind: Literal["multi_discrete"] = "multi_discrete"

    @property
    def array(self) -> ArraySpec:
        """The action of one environment as it travels; each number has its own bound in `choices`."""
        return ArraySpec((len(self.choices),), "int32", 0, max(self.choices) - 1)


@dataclass(frozen=True)
class MultiBinarySpec:
    """`n` switches, each 0 or 1. Arrays of switches travel flat; `shape` is the environment's own."""

    shape: tuple[int, ...]
    kind: Literal["multi_binary"] = "multi_binary"

    @property
    def n(self) -> int:
        return math.prod(self.shape)

    @property
    def array(self) -> ArraySpec:
        """The action of one environment as it travels."""
        return ArraySpec((self.n,), "int32", 0, 1)


NARROWEST, WIDEST = 1e-30, 1e30
"""Distances between bounds by which float32 scales actions; of others, squares, multiples or reciprocals leave it."""


@dataclass(frozen=True)
class BoxSpec:
    """A vector of real numbers, each within its bounds; None: unbounded. `shape` is the environment's own."""

    shape: tuple[int, ...]
    low: tuple[float | None, ...]  # flat
    high: tuple[float | None, ...]
    kind: Literal["box"] = "box"

    @property
    def n(self) -> int:
        return math.prod(self.shape)

    @property
    def array(self) -> ArraySpec:
        """The action of one environment as it travels. The adapter clips it to the bounds: a Gaussian has none."""
        return ArraySpec((self.n,), "float32")

    @property
    def unscaled(self) -> int | None:
        """Place of the first number that has no bounds, or bounds too far apart or too close to scale it by; or None.

        Equal bounds are not meant: such a number has one value.
        """
        for place, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if low is None or high is None or not (low == high or NARROWEST <= high - low <= WIDEST):
                return place
        return None

    def bounds_of(self, place: int) -> str:
        """Return the bounds of one number in words: "[-1, inf]"."""
        low, high = self.low[place], self.high[place]
        return f"[{-math.inf if low is None else low:g}, {math.inf if high is None else high:g}]"


ActionSpec = DiscreteSpec | MultiDiscreteSpec | MultiBinarySpec | BoxSpec


@dataclass(frozen=True)
class Unprocessed:
    """The environment's own spaces, if preprocessing lies between it and the policy.

    Attributes:
        observations, actions: The environment's own, by name.
        steps: `environment.preprocessing` as JSON. `environments/preprocessing/` makes the pipeline from these three.
    """

    observations: dict[str, ArraySpec]
    actions: dict[str, ActionSpec]
    steps: str


@dataclass(frozen=True)
class EnvSpec:
    """Spec of an environment for learner, actor and bundle, without gymnasium; names are in wire order.

    Attributes:
        observations: Observation arrays by name; "observation" where the environment has one without a name.
        actions: Actions by name; "action" where the environment has one without a name.
        rows: Rows of a vector per environment: the number of its agents, if these act as rows.
        unprocessed: The spaces before preprocessing; None without preprocessing.
        adjustable: Names of `environment.kwargs` that can change between two episodes. Equal specs may differ in it, as
            it depends on how the environments are stepped.
    """

    id: str
    observations: dict[str, ArraySpec]
    actions: dict[str, ActionSpec]
    reward_threshold: float | None = None
    max_episode_steps: int | None = None
    unprocessed: Unprocessed | None = None
    rows: int = 1
    adjustable: tuple[str, ...] = field(default=(), compare=False)

    def to_json(self) -> str:
        return _ENV_SPEC.dump_json(self).decode()

    def unlike(self, other: "EnvSpec") -> str:
        """Return the first difference of another environment's observations and actions from these; "": none."""
        mine: dict[str, Mapping[str, ArraySpec | ActionSpec]] = {
            "observation": self.observations,
            "action": self.actions,
        }
        for kind, theirs in (("observation", other.observations), ("action", other.actions)):
            if mine[kind].keys() != theirs.keys():
                return f"its {kind}s are {', '.join(theirs)}, those of the training are {', '.join(mine[kind])}"
            for name, space in mine[kind].items():
                if difference := _difference(space, theirs[name]):
                    return f"its {kind} {name!r} has {difference[1]}, that of the training has {difference[0]}"
        return ""

    @property
    def frames(self) -> dict[str, int]:
        """Number of frames in an observation, by name, without observations of a single frame."""
        return {name: spec.frames for name, spec in self.observations.items() if spec.frames > 1}

    @property
    def expanded(self) -> "EnvSpec":
        """The spec with all observations as networks meet them; see `ArraySpec.expanded`."""
        before = self.unprocessed
        return replace(
            self,
            observations=_expanded(self.observations),
            unprocessed=None if before is None else replace(before, observations=_expanded(before.observations)),
        )

    @staticmethod
    def from_json(text: str) -> "EnvSpec":
        return _ENV_SPEC.validate_json(text)


def _difference(one: ArraySpec | ActionSpec, other: ArraySpec | ActionSpec) -> tuple[str, str] | None:
    """Return the first attribute in which two spaces differ, with the value of each; None: they are the same."""
    names = [entry.name for entry in fields(one)] if type(one) is type(other) else ["kind"]
    for name in names:
        ours, theirs = getattr(one, name), getattr(other, name)
        if ours != theirs:
            return f"{name} {ours}", f"{name} {theirs}"
    return None


def _expanded(arrays: Mapping[str, ArraySpec]) -> dict[str, ArraySpec]:
    return {name: array.expanded for name, array in arrays.items()}


_ENV_SPEC = TypeAdapter(EnvSpec)


@dataclass(frozen=True, slots=True)
class UnrollHeader:
    """Identity and provenance of an unroll; plain fields of its stream entry, judged before the payload is decoded.

    Attributes:
        actor: Actor id within the run, from 0.
        incarnation: Start of that actor, from 1, unique within the run and increasing.
        sequence: Number of the unroll within the incarnation, from 0, without gaps.
        weights_version: Version of the weights that chose every action of the unroll.
        env_steps: Valid environment steps in the unroll (not padding rows after episode ends).
    """

    actor: int
    incarnation: int
    sequence: int
    weights_version: int
    env_steps: int

    @property
    def producer(self) -> tuple[int, int]:
        """(actor, incarnation): sequences are counted within one producer."""
        return (self.actor, self.incarnation)


@dataclass(frozen=True, slots=True)
class Unroll:
    """T steps of B environments under one version of the weights.

    Attributes:
        observations: name -> [T+1, B, ...] in the environment's dtype. Where the policy sees stacks of n frames, frames
            travel once: [T+n, B, *one frame], the n - 1 older frames of row 0's stack, then the newest of each row.
        actions: name -> [T, B, ...] as `ActionSpec.array` says; choices are counted from 0.
        rewards: float32 [T, B]. Reward after each action, preprocessed; 0 where not valid.
        terminated: bool [T, B]. The step ended the episode: no value beyond it.
        truncated: bool [T, B]. The step hit a limit: bootstrap from the next row.
        valid: bool [T, B]. False on the row after an episode's end. A lost life may terminate and still end none.
        behaviour_log_probabilities: float32 [T, B]. log mu(a_t | o_t) of the policy that acted, all actions together.
        recurrent_state: name -> [S, B, ...]. Policy state before row 0, and before each further row at which a sequence
            of the replay memory starts; empty for feed-forward policies.
        episode_returns: float32 [E]. Undiscounted raw returns of episodes that ended in this unroll.
        episode_lengths_steps: int32 [E]. Their lengths in valid steps.
        episode_discounted_returns: float32 [E]. Their raw returns, discounted from their first step on.
        episode_successes: int8 [E]. 1 if they succeeded, 0 if not, -1: the environment does not say.
        reward_moments: "count", "mean" and "squares", float64, of the quantity that scales rewards; empty if rewards
            are not normalised.
        extras: name -> [T, B, ...]. The fields of `STEP_FIELDS` that have no attribute here, those of
            `unroll_schema.STEP_EXTRAS` that the algorithm asks for, and `EPISODE_METRICS` if there are any.
    """

    header: UnrollHeader
    observations: dict[str, Array]
    actions: dict[str, Array]
    rewards: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    valid: BoolArray
    behaviour_log_probabilities: FloatArray
    recurrent_state: dict[str, Array]
    episode_returns: FloatArray
    episode_lengths_steps: IntArray
    episode_discounted_returns: FloatArray = field(default_factory=lambda: np.zeros(0, np.float32))
    episode_successes: Array = field(default_factory=lambda: np.zeros(0, np.int8))
    reward_moments: dict[str, Array] = field(default_factory=dict)
    extras: dict[str, Array] = field(default_factory=dict)


class Differentiated(NamedTuple):
    """The gradient of one unroll by the weights that acted in it, without the actor's identity.

    Attributes:
        gradients: Weight name -> float32, of the loss; clipped as the network's parameters say.
        averages: Weight name -> float32. Batch normalisation's moving averages after the unroll; empty without it.
        metrics: Name -> number; among them "loss".
        moments: Input name -> "count", "mean" and "squares" of its valid rows, float64, for inputs that are normalised.
    """

    gradients: dict[str, FloatArray]
    averages: dict[str, FloatArray]
    metrics: dict[str, float]
    moments: dict[str, dict[str, Array]]


@dataclass(frozen=True, slots=True)
class Contribution:
    """The message of a gradient actor in place of an unroll: its identity, the gradient, and finished episodes.

    Attributes:
        header: Of the unroll that was differentiated.
        differentiated: Its gradient, with metrics and moments.
        episode_returns, episode_lengths_steps, episode_discounted_returns, episode_successes: Of the unroll.
        reward_moments: As of an unroll.
        extras: `EPISODE_METRICS` of the unroll, if there are any.
    """

    header: UnrollHeader
    differentiated: Differentiated
    episode_returns: FloatArray
    episode_lengths_steps: IntArray
    episode_discounted_returns: FloatArray = field(default_factory=lambda: np.zeros(0, np.float32))
    episode_successes: Array = field(default_factory=lambda: np.zeros(0, np.int8))
    reward_moments: dict[str, Array] = field(default_factory=dict)
    extras: dict[str, Array] = field(default_factory=dict)


class Batch(NamedTuple):
    """Unrolls joined along the second axis, as losses see them: [T, N] and observations [T+1, N, ...].

    A NamedTuple, so that TensorFlow and JAX both treat it as a tree of arrays. `reward_moments` are [unrolls] each; the
    learner reads them, losses do not.

    A replay memory samples transitions, T = 1, or sequences. In a transition over k steps, row 0 of the observations is
    o_t, row 1 is o_{t+k}, and the reward is the discounted sum over those k steps.

    Attributes:
        bootstrap_steps: int32 [T, N]. Steps k between a row and the next one; None: 1, as in unrolls.
        importance_weights: float32 [N]. Factor of each item in the mean of losses; None: 1, as in unrolls.
        extras: name -> [T, N, ...], as in unrolls; `BOOTSTRAP_MASKS` and `DEMONSTRATIONS` of sources that make them.
        bonus: float32 [T, N]. Intrinsic reward of each step times its weight, 0 where not valid; None: there are none.
            Losses add it to their rewards: see `learned_rewards`.
    """

    observations: dict[str, Array]
    actions: dict[str, Array]
    rewards: Array
    terminated: Array
    truncated: Array
    valid: Array
    behaviour_log_probabilities: Array
    recurrent_state: dict[str, Array]
    reward_moments: dict[str, Array] = {}  # noqa: RUF012 (a default that nothing writes to)
    bootstrap_steps: Array | None = None
    importance_weights: Array | None = None
    extras: dict[str, Array] = {}  # noqa: RUF012 (a default that nothing writes to)
    bonus: Array | None = None


class StepField(NamedTuple):
    """One array of an unroll that has an entry for every step of every environment: [T, B, *shape].

    Attributes:
        name: Attribute of the environment's `Step` that the actor records; in unrolls and batches an attribute or a key
            of `extras`.
        least: Lowest valid value. NaN and infinity are never valid.
    """

    name: str
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    least: float | None = None


STEP_FIELDS = (
    StepField("rewards"),
    StepField("terminated", "bool"),
    StepField("truncated", "bool"),
    StepField("valid", "bool"),
    StepField("behaviour_log_probabilities"),
)
"""Fields of every unroll and batch beside observations and actions. The actor, the codec, the replay memory and the
estimates of sizes loop over them: to ship another attribute of `Step`, add a line."""
PRIORITIES = "priorities"
"""Name of the first priorities in the replay memory, float32 [T, B], undefined where not valid: in unrolls alone."""
CHOICE_PROBABILITIES = "choice_probabilities"
"""Name of the probabilities of all choices under the policy that acted, float32 [T, B, A]."""
BOOTSTRAP_MASKS = "bootstrap_masks"
"""Name of the masks of an ensemble's members, float32 [1, N, members], in `Batch.extras` alone: only if the replay
memory makes them."""
DEMONSTRATIONS = "demonstrations"
"""Name of the marks of demonstrated steps, float32 [T, N], 1 or 0, in `Batch.extras` alone: only if the source of
batches makes them."""
ATTRIBUTES = tuple(entry.name for entry in STEP_FIELDS if entry.name in Batch._fields)
EXTRAS = tuple(entry.name for entry in STEP_FIELDS if entry.name not in Batch._fields)


def step_arrays(unroll: Unroll) -> dict[str, Array]:
    """The arrays of `STEP_FIELDS`, by name."""
    return {name: getattr(unroll, name) for name in ATTRIBUTES} | unroll.extras


def step_arguments(array_of: Callable[[str], Array], extras: Iterable[str] = EXTRAS) -> dict[str, Any]:
    """The arguments of `Unroll` or `Batch` for the arrays of `STEP_FIELDS`.

    Args:
        array_of: Called once with each name.
        extras: Names of the extras.
    """
    arguments: dict[str, Any] = {name: array_of(name) for name in ATTRIBUTES}
    arguments["extras"] = {name: array_of(name) for name in extras}
    return arguments


GROUPS = ("observations", "actions", "recurrent_state", "reward_moments")
"""Fields of an unroll that map names to arrays."""
EPISODE_FIELDS: Mapping[str, np.dtype[Any]] = {
    "episode_returns": np.dtype("float32"),
    "episode_lengths_steps": np.dtype("int32"),
    "episode_discounted_returns": np.dtype("float32"),
    "episode_successes": np.dtype("int8"),
}
"""Fields of an unroll with an entry for every episode that ended in it: [E]."""
EPISODE_METRICS = "episode_metrics"
"""Name of the values of `environment.metrics` and then the stages of curricula, float32 [E, M] in this order, NaN where
there is none: in unrolls alone."""

Form = tuple[np.dtype[Any], tuple[int, ...]]
"""dtype and shape of an array."""
MOMENTS: Mapping[str, Form] = {name: (np.dtype("float64"), ()) for name in ("count", "mean", "squares")}
"""Form of a number's moments."""


Contributions = tuple[Contribution, ...]
"""Gradients that are applied together."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One published version of the policy's weights: Keras path -> array, in the network's order."""

    version: int
    arrays: dict[str, Array]


@dataclass(frozen=True, slots=True)
class PolicyBundle:
    """The exported policy: an ONNX graph without its weights, and its description as JSON text.

    The description is what `networks/policy/bundle.py` writes and `actors/policy.py` reads: inputs with shapes and
    dtypes, recurrent state, distribution, the environment's spec, weight names in order, library versions, sha256 of
    the graph.
    """

    graph: bytes
    description: str
