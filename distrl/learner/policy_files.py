"""policy/ of a run directory: the bundle and saved weights, a policy that acts without the learner.

graph.onnx          the policy's graph, without its weights
description.json    inputs, outputs, action distribution, weight names, sha256 of the graph, scale of rewards
weights.msgpack     `codec.encode_weights` of the version in the newest checkpoint
best.msgpack        the weights of the best evaluation, its mean return, score and environment steps
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from distrl import wire
from distrl.config.curriculum import RETURN
from distrl.config.load import config_of_run
from distrl.data_store import atomic, checkpoints
from distrl.data_store.checkpoints import ACTING
from distrl.data_store.named_checkpoints import BEST, CheckpointName
from distrl.errors import CheckpointError, ConfigError, DecodeError, DistrlError
from distrl.files import MOST_POLICY_BYTES, read_small
from distrl.memory_backend.codec import decode_weights, encode_weights
from distrl.memory_backend.records import BestEvaluation
from distrl.networks.policy.description import BundleDescription, RewardStatistics
from distrl.types import Array, PolicyBundle, Weights

NEWEST = "newest"
WEIGHTS_FILE, BEST_FILE = "weights.msgpack", "best.msgpack"


class SavedPolicy(NamedTuple):
    """A policy from a run directory.

    Attributes:
        env_steps: Environment steps of training behind the weights; None if their checkpoint is gone.
    """

    bundle: PolicyBundle
    weights: Weights
    env_steps: int | None


class KeptBest(NamedTuple):
    """The best evaluation of a run as policy/ keeps it.

    Attributes:
        best_by: `LearnerState.best_by`.
        score: `Evaluation.score`.
    """

    mean_return: float
    best_by: str
    score: float
    env_steps: int
    weights: Weights


def write_bundle(directory: Path, bundle: PolicyBundle) -> None:
    """Write graph and description, once per run."""
    directory.mkdir(parents=True, exist_ok=True)
    atomic.put_file(directory / "graph.onnx", bundle.graph)
    atomic.put_file(directory / "description.json", bundle.description.encode())


def write_rewards(directory: Path, rewards: RewardStatistics) -> None:
    """Write the reward scale of newly saved weights into the description."""
    path = directory / "description.json"
    description = replace(BundleDescription.from_json(read_small(path, MOST_POLICY_BYTES).decode()), rewards=rewards)
    atomic.put_file(path, description.to_json().encode())


def write_weights(directory: Path, weights: Weights) -> None:
    """Write the weights; a reader sees the old file or the whole new one."""
    atomic.put_file(directory / WEIGHTS_FILE, encode_weights(weights))


def write_best(directory: Path, best: BestEvaluation, best_by: str = RETURN) -> None:
    """Write the weights of the best evaluation, byte for byte; `best_by` is `LearnerState.best_by`."""
    found = best.evaluation
    numbers = {"env_steps": found.env_steps, "mean_return": found.mean_return}
    tree = {**numbers, "best_by": best_by, "score": found.score, "weights": best.weights}
    atomic.put_file(directory / BEST_FILE, wire.pack(tree))


def forget_best(directory: Path) -> None:
    """Remove the best evaluation of an earlier training."""
    (directory / BEST_FILE).unlink(missing_ok=True)


def kept_best(directory: Path) -> KeptBest | None:
    """Return the best evaluation whose weights are kept, or None.

    Raises:
        CheckpointError: The file is damaged.
    """
    path = directory / BEST_FILE
    return _read_best(path) if path.is_file() else None


def read_policy(run_dir: Path, checkpoint: str = NEWEST) -> SavedPolicy:
    """Read the policy of a live or finished run; needs no numeric framework.

    Args:
        run_dir: The run's directory.
        checkpoint: "newest": weights of the newest checkpoint. "best": weights of the best evaluation or, in a run
            without evaluations, of the best checkpoint. Otherwise the path of a checkpoint of this run.

    Raises:
        ConfigError: There is no run, it has no saved or best policy yet, or the checkpoint belongs to another run.
        CheckpointError: A file of policy/ or the checkpoint is damaged, or it has another network.
    """
    directory = run_dir / "policy"
    if not (run_dir / "config.yaml").is_file():
        raise ConfigError(f"{run_dir} is not a run's directory: it holds no config.yaml")
    bundle, newest = _read_newest(run_dir)
    if checkpoint == NEWEST:
        return SavedPolicy(bundle, newest, env_steps_of(run_dir / "checkpoints", newest.version))
    if checkpoint == BEST and config_of_run(run_dir).evaluation.every_env_steps is not None:
        path = directory / BEST_FILE
        if not path.is_file():
            raise ConfigError(f"{run_dir} has no best policy: no evaluation that can be the best has ended yet")
        best = _read_best(path)
        arrays = _acting_weights(bundle, best.weights.arrays, path)
        return SavedPolicy(bundle, Weights(best.weights.version, arrays), best.env_steps)
    path = CheckpointName(run_dir, BEST).find() if checkpoint == BEST else _own(run_dir, Path(checkpoint))
    loaded = checkpoints.load(path, (ACTING,))
    arrays = _acting_weights(bundle, loaded.arrays.get(ACTING, {}), path)
    version, env_steps = (loaded.meta.get(name) for name in ("weights_version", "env_steps"))
    if not isinstance(version, int) or not isinstance(env_steps, int):
        raise CheckpointError(f"{path} is not a learner's checkpoint: it names no weights_version and env_steps")
    return SavedPolicy(bundle, Weights(version, arrays), env_steps)


def _read_newest(run_dir: Path) -> tuple[PolicyBundle, Weights]:
    directory = run_dir / "policy"
    path = directory / "graph.onnx"
    try:
        graph = read_small(path, MOST_POLICY_BYTES)
        path = directory / "description.json"
        description = read_small(path, MOST_POLICY_BYTES).decode()
        if BundleDescription.from_json(description).sha256 != hashlib.sha256(graph).hexdigest():
            raise CheckpointError(f"it is not of {directory / 'graph.onnx'}")
        path = directory / WEIGHTS_FILE
        return PolicyBundle(graph, description), decode_weights(read_small(path, MOST_POLICY_BYTES))
    except FileNotFoundError as error:
        raise ConfigError(f"{run_dir} holds no policy yet: the first one is saved with the first checkpoint") from error
    except (DistrlError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}; a learner that resumes the run writes it anew") from error


def _read_best(path: Path) -> KeptBest:
    try:
        tree = wire.unpack(read_small(path, MOST_POLICY_BYTES))
        if not isinstance(tree, dict) or tree.keys() - {"best_by", "score"} != {"env_steps", "mean_return", "weights"}:
            raise DecodeError("it does not have the fields env_steps, mean_return and weights")
        # Earlier versions knew no other score than the mean return.
        tree = {"best_by": RETURN, "score": tree["mean_return"]} | tree
        kinds = {"mean_return": float, "best_by": str, "score": float, "env_steps": int, "weights": bytes}
        if any(type(tree[name]) is not kind for name, kind in kinds.items()):
            raise DecodeError("its fields are of other types")
        return KeptBest(**tree | {"weights": decode_weights(tree["weights"])})
    except (DecodeError, ConfigError) as error:
        raise CheckpointError(f"{path} is damaged: {error}; remove it, and the next best evaluation counts") from error


def _own(run_dir: Path, path: Path) -> Path:
    directory = run_dir / "checkpoints"
    if path.resolve().parent != directory.resolve():
        raise ConfigError(f"--checkpoint {path} is none of this run's, which are in {directory}")
    return path


def _acting_weights(bundle: PolicyBundle, arrays: Mapping[str, Array], path: Path) -> dict[str, Array]:
    """Return the weights that the policy reads out of a whole network's."""
    described = BundleDescription.from_json(bundle.description).weights
    if missing := [spec.name for spec in described if spec.name not in arrays]:
        raise CheckpointError(f"{path} is of another network than the run's policy: it holds no {missing[0]}")
    return {spec.name: arrays[spec.name] for spec in described}


def env_steps_of(directory: Path, version: int) -> int | None:
    """Return the environment steps in the checkpoint with this version of the weights, if it still exists."""
    for path in checkpoints.newest_first(directory):
        try:
            meta = checkpoints.load(path, ()).meta
        except CheckpointError:
            continue  # being replaced, or damaged
        if meta.get("weights_version") == version and isinstance(env_steps := meta.get("env_steps"), int):
            return env_steps
    return None
