"""The replay memory of a run: whether it fits, what it takes, and what of it outlives the learner.

checkpoints/replay-000000001200.npz     the memory beside the checkpoint of that step; only the newest is kept
"""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from distrl.config import RunConfig
from distrl.config.environment_checks import check_memory
from distrl.config.replay import ReplayParameters
from distrl.data_store import atomic, npz
from distrl.errors import CheckpointError, ConfigError
from distrl.learner.state import LearnerState
from distrl.replay.memory import Replay, replay_bytes
from distrl.types import ArraySpec, EnvSpec, UnrollSchema

log = logging.getLogger(__name__)
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def replay_schema(config: RunConfig, spec: EnvSpec, recurrent_state: Mapping[str, ArraySpec]) -> UnrollSchema:
    """Schema of the unrolls that go into the memory."""
    rows = config.actors.environments * spec.rows
    return UnrollSchema.of(spec, config.actors.unroll_length_steps, rows, recurrent_state)


def make_replay(
    config: RunConfig, spec: EnvSpec, recurrent_state: Mapping[str, ArraySpec], updates: int
) -> Replay | None:
    """The run's replay memory, empty; None where the algorithm learns from the stream.

    Args:
        recurrent_state: Of the policy, by name; empty for one without memory.
        updates: What is drawn depends on the seed and on when the learner began.

    Raises:
        ConfigError: There is not enough memory, or transitions cannot be learned from with such a network.
    """
    parameters = config.algorithm.replay_parameters
    if parameters is None:
        return None
    if recurrent_state:
        check_memory(config)
    schema = replay_schema(config, spec, recurrent_state)
    log.info("%s", fitting_replay(parameters, schema))
    seeds = np.random.SeedSequence(config.seed, spawn_key=(2, updates))  # (1, ...) are the actors'
    return Replay(parameters, schema, discount=config.algorithm.discount, seeds=seeds)


def fitting_replay(parameters: ReplayParameters, schema: UnrollSchema, *, check: bool = True) -> str:
    """One line on what the memory takes.

    Args:
        check: It is to be on this host.

    Raises:
        ConfigError: More than there is.
    """
    needed, available = replay_bytes(parameters, schema), available_bytes() if check else None
    steps = parameters.slots(schema.unroll_length_steps * schema.environments)
    steps *= schema.unroll_length_steps * schema.environments
    if available is not None and needed > available:
        raise ConfigError(
            f"the replay memory takes {_size(needed)} for {steps:,} steps, available are {_size(available)}; "
            f"lower algorithm.replay.capacity_steps: {parameters.capacity_steps}"
        )
    return f"replay: {steps:,} steps, {_size(needed)}"


def available_bytes() -> int | None:
    """Memory that can be had without swapping, the container's limit included; None where nothing tells."""
    known: list[int] = []
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
        known.append(1024 * int(line.split()[1]))
    with suppress(OSError, ValueError):  # "max" where there is no limit
        limit = int((_CGROUP / "memory.max").read_text())
        known.append(limit - int((_CGROUP / "memory.current").read_text()) + _reclaimable_bytes())
    if not known:
        with suppress(OSError, ValueError):  # elsewhere than on Linux: all there is
            known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return max(min(known), 0) if known else None


def _reclaimable_bytes() -> int:
    """File cache of the container that the kernel can reclaim; 0 where that is unknown."""
    with suppress(OSError, ValueError):
        entries = (line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return next((int(value) for name, value in entries if name == "inactive_file"), 0)
    return 0


def _size(count: int) -> str:
    amount, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if amount < 1000.0:
            break
        amount, unit = amount / 1000.0, larger
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


def save_replay(checkpoints: Path, replay: Replay, state: LearnerState) -> None:
    """Writes the memory as of `state`. Before its checkpoint: until that is there, the last one's is needed."""
    checkpoints.mkdir(parents=True, exist_ok=True)
    arrays = replay.state_arrays() | {"trained_steps": np.array(state.trained_steps, np.int64)}
    with atomic.file(_path(checkpoints, state.updates)) as file:
        npz.write(file, arrays)


def remove_older(checkpoints: Path, updates: int) -> None:
    """Removes what is saved of the memory, but for the checkpoint of `updates`."""
    newest = _path(checkpoints, updates)
    for path in checkpoints.glob("replay-*.npz"):
        if path != newest:
            path.unlink()


def is_saved(config: RunConfig) -> bool:
    """Whether checkpoints hold the replay memory."""
    parameters = config.algorithm.replay_parameters
    if parameters is None:
        return False
    return config.deterministic if parameters.checkpoint is None else parameters.checkpoint


def empty_replay_note(config: RunConfig, checkpoints: Path, updates: int) -> str | None:
    """One line for a run that resumes from the checkpoint of `updates` with an empty replay memory; else None."""
    if config.algorithm.replay_parameters is None or not updates:
        return None
    if not is_saved(config):
        why = "checkpoints do not hold it; algorithm.replay.checkpoint=true saves it from now on"
    elif not _path(checkpoints, updates).exists():
        why = f"there is no {_path(checkpoints, updates).name} beside the checkpoint"
    else:
        return None
    return f"the replay memory begins empty, and nothing is learned until it has filled again: {why}"


def restore_replay(checkpoints: Path, replay: Replay, state: LearnerState) -> None:
    """Fills the memory with what was saved beside the checkpoint that `state` is of.

    If nothing was, or it is of another moment, after a crash between the two, the memory stays empty and fills anew.

    Raises:
        CheckpointError: It is damaged, or of another memory.
    """
    path = _path(checkpoints, state.updates)
    if not path.exists():
        log.warning("no %s: the replay memory begins empty", path.name)
        return
    try:
        with npz.opened(path) as arrays:
            if int(arrays["trained_steps"]) != state.trained_steps:
                log.warning("%s is not of its checkpoint: the replay memory begins empty", path.name)
                return
            replay.restore(arrays)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: {error}; remove the file to fill the memory anew") from error
    log.info("restored %s", path.name)


def _path(checkpoints: Path, updates: int) -> Path:
    return checkpoints / f"replay-{updates:012d}.npz"
