"""The learner's part in a run that learns from data, with or without actors. It brings the numeric framework."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from distrl.data.episodes import DataError
from distrl.data.playing import Playing
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.batches import Batches
from distrl.learner.mixed_batches import MixedBatches
from distrl.learner.preparation import Parts
from distrl.learner.recorded_batches import Pausing, RecordedBatches, Reseeding
from distrl.learner.replay_set_up import draw_seeds, make_replay


def with_data(
    parts: Parts, of_actors: Callable[[], tuple[Batches, list[Attendant]]], stop: Callable[[], bool]
) -> tuple[Batches, list[Attendant]]:
    """Make the batches of a run that learns from data, and the attendants that go with them.

    Args:
        of_actors: Makes those of its actors, beside which recorded items have a share.

    Raises:
        ConfigError, DataError: See `Playing`; or the data is no longer what it was, or does not fit into the memory.
    """
    playing = Playing(parts.config, parts.spec)
    if parts.config.learns_from_data:
        return _of_data_alone(parts, playing, stop)
    live, beside = of_actors()
    batches, further = _mixed(parts, playing, live, stop)
    return batches, [*beside, *further]


def _of_data_alone(parts: Parts, playing: Playing, stop: Callable[[], bool]) -> tuple[RecordedBatches, list[Attendant]]:
    assert parts.replay is not None  # as `DataConfig.check` says
    held = parts.replay.slots
    if playing.count != held:
        now = f"it makes {playing.count:,} unrolls, and made {held:,} at the launch"
        raise DataError(f"the data of the run has changed: {now}; resume the run")
    reseeding = Reseeding(parts.replay, partial(draw_seeds, parts.config.seed))
    return _recorded(parts, playing, stop), [Pausing(parts.backend.registry, stop), reseeding]


def _mixed(
    parts: Parts, playing: Playing, live: Batches, stop: Callable[[], bool]
) -> tuple[MixedBatches, list[Attendant]]:
    data, state, seeds = parts.config.data, parts.state, partial(draw_seeds, parts.config.seed, memory=1)
    recurrent_state, bootstrap = parts.networks["main"].online.recurrent_state, parts.algorithm.bootstrap
    replay = make_replay(playing.with_replay, parts.spec, recurrent_state, state.updates, bootstrap)
    assert data is not None
    assert replay is not None  # as `DataConfig.check` says
    replay.reseed(seeds(state.updates))
    batches = MixedBatches(
        _recorded(replace(parts, replay=replay), playing, stop),
        live,
        items=data.items_beside(parts.config.batch_size),
        pretrain_updates=data.pretrain_updates,
        state=state,
    )
    return batches, [Reseeding(replay, seeds)]


def _recorded(parts: Parts, playing: Playing, stop: Callable[[], bool]) -> RecordedBatches:
    """Return batches of the memory in `parts`, which the data fills."""
    assert parts.replay is not None
    return RecordedBatches(
        playing.unrolls(parts.networks["main"].online.recurrent_state),
        playing.count,
        parts.replay,
        size=parts.config.sequences_per_batch,
        state=parts.state,
        waits=parts.waits,
        stop=stop,
    )
