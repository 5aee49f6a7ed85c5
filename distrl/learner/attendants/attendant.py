"""The socket of all work between two updates, such as saving checkpoints and applying operators' requests."""

from typing import Protocol

from distrl.config import RunConfig
from distrl.learner.batches import Trained


class Attendant(Protocol):
    """Works beside the training, on the learner's thread.

    `Session` calls every method on all attendants, in the order of `attendants`. An error ends the training.
    Classes leave out what they do not need.
    """

    def begin(self) -> None:
        """Start, before the first weights are published."""
        return

    def started(self) -> None:
        """Work once the first weights are published, with which actors begin to act."""
        return

    def steer(self, config: RunConfig) -> None:
        """Use this configuration, which is now in force: called at the beginning and after changes of settings."""
        return

    def attend(self, trained: Trained | None) -> None:
        """Work after an update; None: the learner waits, for unrolls or for its last evaluation."""
        return

    def saved(self, updates: int) -> None:
        """Note that a checkpoint of so many updates is complete."""
        return

    def end(self, reason: str) -> None:
        """Finish, when the newest weights are published and no update follows.

        `attend` is called still while another attendant waits for the last evaluation.

        Args:
            reason: Stop reason: a field of `stop`, or 'asked'.
        """
        return

    def close(self, error: BaseException | None) -> None:
        """Release what is held. It is not called if `begin` or the first publication has failed.

        Args:
            error: What has ended the training; None: it has ended well.
        """
        return
