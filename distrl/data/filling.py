"""The learner's part in a run that learns from data. It brings the numeric framework."""

from collections.abc import Callable

from distrl.data.episodes import DataError
from distrl.data.playing import Playing
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.preparation import Parts
from distrl.learner.recorded_batches import Pausing, RecordedBatches, Reseeding


def recorded(parts: Parts, stop: Callable[[], bool]) -> tuple[RecordedBatches, list[Attendant]]:
    """Make the batches of a run that learns from data, and the attendants that go with them.

    Raises:
        ConfigError, DataError: See `Playing`.
    """
    assert parts.replay is not None  # as `DataConfig.check` says
    config, playing = parts.config, Playing(parts.config, parts.spec)
    held = parts.replay.slots
    if playing.count != held:
        now = f"it makes {playing.count:,} unrolls, and made {held:,} at the launch"
        raise DataError(f"the data of the run has changed: {now}; resume the run")
    batches = RecordedBatches(
        playing.unrolls(parts.networks["main"].online.recurrent_state),
        playing.count,
        parts.replay,
        size=config.batch_size,
        state=parts.state,
        waits=parts.waits,
        stop=stop,
    )
    return batches, [Pausing(parts.backend.registry, stop), Reseeding(parts.replay, config.seed)]
