"""The newest published weights of a run whose learner could not save: kept in policy/ before Redis forgets them."""

from pathlib import Path

from distrl.errors import DecodeError
from distrl.learner.policy_files import write_weights
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.codec import decode_weights


def keep_published(run_dir: Path, backend: Backend) -> str | None:
    """Write the published weights to policy/ if they are newer than those that are there.

    Returns:
        One line for the user; None if there is nothing newer, or the directory does not take it: then the run's own
        error says what refuses.

    Raises:
        MemoryBackendError: Redis does not answer.
    """
    found, policy = backend.weights.fetch(), run_dir / "policy"
    if found is None:
        return None
    try:
        weights = decode_weights(found.blob)
        if weights.version <= _saved_version(policy / "weights.msgpack"):
            return None
        write_weights(policy, weights)
    except (OSError, DecodeError):
        return None
    return (
        f"policy/ holds the newest published weights, which no checkpoint does (version {found.version:,}, "
        f"{found.env_steps:,} steps): distrl evaluate {run_dir}"
    )


def _saved_version(path: Path) -> int:
    """Version of the weights in a file; 0 if it is not there."""
    return decode_weights(path.read_bytes()).version if path.exists() else 0
