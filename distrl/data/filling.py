"""The learner's part in a run that learns from data. It brings the numeric framework."""

import logging
import math
from collections.abc import Callable

from distrl.data.episodes import DataError
from distrl.data.playing import Playing
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.preparation import Parts
from distrl.learner.recorded_batches import Pausing, ReadingAhead, RecordedBatches, Reseeding, replaced

log = logging.getLogger(__name__)


def recorded(parts: Parts, stop: Callable[[], bool]) -> tuple[RecordedBatches, list[Attendant]]:
    """Make the batches of a run that learns from data, and the attendants that go with them.

    Raises:
        ConfigError, DataError: See `Playing`.
    """
    assert parts.replay is not None  # as `DataConfig.check` says
    assert parts.config.data is not None
    config, replay, playing = parts.config, parts.replay, Playing(parts.config, parts.spec)
    attendants: list[Attendant] = [Pausing(parts.backend.registry, stop), Reseeding(replay, config.seed)]
    recurrent_state = parts.networks["main"].online.recurrent_state
    steps_each, first = math.inf, 0
    if playing.memory_steps is None:
        if playing.count != replay.slots:
            now = f"it makes {playing.count:,} unrolls, and made {replay.slots:,} at the launch"
            raise DataError(f"the data of the run has changed: {now}; resume the run")
        unrolls = playing.unrolls(recurrent_state)
    else:
        steps_each = parts.config.data.samples_per_insert * playing.steps / playing.count
        first = replay.begin_at(replaced(parts.state, steps_each))
        number, unroll = divmod(first, playing.count)
        log.info("reads from unroll %d of %d in round %d on, of %d steps", unroll, playing.count, number, playing.steps)
        unrolls = playing.rounds(recurrent_state, first)
        if not config.deterministic:
            attendants.append(ahead := ReadingAhead(unrolls, stop))
            unrolls = iter(ahead)
    batches = RecordedBatches(
        unrolls,
        replay.slots,
        replay,
        size=config.batch_size,
        state=parts.state,
        waits=parts.waits,
        stop=stop,
        steps_each=steps_each,
        first=first,
    )
    return batches, attendants
