"""The socket of everything that an unroll carries beside its steps."""

from abc import abstractmethod
from typing import Protocol

from distrl.actors.acting import PolicyOutput
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.environments.vector import EnvironmentStep
from distrl.types import Unroll


class Extra(Protocol):
    """Collects what an unroll carries beside its steps, row by row, and adds it to the full unroll.

    Classes leave out what they do not need.
    """

    def reset(self, config: RunConfig, progress: Progress) -> None:
        """Prepare for new episodes in all environments, which begin after this call.

        Args:
            config: The configuration in force, with the changes of operators and of the learner.
            progress: How far the training is, behind the newest weights.
        """
        return

    def begin(self, config: RunConfig, progress: Progress) -> None:
        """Begin an unroll; rows of an abandoned one are forgotten. Arguments as of `reset`."""
        return

    def add(self, output: PolicyOutput, step: EnvironmentStep) -> None:
        """Add one row: the policy's output for its observations, and the step that followed."""
        return

    @abstractmethod
    def close(self, unroll: Unroll) -> Unroll:
        """Return the full unroll with what was collected since `begin`."""
