"""Tells from what a framework says that it had no memory for an array; imports none of them."""

import re

from distrl.errors import ConfigError

_SAID = re.compile(r"OOM when allocating|RESOURCE_EXHAUSTED|Unable to allocate")
"""By TensorFlow, JAX and NumPy, whose exceptions have no class in common, and may come from another process."""
_SIZE = re.compile(r"shape ?[\[(][\d, ]+[\])]|\d+ bytes")


def no_room(text: str) -> ConfigError | None:
    """Return the error of a network that does not fit into memory; None if `text` tells of something else."""
    if not _SAID.search(text):
        return None
    size = _SIZE.search(text)
    what = "one of its arrays" if size is None else f"an array of {size[0]}"
    return ConfigError(f"the network does not fit into memory: no room for {what}; set narrower layers in network")
