"""`distrl export`: write a run's saved policy as one file, without a numeric framework."""

from dataclasses import replace
from pathlib import Path

from distrl.actors.policy import Policy
from distrl.config.load import config_of_run
from distrl.data_store import atomic
from distrl.errors import ConfigError, require
from distrl.files import check_place
from distrl.learner.policy_files import read_policy
from distrl.networks.policy.description import BundleDescription
from distrl.networks.policy.exported_model import Exported, opened, sealed
from distrl.serving.exported_policy import ExportedPolicy

FILE_NAME = "policy.onnx"


def export_run(
    run_dir: Path, output: Path | None, *, checkpoint: str, force: bool, version: str
) -> tuple[Path, Exported]:
    """Write the policy of a run, which may be training, as one file; return its path and its description.

    Args:
        output: The file; None: `FILE_NAME` in the run's directory.
        checkpoint: "newest", "best", or a checkpoint's path.
        version: The version of distrl that the file records.

    Raises:
        ConfigError: There is no run or no saved policy, or the file is there or cannot be written.
        CheckpointError: The checkpoint is not valid, or of another network.
    """
    path = run_dir / FILE_NAME if output is None else output
    check_place(path, "--output", force=force)
    content = _content(run_dir, checkpoint, version)
    bundle, exported = opened(content)
    ExportedPolicy(bundle, exported)  # a file that cannot be opened is not written
    try:
        atomic.put_file(path, content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return path, exported


def _content(run_dir: Path, checkpoint: str, version: str) -> bytes:
    saved = read_policy(run_dir, checkpoint)
    Policy(saved.bundle).set_weights(saved.weights)  # raises unless they fit the graph and are finite
    require("onnx", "onnx, which puts weights into models,", "cpu")
    from distrl.networks.policy import onnx_graph

    model = onnx_graph.embed(saved.bundle.graph, saved.weights.arrays)
    description = BundleDescription.from_json(saved.bundle.description)
    # Exploration is the training's, and the scale of rewards that of the newest weights, which these need not be.
    libraries = {"distrl": version, **description.libraries}
    policy = replace(description, exploration=None, rewards=None, libraries=libraries)
    algorithm = config_of_run(run_dir).algorithm.name
    return sealed(model, Exported(policy, algorithm, saved.env_steps, saved.weights.version))
