"""Two threads that work in turns: a training in this process, and the code that acts for it."""

import threading


class Turns:
    """Hands control from one thread to the other and back, so that only one of them works at a time.

    Attributes:
        over: Whether the training has ended: the code that acts has all turns from then on.
    """

    def __init__(self) -> None:
        self._acts, self._trains = threading.Semaphore(0), threading.Semaphore(0)
        self._has_turn = False  # of the code that acts; False also while Ctrl-C has interrupted its wait
        self._leaves = False
        self.over = False

    def hand_to_acting(self) -> None:
        """Let the other thread act until it hands back. Called by the training."""
        if not self._leaves:
            self._acts.release()
            self._trains.acquire()

    def hand_to_training(self) -> None:
        """Let the training work until it needs an unroll, or has ended. Called by the code that acts."""
        self.wait()
        if not self.over:
            self._has_turn = False
            self._trains.release()
            self.wait()

    def wait(self) -> None:
        """Wait for the turn. Called by the code that acts, at first and after an interrupted wait."""
        if not (self._has_turn or self.over):
            self._acts.acquire()
            self._has_turn = True

    def leave(self) -> None:
        """Hand the training all turns from now on. Called by the code that acts."""
        self._leaves = True
        self._trains.release()

    def end(self) -> None:
        """Hand the code that acts all turns from now on. Called by the training, at its end."""
        self.over = True
        self._acts.release()
