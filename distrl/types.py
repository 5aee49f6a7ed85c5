"""The vocabulary of distrl: what moves between the ten hops.

Shape letters, used in every docstring of the project:

    T   steps of one unroll (`actors.unroll_length_steps`)
    B   environments of one actor (`actors.environments`)
    N   sequences in a learner's batch: unrolls in the batch x B
    E   episodes that ended inside one unroll
    A   number of discrete actions

Time runs along the first axis. Row ``t`` holds the observation ``o_t``, the action ``a_t`` chosen from it and what that
action led to: reward, ``terminated``, ``truncated``. Observations have one row more, ``T + 1``; the last row is the
first of the next unroll. After an episode's end the next row holds the true final observation and ``valid`` is False
there: the action is ignored by the environment, which resets, and the reward is 0 (gymnasium's NEXT_STEP autoreset).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

Array = NDArray[Any]
FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class ArraySpec:
    """One observation array of one environment: shape without batch axes, NumPy dtype, uniform bounds if finite."""

    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class DiscreteSpec:
    """Actions ``start … start + n - 1``. Policies and unrolls count from 0; the environment adapter adds `start`."""

    n: int
    start: int = 0


@dataclass(frozen=True)
class EnvSpec:
    """What learner, actor and bundle must know of an environment, free of gymnasium; names are in wire order."""

    id: str
    observations: dict[str, ArraySpec]
    action: DiscreteSpec
    reward_threshold: float | None = None
    max_episode_steps: int | None = None

    def to_json(self) -> str:
        return _ENV_SPEC.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "EnvSpec":
        return _ENV_SPEC.validate_json(text)


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
        observations: name -> [T+1, B, ...] in the environment's dtype.
        actions: int32 [T, B], counted from 0.
        rewards: float32 [T, B]. Raw reward after each action; 0 where not valid.
        terminated: bool [T, B]. The step ended the episode: no value beyond it.
        truncated: bool [T, B]. The step hit a limit: bootstrap from the next row.
        valid: bool [T, B]. False on the row after an episode's end.
        behaviour_log_probabilities: float32 [T, B]. log mu(a_t | o_t) of the policy that acted.
        recurrent_state: name -> [B, ...]. Policy state before row 0; empty for feed-forward policies.
        episode_returns: float32 [E]. Undiscounted raw returns of episodes that ended in this unroll.
        episode_lengths_steps: int32 [E]. Their lengths in valid steps.
    """

    header: UnrollHeader
    observations: dict[str, Array]
    actions: IntArray
    rewards: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    valid: BoolArray
    behaviour_log_probabilities: FloatArray
    recurrent_state: dict[str, Array]
    episode_returns: FloatArray
    episode_lengths_steps: IntArray


class Batch(NamedTuple):
    """Unrolls joined along the second axis, as losses see them: [T, N] and observations [T+1, N, ...].

    A NamedTuple, so that TensorFlow and JAX both treat it as a tree of arrays.
    """

    observations: dict[str, Array]
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    valid: Array
    behaviour_log_probabilities: Array
    recurrent_state: dict[str, Array]


@dataclass(frozen=True, slots=True)
class Weights:
    """One published version of the policy's weights: Keras path -> array, in the network's order."""

    version: int
    arrays: dict[str, Array]


@dataclass(frozen=True, slots=True)
class PolicyBundle:
    """The exported policy: an ONNX graph whose weights are external initializers, and its description as JSON text.

    The description is what `networks/bundle.py` writes and `actors/policy.py` reads: inputs with shapes and dtypes,
    recurrent state, distribution, the environment's spec, weight names in order, library versions, sha256 of the graph.
    """

    graph: bytes
    description: str
