"""The policy of a run directory as `ExportedPolicy` acts with it, without a file in between."""

from pathlib import Path

from distrl.config.load import config_of_run
from distrl.learner.policy_files import NEWEST, WEIGHTS_FILE, read_policy
from distrl.networks.policy.description import BundleDescription
from distrl.networks.policy.exported_model import Exported
from distrl.serving.exported_policy import ExportedPolicy


def policy_of_run(run_dir: Path, checkpoint: str = NEWEST) -> ExportedPolicy:
    """Load the policy of a run, which may be training, without writing a file.

    Args:
        checkpoint: As of `read_policy`.

    Raises:
        ConfigError: There is no run, or no saved policy.
        CheckpointError: A file is damaged.
    """
    saved = read_policy(run_dir, checkpoint)
    described = BundleDescription.from_json(saved.bundle.description)
    algorithm = config_of_run(run_dir).algorithm.name
    exported = Exported(described, algorithm, saved.env_steps, saved.weights.version)
    return ExportedPolicy(saved.bundle, exported, saved.weights)


def mark_of_newest(run_dir: Path) -> tuple[int, int] | None:
    """Return a mark of the newest saved weights, which changes with them; None: there are none."""
    try:
        found = (run_dir / "policy" / WEIGHTS_FILE).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
