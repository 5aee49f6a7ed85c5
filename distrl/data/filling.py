"""The learner's part in a run that learns from data, with or without actors. It brings the numeric framework."""

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from distrl.config.data import DATA_FILE
from distrl.data.episodes import DataError
from distrl.data.playing import Playing
from distrl.data.summary import Summarised
from distrl.data_store.atomic import put_file
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.batches import Batches
from distrl.learner.mixed_batches import MixedBatches
from distrl.learner.preparation import Parts
from distrl.learner.recorded_batches import Pausing, ReadingAhead, RecordedBatches, Reseeding, replaced
from distrl.learner.replay_set_up import check_memories, draw_seeds, make_replay
from distrl.types import ArraySpec, Unroll

log = logging.getLogger(__name__)


def with_data(
    parts: Parts, of_actors: Callable[[], tuple[Batches, list[Attendant]]], stop: Callable[[], bool]
) -> tuple[Batches, list[Attendant]]:
    """Make the batches of a run that learns from data, and the attendants that go with them.

    Args:
        of_actors: Makes those of its actors, beside which recorded items have a share.

    Raises:
        ConfigError, DataError: See `Playing`; or the data is no longer what it was, or does not fit into the memory.
    """
    path = parts.run_dir / DATA_FILE
    path.unlink(missing_ok=True)  # of an earlier launch, whose data may have been other
    playing = Playing(parts.config, parts.spec, lambda episodes: Summarised(episodes, partial(_write, path)))
    if parts.config.learns_from_data:
        return _of_data_alone(parts, playing, stop)
    live, beside = of_actors()
    batches, further = _mixed(parts, playing, live, stop)
    return batches, [*beside, *further]


def _write(path: Path, figures: Mapping[str, Any]) -> None:
    """Write the figures of the run's data."""
    try:
        put_file(path, json.dumps(figures).encode())
    except OSError as error:
        log.error("%s cannot be written: %s", path, error)


def _of_data_alone(parts: Parts, playing: Playing, stop: Callable[[], bool]) -> tuple[RecordedBatches, list[Attendant]]:
    assert parts.replay is not None  # as `DataConfig.check` says
    config, replay = parts.config, parts.replay
    reseeding = Reseeding(replay, partial(draw_seeds, config.seed))
    attendants: list[Attendant] = [Pausing(parts.backend.registry, lambda: True, stop), reseeding]
    if playing.memory_steps is None:
        if playing.count != replay.slots:
            now = f"it makes {playing.count:,} unrolls, and made {replay.slots:,} at the launch"
            raise DataError(f"the data of the run has changed: {now}; resume the run")
        return _recorded(parts, playing.unrolls(_recurrent_state(parts)), stop), attendants
    steps_each = config.data.samples_per_insert * playing.steps / playing.count
    first = replay.begin_at(replaced(parts.state, steps_each))
    number, unroll = divmod(first, playing.count)
    log.info("reads from unroll %d of %d in round %d on, of %d steps", unroll, playing.count, number, playing.steps)
    unrolls = playing.rounds(_recurrent_state(parts), first)
    if not config.deterministic:
        attendants.append(ahead := ReadingAhead(unrolls, stop))
        unrolls = iter(ahead)
    return _recorded(parts, unrolls, stop, steps_each=steps_each, first=first), attendants


def _mixed(
    parts: Parts, playing: Playing, live: Batches, stop: Callable[[], bool]
) -> tuple[MixedBatches, list[Attendant]]:
    data, state, seeds = parts.config.data, parts.state, partial(draw_seeds, parts.config.seed, memory=1)
    recurrent_state, bootstrap = _recurrent_state(parts), parts.algorithm.bootstrap
    check_memories((parts.config, playing.with_replay), parts.spec, recurrent_state)
    replay = make_replay(playing.with_replay, parts.spec, recurrent_state, state.updates, bootstrap)
    assert replay is not None  # as `DataConfig.check` says
    replay.reseed(seeds(state.updates))
    batches = MixedBatches(
        _recorded(replace(parts, replay=replay), playing.unrolls(recurrent_state), stop),
        live,
        items=data.items_beside(parts.config.batch_size),
        pretrain_updates=data.pretrain_updates,
        state=state,
    )
    return batches, [Pausing(parts.backend.registry, lambda: batches.pretrains, stop), Reseeding(replay, seeds)]


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
    """Return batches of the memory in `parts`, which these unrolls fill."""
    assert parts.replay is not None
    return RecordedBatches(
        unrolls,
        parts.replay.slots,
        parts.replay,
        size=parts.config.sequences_per_batch,
        state=parts.state,
        waits=parts.waits,
        stop=stop,
        steps_each=steps_each,
        first=first,
    )
