"""The learner's part in a run that learns from data, with or without actors. It brings the numeric framework."""

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from distrl.config.data import DATA_FILE
from distrl.data.playing import Playing
from distrl.data.summary import Summarised
from distrl.data_store.atomic import put_file
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.batches import Batches
from distrl.learner.mixed_batches import MixedBatches
from distrl.learner.preparation import Parts, with_recorded_memory
from distrl.learner.recorded_batches import Pausing, ReadingAhead, RecordedBatches, Reseeding, replaced
from distrl.learner.replay_set_up import check_memories, draw_seeds
from distrl.types import ArraySpec, Unroll

log = logging.getLogger(__name__)


def with_data(
    parts: Parts, of_actors: Callable[[], tuple[Batches, list[Attendant]]], stop: Callable[[], bool]
) -> tuple[Parts, Batches, list[Attendant]]:
    """Make the batches of a run that learns from data, the attendants that go with them, and parts with its memory.

    Args:
        of_actors: Makes those of its actors, beside which recorded items have a share.

    Raises:
        ConfigError, DataError: See `Playing`; or it does not fit into the memory.
        CheckpointError: The checkpoint has priorities of other data.
    """
    path = parts.run_dir / DATA_FILE
    path.unlink(missing_ok=True)  # of an earlier launch, whose data may have been other
    playing = Playing(parts.config, parts.spec, lambda episodes: Summarised(episodes, partial(_write, path)))
    if parts.config.learns_from_data:
        return _of_data_alone(parts, playing, stop)
    live, beside = of_actors()
    parts, batches, further = _mixed(parts, playing, live, stop)
    return parts, batches, [*beside, *further]


def _write(path: Path, figures: Mapping[str, Any]) -> None:
    """Write the figures of the run's data."""
    try:
        put_file(path, json.dumps(figures).encode())
    except OSError as error:
        log.error("%s cannot be written: %s", path, error)


def _of_data_alone(
    parts: Parts, playing: Playing, stop: Callable[[], bool]
) -> tuple[Parts, RecordedBatches, list[Attendant]]:
    parts, config = with_recorded_memory(parts, playing.with_replay), parts.config
    replay = parts.recorded
    assert replay is not None  # as `DataConfig.check` says
    reseeding = Reseeding(replay, partial(draw_seeds, config.seed))
    attendants: list[Attendant] = [Pausing(parts.backend.registry, lambda: True, stop), reseeding]
    if playing.memory_steps is None:
        return parts, _recorded(parts, playing.unrolls(_recurrent_state(parts)), stop), attendants
    steps_each = config.data.samples_per_insert * playing.steps / playing.count
    first = replay.begin_at(replaced(parts.state, steps_each))
    number, unroll = divmod(first, playing.count)
    log.info("reads from unroll %d of %d in round %d on, of %d steps", unroll, playing.count, number, playing.steps)
    unrolls = playing.rounds(_recurrent_state(parts), first)
    if not config.deterministic:
        attendants.append(ahead := ReadingAhead(unrolls, stop))
        unrolls = iter(ahead)
    return parts, _recorded(parts, unrolls, stop, steps_each=steps_each, first=first), attendants


def _mixed(
    parts: Parts, playing: Playing, live: Batches, stop: Callable[[], bool]
) -> tuple[Parts, MixedBatches, list[Attendant]]:
    data, state, seeds = parts.config.data, parts.state, partial(draw_seeds, parts.config.seed, memory=1)
    recurrent_state = _recurrent_state(parts)
    check_memories((parts.config, playing.with_replay), parts.spec, recurrent_state)
    parts = with_recorded_memory(parts, playing.with_replay)
    replay = parts.recorded
    assert replay is not None  # as `DataConfig.check` says
    replay.reseed(seeds(state.updates))
    batches = MixedBatches(
        _recorded(parts, playing.unrolls(recurrent_state), stop),
        live,
        items=data.items_beside(parts.config.batch_size),
        pretrain_updates=data.pretrain_updates,
        state=state,
    )
    pausing = Pausing(parts.backend.registry, lambda: batches.pretrains, stop)
    return parts, batches, [pausing, Reseeding(replay, seeds)]


def _recurrent_state(parts: Parts) -> Mapping[str, ArraySpec]:
    return parts.networks["main"].online.recurrent_state


def _recorded(
    parts: Parts,
    unrolls: Iterator[Unroll],
    stop: Callable[[], bool],
    *,
    steps_each: float = math.inf,
    first: int = 0,
) -> RecordedBatches:
    """Return batches of the memory of recorded items, which these unrolls fill."""
    assert parts.recorded is not None
    return RecordedBatches(
        unrolls,
        parts.recorded.slots,
        parts.recorded,
        size=parts.config.sequences_per_batch,
        state=parts.state,
        waits=parts.waits,
        stop=stop,
        steps_each=steps_each,
        first=first,
    )
