"""Seeds the generators that libraries share in a process, in the workers of `async_vector`.

Each worker is a copy of one process, and would draw the same numbers as all others. Nothing else in distrl draws from
these generators or seeds them: environments may.
"""

import random
import sys

import numpy as np


def seed(value: int | None = None) -> None:
    """Seed Python's and NumPy's global generators, and TensorFlow's and PyTorch's where these are imported.

    Args:
        value: From 0 to 2^32 - 1. None: from the operating system, in Python and NumPy; the others begin so.
    """
    random.seed(value)
    np.random.seed(value)
    if value is not None and "tensorflow" in sys.modules:
        sys.modules["tensorflow"].random.set_seed(value)
    if value is not None and "torch" in sys.modules:
        sys.modules["torch"].manual_seed(value)
