"""Unrolls joined into the batch that losses see; the learner's feed and gradient actors do the same."""

from collections.abc import Sequence

import numpy as np

from distrl import nest
from distrl.types import Batch, Unroll


def stack(unrolls: Sequence[Unroll]) -> Batch:
    """Joins unrolls along the second axis: [T, B] each -> [T, N]; recurrent state [B, ...] -> [N, ...]."""
    return Batch(
        observations=nest.concatenate([unroll.observations for unroll in unrolls], axis=1),
        actions=nest.concatenate([unroll.actions for unroll in unrolls], axis=1),
        rewards=np.concatenate([unroll.rewards for unroll in unrolls], axis=1),
        terminated=np.concatenate([unroll.terminated for unroll in unrolls], axis=1),
        truncated=np.concatenate([unroll.truncated for unroll in unrolls], axis=1),
        valid=np.concatenate([unroll.valid for unroll in unrolls], axis=1),
        behaviour_log_probabilities=np.concatenate([u.behaviour_log_probabilities for u in unrolls], axis=1),
        recurrent_state=nest.concatenate([unroll.recurrent_state for unroll in unrolls], axis=0),
    )
