"""Set-up of a run's replay memory: whether it fits on this machine, and how it is saved and restored.

checkpoints/replay-000000001200.npz     the memory beside the checkpoint of that step; only the newest is kept
"""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from distrl.config import RunConfig
from distrl.config.hindsight import ACHIEVED
from distrl.config.replay import ReplayParameters
from distrl.data_store import atomic, npz
from distrl.errors import CheckpointError, ConfigError
from distrl.learner.state import LearnerState
from distrl.replay.masks import BootstrapMasks
from distrl.replay.memory import Replay, replay_bytes
from distrl.types import ArraySpec, EnvSpec
from distrl.unroll_schema import UnrollSchema

if TYPE_CHECKING:  # it brings Keras, and the command line imports this module
    from distrl.algorithms.algorithm import Bootstrap

log = logging.getLogger(__name__)
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def replay_schema(config: RunConfig, spec: EnvSpec, recurrent_state: Mapping[str, ArraySpec]) -> UnrollSchema:
    """Return the schema of the unrolls that go into the memory."""
    rows = config.actors.environments * spec.rows
    return UnrollSchema.of(
        spec,
        config.actors.unroll_length_steps,
        rows,
        recurrent_state,
        tells_choice_probabilities=config.algorithm.tells_choice_probabilities,
        states=len(config.state_rows),
    )


def make_replay(
    config: RunConfig,
    spec: EnvSpec,
    recurrent_state: Mapping[str, ArraySpec],
    updates: int,
    bootstrap: "Bootstrap | None" = None,
) -> Replay | None:
    """Make the run's replay memory, empty; None if the algorithm learns from the stream.

    Args:
        recurrent_state: The policy's recurrent state by name; empty for a feed-forward policy.
        updates: Updates at the start of the learner; with the seed they determine the random draws.
        bootstrap: The algorithm's ensemble, whose members get masks; None: none do.

    Raises:
        ConfigError: There is not enough memory; or the environment has not what hindsight or the sampler needs, or
            hindsight does not find the function of its rewards.
    """
    parameters = config.algorithm.replay_parameters
    if parameters is None:
        return None
    parameters.check_spec(spec)
    schema = replay_schema(config, spec, recurrent_state)
    log.info("%s", fitting_replay(parameters, schema))
    seeds = np.random.SeedSequence(config.seed, spawn_key=(2, updates))  # (1, ...) are the actors'
    goal, discount = spec.observations.get(ACHIEVED), config.algorithm.discount
    masks = None
    if bootstrap is not None:  # `updates` is no part of their seeds: items of a restored memory keep their masks
        masks = BootstrapMasks(*bootstrap, np.random.SeedSequence(config.seed, spawn_key=(5,)))
    return Replay(parameters, schema, discount=discount, seeds=seeds, goal=goal, masks=masks)


def fitting_replay(parameters: ReplayParameters, schema: UnrollSchema, *, check: bool = True) -> str:
    """Return one line on the memory's size.

    Args:
        check: Check that it fits on this host.

    Raises:
        ConfigError: It does not fit.
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
    """Return the memory available without swapping, within the container's limit; None if unknown."""
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
    """Return the container's file cache that the kernel can reclaim; 0 if unknown."""
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
    """Write the memory of `state`, before its checkpoint; the previous one is needed until that is complete."""
    checkpoints.mkdir(parents=True, exist_ok=True)
    arrays = replay.state_arrays() | {"trained_steps": np.array(state.trained_steps, np.int64)}
    with atomic.file(_path(checkpoints, state.updates)) as file:
        npz.write(file, arrays)


def remove_older(checkpoints: Path, updates: int) -> None:
    """Remove saved memories except that of the checkpoint of `updates`."""
    newest = _path(checkpoints, updates)
    for path in checkpoints.glob("replay-*.npz"):
        if path != newest:
            path.unlink()


def saved_replays(checkpoints: Path) -> dict[int, Path]:
    """Return the saved memories by the updates of their checkpoints."""
    found = [(path.stem.removeprefix("replay-"), path) for path in checkpoints.glob("replay-*.npz")]
    return {int(updates): path for updates, path in found if updates.isdecimal()}


def is_saved(config: RunConfig) -> bool:
    """Return whether checkpoints hold the replay memory."""
    parameters = config.algorithm.replay_parameters
    if parameters is None:
        return False
    return config.deterministic if parameters.checkpoint is None else parameters.checkpoint


def empty_replay_note(config: RunConfig, checkpoints: Path, updates: int) -> str | None:
    """Return a message if a run resumes from the checkpoint of `updates` with an empty replay memory; else None."""
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
    """Restore the memory that was saved beside the checkpoint of `state`.

    The memory stays empty if none was saved, or if a crash between the two files left the memory of another checkpoint.

    Raises:
        CheckpointError: The file is damaged, or belongs to another memory.
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
