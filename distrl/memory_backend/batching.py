"""Unrolls joined into the batch that losses see; the learner's feed and gradient actors do the same."""

from collections.abc import Mapping, Sequence

import numpy as np

from distrl import frames, nest
from distrl.types import ATTRIBUTES, EXTRAS, Batch, Unroll


def stack(unrolls: Sequence[Unroll], frame_counts: Mapping[str, int]) -> Batch:
    """Joins unrolls along the second axis: [T, B] each -> [T, N]; recurrent state [B, ...] -> [N, ...].

    Moments of rewards stand side by side, [unrolls].

    Args:
        frame_counts: Observation's name -> n, where the policy saw stacks of n > 1 frames, which are made again of the
            single frames that have travelled: [T+n, B, ..., C] each -> [T+1, N, ..., n * C].
    """
    observations = nest.concatenate([unroll.observations for unroll in unrolls], axis=1)
    steps = {name: np.concatenate([getattr(unroll, name) for unroll in unrolls], axis=1) for name in ATTRIBUTES}
    stacks = {name: frames.rebuilt(observations[name], steps["valid"], count) for name, count in frame_counts.items()}
    return Batch(
        observations={**observations, **stacks},
        actions=nest.concatenate([unroll.actions for unroll in unrolls], axis=1),
        **steps,
        extras={name: np.concatenate([unroll.extras[name] for unroll in unrolls], axis=1) for name in EXTRAS},
        recurrent_state=nest.concatenate([unroll.recurrent_state for unroll in unrolls], axis=0),
        reward_moments={
            name: np.stack([unroll.reward_moments[name] for unroll in unrolls]) for name in unrolls[0].reward_moments
        },
    )
