"""Films of evaluations beside the training: one more greedy episode, in an environment that evaluates nothing else."""

from collections.abc import Callable, Mapping
from pathlib import Path

from distrl.actors.evaluator import ActingPolicy, Evaluator
from distrl.config.curriculum import ParameterValue
from distrl.config.environment import EnvironmentConfig
from distrl.config.evaluation import EvaluationConfig
from distrl.data_store.atomic import put_file, remove_temporaries
from distrl.environments.films import Recorder, renderable, require_encoder
from distrl.environments.vector import VectorEnvironment
from distrl.errors import DistrlError

BEST = "best.webm"


class Films:
    """The directory of a run's films.

    An error of the encoder, of the disk or of the environment costs the film. The first in a row is reported.

    Args:
        directory: Made with the first film. Unfinished films there, of an evaluator that was killed, are removed.
        report: Called with one line about the first film that cannot be made, and with "" about the next one that can.

    Raises:
        MissingExtraError, ConfigError: OpenCV is missing here, or the environment cannot be made with rendering.
    """

    def __init__(
        self,
        evaluation: EvaluationConfig,
        environment: EnvironmentConfig,
        directory: Path,
        report: Callable[[str], None],
    ) -> None:
        require_encoder()
        self._parameters, self._directory, self._report = evaluation.films, directory, report
        self._most_steps = evaluation.max_episode_steps
        self._environment = VectorEnvironment(renderable(environment), 1)
        self._fails = False
        remove_temporaries(directory)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def change(self, values: Mapping[str, ParameterValue]) -> None:
        """Let the next film have these parameters of the environment."""
        self._environment.change(values)

    def film(
        self,
        policy: ActingPolicy,
        *,
        seed: int,
        env_steps: int,
        multiples: tuple[int, int],
        is_best: bool,
        stop: Callable[[], bool],
    ) -> None:
        """Film one episode if this evaluation is to be filmed; a film that `stop` interrupts is dropped.

        Args:
            seed: Of the evaluation's first environment.
            env_steps: Environment steps behind the weights.
            multiples: Multiple of `every_env_steps` of the evaluation before, 0 without one, and of this one.
            is_best: Whether no earlier evaluation of the run was better or as good, see `evaluation.best_by`.
            stop: Called before every step.
        """
        every = self._parameters.every
        by_number = every is not None and (multiples[1] - 1) // every > (multiples[0] - 1) // every
        as_best = self._parameters.best and is_best
        if not by_number and not as_best:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._unused(f"steps-{env_steps:09d}") if by_number else self._directory / BEST
            if self._play(policy, path, seed, stop) and by_number and as_best:
                put_file(self._directory / BEST, path.read_bytes())
            self._remove_old()
        except (DistrlError, OSError) as error:
            if not self._fails:
                self._report(f"no film of the evaluation at {env_steps:,} steps: {error}")
            self._fails = True
        else:
            if self._fails:
                self._report("")
            self._fails = False

    def _play(self, policy: ActingPolicy, path: Path, seed: int, stop: Callable[[], bool]) -> bool:
        """Return whether the episode ended."""
        try:
            with Recorder(self._environment, path, 1, replaced=True, show_life=stop) as recorder:
                evaluator = Evaluator(policy, self._environment, self._most_steps, recorder.watch)
                if not [*evaluator.episodes(1, seed, stop)]:
                    raise _CutShortError
        except _CutShortError:
            return False
        return True

    def _unused(self, stem: str) -> Path:
        """Return a path that no film has: an earlier launch may have filmed an evaluation after as many steps."""
        path, number = self._directory / f"{stem}.webm", 1
        while path.exists():
            number += 1
            path = self._directory / f"{stem}-{number}.webm"
        return path

    def _remove_old(self) -> None:
        """Remove the oldest films beyond `keep`."""
        films = sorted(self._directory.glob("steps-*.webm"), key=lambda path: path.stat().st_mtime_ns)
        for path in films[: -self._parameters.keep]:
            path.unlink(missing_ok=True)


class _CutShortError(Exception):
    """The role ends before the episode does."""
