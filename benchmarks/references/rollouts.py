"""One episode script for both sides: Stable-Baselines3 collects it as a rollout, distrl gets it as an unroll."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.type_aliases import RolloutBufferSamples

from benchmarks.references import tasks
from benchmarks.references.stable_baselines import Spaces, observations
from benchmarks.references.weights import Pair, dense
from distrl.types import Batch, DiscreteSpec, EnvSpec, IntArray

STEPS = 64
"""Rows of the unroll, those after the end of an episode among them."""


@dataclass(frozen=True)
class Script:
    """Observations, rewards and ends of a task that does not depend on the actions.

    Attributes:
        observations: float32 [T+1, INPUTS].
        rewards: float32 [T].
        terminated, truncated, valid: bool [T]. Rows after an episode's end are not valid, as in distrl's unrolls.
    """

    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray


def script(seed: int = 0) -> Script:
    """Return episodes of which some terminate and some are cut off; the last one goes on."""
    random = np.random.default_rng(seed)
    terminated, truncated, valid = (np.zeros(STEPS, bool) for _ in range(3))
    for row in range(STEPS):
        valid[row] = row == 0 or not (terminated[row - 1] or truncated[row - 1])
        ends = valid[row] and row < STEPS - 2 and random.random() < 0.2
        terminated[row], truncated[row] = ends and row % 2 == 0, ends and row % 2 == 1
    assert terminated.any()
    assert truncated.any()
    seen = random.standard_normal((STEPS + 1, tasks.INPUTS)).astype(np.float32)
    return Script(
        seen, np.where(valid, random.standard_normal(STEPS), 0.0).astype(np.float32), terminated, truncated, valid
    )


class Scripted(Spaces):
    """An environment that goes through a script; a row that is not valid is left out, as `reset` takes its place."""

    def __init__(self, action_space: gymnasium.Space[Any], given: Script) -> None:
        super().__init__(observations(tasks.INPUTS), action_space)
        self._given, self._row = given, 0

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:  # type: ignore[override]
        """Return the first observation of the next episode."""
        if self._row and not self._given.valid[self._row]:
            self._row += 1
        return self._given.observations[self._row], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Return the script's next row."""
        row, given = self._row, self._given
        self._row += 1
        ends = bool(given.terminated[row]), bool(given.truncated[row])
        return given.observations[row + 1], float(given.rewards[row]), *ends, {}


def collect(theirs: Any, given: Script) -> Any:
    """Let the model collect the script's valid rows; return its buffer, with returns and advantages."""
    _, callback = theirs._setup_learn(int(given.valid.sum()), None)
    theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, n_rollout_steps=int(given.valid.sum()))
    return theirs.rollout_buffer


def unroll(given: Script, buffer: Any, spec: EnvSpec) -> Batch:
    """Return the script with the actions that the model took, as one unroll of one environment."""
    taken = buffer.actions[:, 0]
    if isinstance(spec.actions["action"], DiscreteSpec):
        actions = spread(taken[:, 0].astype(np.int32), given.valid)
    else:
        actions = spread(taken, given.valid)
    return Batch(
        observations={"observation": given.observations[:, None]},
        actions={"action": actions[:, None]},
        rewards=given.rewards[:, None],
        terminated=given.terminated[:, None],
        truncated=given.truncated[:, None],
        valid=given.valid[:, None],
        behaviour_log_probabilities=spread(buffer.log_probs[:, 0], given.valid)[:, None],
        recurrent_state={},
    )


def spread(rows: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return rows of valid steps [V, ...] at their places among all [T, ...], zeros elsewhere."""
    all_rows = np.zeros((len(valid), *rows.shape[1:]), rows.dtype)
    all_rows[valid] = rows
    return all_rows


def set_minibatches(buffer: Any, valid: np.ndarray, minibatches: Sequence[IntArray]) -> None:
    """Let the buffer give these minibatches in turn, and with `get(None)` all rows in order.

    Args:
        minibatches: Rows of the unroll [T] each; those that are not valid are left out.
    """
    place = np.cumsum(valid) - 1
    arrays = [
        getattr(buffer, name)[:, 0]
        for name in ("observations", "actions", "values", "log_probs", "advantages", "returns")
    ]
    queue = iter(minibatches)

    def get(batch_size: int | None = None) -> Iterator[RolloutBufferSamples]:
        if batch_size is None:
            yield samples(np.arange(len(arrays[0])))
            return
        for _ in range(-(-len(valid) // batch_size)):
            rows = next(queue)
            yield samples(place[rows[valid[rows]]])

    def samples(rows: np.ndarray) -> RolloutBufferSamples:
        return RolloutBufferSamples(*(torch.from_numpy(np.array(array[rows])) for array in arrays))

    buffer.get = get


def actor_critic_pairs(policy: Any, spec: EnvSpec) -> Iterator[Pair]:
    """Return the pairs of a policy and a value function with networks of their own."""
    yield from dense("policy_middleware_dense_0", policy.mlp_extractor.policy_net[0])
    yield from dense("value_middleware_dense_0", policy.mlp_extractor.value_net[0])
    yield from dense("policy_head_action", policy.action_net)
    yield from dense("value_head", policy.value_net)
    if not isinstance(spec.actions["action"], DiscreteSpec):
        yield Pair("policy_head_action_log_sigma/numbers", policy.log_std)


def action_space(spec: EnvSpec) -> gymnasium.Space[Any]:
    """Return the space of the spec's action."""
    if isinstance(spec.actions["action"], DiscreteSpec):
        return gymnasium.spaces.Discrete(tasks.CHOICES)
    return gymnasium.spaces.Box(-1.0, 1.0, (tasks.NUMBERS,), np.float32)
