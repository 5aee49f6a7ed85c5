"""Set-up of a run's replay memories: whether they fit on this machine, and how they are saved and restored.

checkpoints/replay-000000001200.npz         the memory beside the checkpoint of that step; only the newest is kept
checkpoints/replay-000000001200-data.npz    likewise, how recorded items are drawn: the items are read again
"""

import logging
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distrl.config import RunConfig
from distrl.config.hindsight import ACHIEVED
from distrl.config.replay import ReplayParameters
from distrl.data_store import checkpoints as data_store
from distrl.data_store import npz
from distrl.data_store.checkpoints import RECORDED_REPLAY, REPLAY, REPLAYS, Recorded
from distrl.errors import CheckpointError, ConfigError, RejectedError
from distrl.learner.state import LearnerState
from distrl.replay.masks import BootstrapMasks
from distrl.replay.memory import OtherMemoryError, Replay, batch_bytes, replay_bytes
from distrl.types import ArraySpec, EnvSpec
from distrl.unroll_schema import UnrollSchema

if TYPE_CHECKING:  # it brings Keras, and the command line imports this module
    from distrl.algorithms.algorithm import Bootstrap

log = logging.getLogger(__name__)
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_BEGINS = (
    ("the replay memory begins empty", "begins with an empty replay memory"),
    ("recorded items have equal priorities", "begins with equal priorities of recorded items"),
)
"""Without a saved memory: of actors' steps, and of recorded ones."""


def unroll_schema(config: RunConfig, spec: EnvSpec, recurrent_state: Mapping[str, ArraySpec]) -> UnrollSchema:
    """Return the schema of a run's unrolls."""
    return UnrollSchema.of(
        spec,
        config.actors.unroll_length_steps,
        config.actors.environments * spec.rows,
        recurrent_state,
        normalizes_rewards=config.algorithm.reward_moments_discount is not None,
        extras=config.algorithm.unroll_extras,
        states=len(config.state_rows),
        metrics=config.environment.metric_columns,
    )


def filled_with_data(config: RunConfig, rows: int, settings: Mapping[str, Any]) -> RunConfig:
    """Return the configuration whose replay memory is that of the run's data.

    Args:
        rows: Environments of its unrolls.
        settings: Those of `algorithm.replay` that follow from the data.
    """
    replay = config.algorithm.replay_parameters
    assert replay is not None  # as `DataConfig.check` says
    return config.model_copy(
        update={
            "actors": config.actors.model_copy(update={"environments": rows}),
            "algorithm": config.algorithm.with_replay(replay.model_copy(update=settings)),
        }
    )


def make_replay(
    config: RunConfig,
    spec: EnvSpec,
    recurrent_state: Mapping[str, ArraySpec],
    updates: int,
    bootstrap: "Bootstrap | None" = None,
    *,
    recorded: bool = False,
) -> Replay | None:
    """Make a replay memory, empty; None if the algorithm learns from the stream, or the run from data alone.

    Args:
        recurrent_state: The policy's recurrent state by name; empty for a feed-forward policy.
        updates: Updates at the start of the learner; with the seed they determine the random draws.
        bootstrap: The algorithm's ensemble, whose members get masks; None: none do.
        recorded: Make that of recorded items, by the configuration of `Playing.with_replay`.

    Raises:
        ConfigError: There is not enough memory; or the environment has not what hindsight or the sampler needs, or
            hindsight does not find the function of its rewards.
    """
    parameters = config.algorithm.replay_parameters if recorded else config.live_replay
    if parameters is None:
        return None
    parameters.check_spec(spec)
    schema = unroll_schema(config, spec, recurrent_state)
    log.info("%s", fitting_replay(parameters, schema, config.batch_size))
    seeds = draw_seeds(config.seed, updates)
    goal, discount = spec.observations.get(ACHIEVED), config.algorithm.discount
    masks = None
    if bootstrap is not None:  # `updates` is no part of their seeds: items of a restored memory keep their masks
        masks = BootstrapMasks(*bootstrap, np.random.SeedSequence(config.seed, spawn_key=(5,)))
    return Replay(parameters, schema, discount=discount, seeds=seeds, goal=goal, masks=masks, refills=recorded)


def check_memories(
    configs: tuple[RunConfig, RunConfig], spec: EnvSpec, recurrent_state: Mapping[str, ArraySpec]
) -> None:
    """Refuse a live and a recorded memory that do not fit on this machine together: the live one fills in time.

    Args:
        configs: With the parameters of the live one, and of the recorded one.

    Raises:
        ConfigError: They do not fit.
    """
    live, recorded = (
        replay_bytes(parameters, unroll_schema(config, spec, recurrent_state))
        for config in configs
        if (parameters := config.algorithm.replay_parameters) is not None
    )
    if (available := available_bytes()) is not None and live + recorded > available:
        raise ConfigError(
            f"the replay memory of the actors takes {_size(live)} and that of the data {_size(recorded)}, available "
            f"are {_size(available)}; lower algorithm.replay.capacity_steps, or take fewer episodes of the data sets"
        )


def draw_seeds(seed: int, updates: int, memory: int = 0) -> np.random.SeedSequence:
    """Return the seeds of a replay memory's draws, of a learner that begins after so many updates.

    Args:
        memory: Number of the memory, of a run with several.
    """
    # (1, ...) are the actors', (3, ...) those of evaluations, (5,) those of masks.
    return np.random.SeedSequence(seed, spawn_key=(2, updates, memory) if memory else (2, updates))


