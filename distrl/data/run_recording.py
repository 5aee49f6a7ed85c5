"""Recording of a training: the unrolls that the learner takes become a data set, beside the training."""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from distrl.config import RunConfig
from distrl.config.exploration import tells_probabilities
from distrl.data.episodes import DataError, EpisodeWriter, TakenError
from distrl.data.minari_sets import Recorder
from distrl.data.opening import new_set
from distrl.data.playing import spaces_of
from distrl.data.unroll_episodes import UnrollEpisodes
from distrl.errors import ConfigError, DistrlError, FencedError, failure, one_line
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.intake import Item
from distrl.types import EnvSpec, Unroll

if TYPE_CHECKING:
    from distrl.learner.preparation import Parts

log = logging.getLogger(__name__)
MOST_WAITING = 16
"""Where so many unrolls wait to be recorded, further ones are left out: the learner waits for none."""


def begun(config: RunConfig, spec: EnvSpec, recorder: Recorder | None = None) -> tuple[UnrollEpisodes, EpisodeWriter]:
    """Begin the data set of `recording.name`.

    Args:
        spec: Of the run's unrolls.
        recorder: The learner that records; None: none does, as before the launch.

    Raises:
        ConfigError: The unrolls do not hold what the environment has shown, or it cannot be made.
        TakenError: The data set is there already.
        DataError: It cannot hold the spaces, or cannot be written.
    """
    name = config.recording.name
    assert name is not None
    if spec.rows > 1:
        raise ConfigError(f"recording: {spec.id} has {spec.rows} agents as rows, and recordings have one agent")
    if spec.unprocessed is not None:
        raise ConfigError(
            "recording: unrolls hold what preprocessing has made of the environment's observations, and recordings "
            "hold its own; record the trained policy instead: distrl record RUN"
        )
    own = spaces_of(config.environment)
    episodes = UnrollEpisodes(spec, own)
    about = {"algorithm_name": config.algorithm.name, "description": "recorded by distrl during a training"}
    return episodes, new_set(name, config.environment.id, own.observation, own.action, about, recorder)


class RunRecording(Attendant):
    """Records what the learner takes, on a thread of its own, or at once where the run is one process.

    A recording that fails costs a line, and the training goes on.

    Args:
        spec: Of the run's unrolls.
        notice: Called with one line at its end, on any thread.
        recorder: The learner. Others of this launch that came before may have completed the data set.
    """

    def __init__(
        self, config: RunConfig, spec: EnvSpec, notice: Callable[[str], None], recorder: Recorder | None = None
    ) -> None:
        self._config, self._spec, self._notice, self._recorder = config, spec, notice, recorder
        self._steps_left, self._recorded, self._left_out = config.recording.most_steps, 0, 0
        exploring = config.exploring
        self._knows_probabilities = exploring is None or tells_probabilities(exploring)
        self._waiting: SimpleQueue[Unroll | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._begun: tuple[UnrollEpisodes, EpisodeWriter] | None = None  # None also once it is over

    def begin(self) -> None:
        try:
            self._begun = begun(self._config, self._spec, self._recorder)
        except Exception as error:  # of the environment, of Minari: none of them is the training's
            succeeds = self._recorder is not None and self._recorder.number > 1
            if not (succeeds and isinstance(error, TakenError)):  # the launch has made sure of the name
                self._notice(f"nothing is recorded: {one_line(error)}")
            return
        if not self._config.deterministic:
            self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
            self._thread.start()

    def take(self, items: Sequence[Item]) -> None:
        """Record unrolls, unless too many wait already; any thread may call this."""
        if self._begun is None:
            return
        if self._waiting.qsize() >= MOST_WAITING:
            self._left_out += len(items)
            return
        for item in items:
            assert isinstance(item, Unroll)  # as `RecordingConfig.check` says
            if self._thread is None:
                self._guarded(partial(self._add, item))
            else:
                self._waiting.put(item)

    def saved(self, updates: int) -> None:
        if self._begun is not None and self._config.deterministic:  # its actor abandons them too
            self._begun[0].abandon_open()

    def close(self, error: BaseException | None) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
        if (
            not self._config.deterministic and _goes_on(error) and self._begun is not None
        ):  # a successor begins the recording anew
            self._begun[1].abandon()
            self._begun = None
        self._guarded(self._finish)

    def _run(self) -> None:
        while self._begun is not None and (unroll := self._waiting.get()) is not None:
            self._guarded(partial(self._add, unroll))

    def _add(self, unroll: Unroll) -> None:
        if self._begun is None:
            return
        episodes, writer = self._begun
        for episode in episodes.add(unroll):
            writer.add(episode if self._knows_probabilities else episode._replace(log_probabilities=None))
            self._recorded += 1
        self._steps_left -= unroll.header.env_steps
        if self._steps_left <= 0:
            self._finish()

    def _finish(self) -> None:
        if self._begun is None:
            return
        episodes, writer = self._begun
        counts = {"unrolls": self._left_out, "episodes that were too long": episodes.too_long}
        left_out = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        left_out = f"; left out: {left_out}" if left_out else ""
        if not self._recorded:
            raise DataError(f"no episode has ended in unrolls that follow one another{left_out}")
        path = writer.finish()
        self._begun = None
        self._notice(f"{self._recorded:,} episodes are recorded: {path}{left_out}")

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do what may fail, after which the recording is over."""
        try:
            work()
        except Exception as error:  # of a disk, of HDF5, of memory: none of them is the training's
            if not isinstance(error, DataError):
                log.warning("the recording has failed", exc_info=True)
            self._notice(f"nothing is recorded: {one_line(error)}")
            assert self._begun is not None
            self._begun[1].abandon()
            self._begun = None


def _goes_on(error: BaseException | None) -> bool:
    """Return whether the run goes on with another learner: one has taken over, or a fault has an end as no other."""
    return isinstance(error, FencedError) or (error is not None and failure(error)[0] == DistrlError.exit_code)


def recording(
    parts: "Parts", notice: Callable[[str], None]
) -> tuple[Callable[[Sequence[Item]], None], list[Attendant]]:
    """Return what takes the learner's unrolls, and its attendant: none, if nothing is to be recorded."""
    if parts.config.recording.name is None:
        return lambda _items: None, []
    recorder = Recorder(parts.state.run_id, parts.backend.launch, parts.backend.fence.number)
    made = RunRecording(parts.config, parts.spec, notice, recorder)
    return made.take, [made]
