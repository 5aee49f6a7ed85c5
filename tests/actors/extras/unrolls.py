"""An unroll without steps, to which extras add what they have collected."""

import numpy as np

from distrl.types import Unroll, UnrollHeader

_NOTHING, _OFF = np.zeros((0, 2), np.float32), np.zeros((0, 2), bool)
EMPTY = Unroll(
    header=UnrollHeader(0, 1, 0, 1, 0),
    observations={},
    actions={},
    rewards=_NOTHING,
    terminated=_OFF,
    truncated=_OFF,
    valid=_OFF,
    behaviour_log_probabilities=_NOTHING,
    recurrent_state={},
    episode_returns=np.zeros(0, np.float32),
    episode_lengths_steps=np.zeros(0, np.int32),
)
