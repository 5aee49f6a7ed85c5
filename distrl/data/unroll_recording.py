"""The data set of a training: what its unrolls become, in the order in which the learner takes them."""

from pathlib import Path

from distrl.config import RunConfig
from distrl.config.exploration import tells_probabilities
from distrl.data.episodes import DataError
from distrl.data.minari_sets import Recorder
from distrl.data.opening import new_set
from distrl.data.playing import spaces_of
from distrl.data.unroll_episodes import UnrollEpisodes
from distrl.errors import ConfigError
from distrl.types import EnvSpec, Unroll


class UnrollRecording:
    """The data set of `recording.name`, which has begun.

    Args:
        spec: Of the run's unrolls.
        recorder: The learner that records; None: none does, as before the launch.

    Raises:
        ConfigError: The unrolls do not hold what the environment has shown, or it cannot be made.
        TakenError: The data set is there already.
        DataError: It cannot hold the spaces, or cannot be written.
    """

    def __init__(self, config: RunConfig, spec: EnvSpec, recorder: Recorder | None = None) -> None:
        name = config.recording.name
        assert name is not None
        if spec.rows > 1:
            raise ConfigError(f"recording: {spec.id} has {spec.rows} agents as rows, and recordings have one agent")
        if spec.unprocessed is not None:
            raise ConfigError(
                "recording: unrolls hold what preprocessing has made of the environment's observations, and recordings "
                "hold its own; record the trained policy instead: distrl record RUN"
            )
        exploring = config.exploring
        self._knows_probabilities = exploring is None or tells_probabilities(exploring)
        self._steps_left, self._recorded = config.recording.most_steps, 0
        own = spaces_of(config.environment)
        self._episodes = UnrollEpisodes(spec, own)
        about = {"algorithm_name": config.algorithm.name, "description": "recorded by distrl during a training"}
        self._writer = new_set(name, config.environment.id, own.observation, own.action, about, recorder)

    @property
    def is_full(self) -> bool:
        """Whether it has `recording.most_steps`."""
        return self._steps_left <= 0

    def add(self, unroll: Unroll) -> None:
        """Record the episodes that end in an unroll.

        Raises:
            DataError: The disk does not take them.
        """
        for episode in self._episodes.add(unroll):
            self._writer.add(episode if self._knows_probabilities else episode._replace(log_probabilities=None))
            self._recorded += 1
        self._steps_left -= unroll.header.env_steps

    def abandon_open(self) -> None:
        """Forget the episodes that have not ended, as the actor does."""
        self._episodes.abandon_open()

    def finish(self, left_out: int) -> str:
        """Put the data set in its place, and return a line about it.

        Args:
            left_out: Unrolls that were not added.

        Raises:
            DataError: No episode has ended, or the disk does not take it; `abandon` removes what is there.
        """
        counts = {"unrolls": left_out, "episodes that were too long": self._episodes.too_long}
        told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        told = f"; left out: {told}" if told else ""
        if not self._recorded:
            raise DataError(f"no episode has ended in unrolls that follow one another{told}")
        path: Path = self._writer.finish()
        return f"{self._recorded:,} episodes are recorded: {path}{told}"

    def abandon(self) -> None:
        """Remove what has been written."""
        self._writer.abandon()