def fitting_replay(parameters: ReplayParameters, schema: UnrollSchema, batch_size: int, *, check: bool = True) -> str:
    """Return one line on the memory's size, and on the steps before the first update if they are more than it holds.

    Args:
        check: Check that it fits on this host, with a batch.

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
    batch = batch_bytes(parameters, schema, batch_size)
    if available is not None and needed + batch > available:
        raise ConfigError(
            f"a batch takes {_size(batch)} beside the replay memory's {_size(needed)}, available are "
            f"{_size(available)}; lower learner.batch_size: {batch_size}"
        )
    first = parameters.steps_before_update(batch_size, schema.unroll_length_steps)
    late = f"; the first update needs {first:,} steps: batches of {batch_size:,} by samples_per_insert"
    return f"replay: {steps:,} steps, {_size(needed)}{late if first > steps else ''}"


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


def save_replay(checkpoints: Path, replay: Replay, state: LearnerState, memory: str = REPLAY) -> Recorded:
    """Write a memory of `state`, before its checkpoint; the previous one is needed until that is complete.

    Returns:
        Size and hash, for the manifest of the checkpoint.
    """
    arrays = replay.state_arrays() | {"trained_steps": np.array(state.trained_steps, np.int64)}
    return data_store.save_replay(checkpoints, state.updates, arrays, memory)


def remove_older(checkpoints: Path, updates: int) -> None:
    """Remove saved memories except those of the checkpoint of `updates`."""
    newest = data_store.replay_paths(_checkpoint(checkpoints, updates)).values()
    for path in checkpoints.glob("replay-*.npz"):
        if path not in newest:
            path.unlink()


def saved_replays(checkpoints: Path) -> list[tuple[int, Path]]:
    """Return the saved memories, each with the updates of its checkpoint."""
    suffixes = "|".join(re.escape(memory.removeprefix(REPLAY)) for memory in REPLAYS)
    named = [(re.fullmatch(rf"replay-(\d+)({suffixes})", path.stem), path) for path in checkpoints.glob("replay-*.npz")]
    return [(int(match[1]), path) for match, path in named if match]


def only_saved(checkpoints: Path, updates: int) -> str | None:
    """Return the name of the only memory that is beside the checkpoint of `updates`; None if there are none or more."""
    paths = data_store.replay_paths(_checkpoint(checkpoints, updates)).items()
    found = [memory for memory, path in paths if path.exists()]
    return found[0] if len(found) == 1 else None


def is_saved(config: RunConfig) -> bool:
    """Return whether checkpoints hold the replay memory of actors' steps."""
    parameters = config.live_replay
    if parameters is None:
        return False
    return config.deterministic if parameters.checkpoint is None else parameters.checkpoint


def empty_replay_note(config: RunConfig, checkpoints: Path, updates: int) -> str | None:
    """Return a message if a run resumes from the checkpoint of `updates` with an empty replay memory; else None."""
    if config.live_replay is None or not updates:
        return None
    if not is_saved(config):
        why = "checkpoints do not hold it; algorithm.replay.checkpoint=true saves it from now on"
    elif not (path := data_store.replay_path(_checkpoint(checkpoints, updates))).exists():
        why = f"there is no {path.name} beside the checkpoint"
    else:
        return None
    return f"the replay memory begins empty, and nothing is learned until it has filled again: {why}"


def begin_replay(
    make: Callable[[], Replay | None], checkpoints: Path | None, state: LearnerState, memory: str = REPLAY
) -> tuple[Replay | None, str | None]:
    """Make a memory and restore what was saved of it; return it with the message of `restore_replay`.

    Args:
        make: Makes it, empty.
        checkpoints: Where it was saved; None: it was not.

    Raises:
        CheckpointError: See `restore_replay`.
    """
    replay = make()
    if replay is None or checkpoints is None:
        return replay, None
    unrestored = restore_replay(checkpoints, replay, state, memory)
    if unrestored is None:
        return replay, None
    log.warning("the learner %s", unrestored)
    replay = None  # first, as there may not be room for two
    return make(), unrestored


def restore_replay(checkpoints: Path, replay: Replay, state: LearnerState, memory: str = REPLAY) -> str | None:
    """Restore the memory of this name that was saved beside the checkpoint of `state`.

    The memory stays empty if none was saved, if the file is not the one that the checkpoint's manifest names, as after
    a crash between the two or a damage, or if it holds what no unroll of this run may. One of recorded items is filled
    from the data in any case, and begins with equal priorities then.

    Returns:
        A message for operators, which completes a sentence about the learner, if there is a file that is not used.

    Raises:
        CheckpointError: It belongs to a memory of another size, or to unrolls of other shapes or spaces.
    """
    of = _checkpoint(checkpoints, state.updates)
    path, begins = data_store.replay_path(of, memory), _BEGINS[memory == RECORDED_REPLAY]
    try:
        with data_store.opened_replay(of, memory) as file, npz.opened(file) as arrays:
            if int(arrays["trained_steps"]) != state.trained_steps:
                raise ValueError("it is not of its checkpoint")
            replay.restore(arrays)
    except FileNotFoundError:
        log.warning("no %s: %s", path.name, begins[0])
        return None
    except OtherMemoryError as error:
        raise CheckpointError(f"{path}: {error}") from error
    # What is in the file fails in each of these ways, where it is not what `save_replay` writes.
    except (
        CheckpointError,
        RejectedError,
        ValueError,
        LookupError,
        TypeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        return f"{begins[1]}: {' '.join(str(error).split())} ({path.name})"
    log.info("restored %s", path.name)
    return None


def _checkpoint(checkpoints: Path, updates: int) -> Path:
    return checkpoints / f"ckpt-{updates:012d}"
