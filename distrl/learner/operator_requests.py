"""What operators change and ask for while a learner trains: looked for now and then, taken over between two updates."""

import logging
import time
from collections.abc import Callable, Mapping

from distrl.config import RunConfig
from distrl.config.live_settings import Value, steerable, steered_so_far
from distrl.learner.checkpointing import Checkpointer
from distrl.learner.state import LearnerState
from distrl.memory_backend.registry_interface import Demand, Registry

log = logging.getLogger(__name__)
LOOK_S = 0.5
"""From one look at what operators ask to the next, each a round trip to Redis."""


class OperatorRequests:
    """Takes over settings, and has a checkpoint written when somebody asks for one.

    Args:
        config: The run's, as it was launched.
        state: Remembers what was changed, so that checkpoints do.
        registry: Of the learner's thread.
        take_over: Takes the configuration as it is from then on.
        checkpointer: Is told what is wanted of it.
    """

    def __init__(
        self,
        config: RunConfig,
        state: LearnerState,
        registry: Registry,
        take_over: Callable[[RunConfig], None],
        checkpointer: Checkpointer,
    ) -> None:
        self._config = config
        self._state = state
        self._registry = registry
        self._take_over = take_over
        self._checkpointer = checkpointer
        self._settings: Mapping[str, Value] = {}
        self._checkpoint: tuple[int, int] | None = None  # updates that it must hold, and the demand that it is for
        self._look_at = 0.0

    def begin(self) -> None:
        """Goes on with what an earlier life of the training was told.

        Not where the configuration says something else by now than it did then: whoever resumes with another value
        wants that one.
        """
        configured = self._configured()
        kept = {
            path: value
            for path, (then, value) in self._state.settings.items()
            if path in configured and configured[path] == then
        }
        self._follow({**kept, **self._registry.control().settings})

    def attend(self) -> None:
        """Called between updates, and while there are no unrolls; looks every `LOOK_S`."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        control = self._registry.control()
        if control.settings != self._settings:
            self._follow({**self._settings, **control.settings})
        self._see_to_checkpoint(control.checkpoint)

    def end(self) -> None:
        """All that was learned is saved: whoever waits for a checkpoint has it."""
        demand = self._registry.control().checkpoint
        if demand.pending:
            self._registry.fulfil("checkpoint", demand.asked)

    def _follow(self, settings: Mapping[str, Value]) -> None:
        """Takes settings over and remembers them.

        Nothing is ever taken back: what the registry lacks, a Redis has forgotten or an earlier life was told. It is
        put there for actors, and for whoever looks.
        """
        before = {path: value for path, (_, value) in self._state.settings.items()}
        config, held, problems = steered_so_far(self._config, settings, before)
        for problem in problems:  # nobody who asks by way of distrl gets that far alone
            log.error("not taken over: %s", problem)
        known = self._registry.control().settings
        if missing := {path: value for path, value in held.items() if path not in known}:
            self._registry.set_control(settings=missing)
        configured = self._configured()
        self._state.settings = {path: (configured[path], value) for path, value in held.items()}
        self._settings = {**known, **missing}
        if held:
            self._take_over(config)
            log.info("from now on: %s", ", ".join(f"{path} {value}" for path, value in held.items()))

    def _configured(self) -> dict[str, Value]:
        return {parameter.path: parameter.value for parameter in steerable(self._config)}

    def _see_to_checkpoint(self, demand: Demand) -> None:
        """Asks for one of the updates made so far; once that is there, tells who wanted it. One after the other."""
        checkpointer = self._checkpointer
        if self._checkpoint is None and demand.pending:
            self._checkpoint = (self._state.updates, demand.asked)
            checkpointer.wanted = self._state.updates
        if self._checkpoint is not None and checkpointer.holds(self._checkpoint[0]):
            self._registry.fulfil("checkpoint", self._checkpoint[1])
            self._checkpoint = checkpointer.wanted = None
