"""Requests of operators to a live run, from the command line, the dashboard or Python, with their author."""

import getpass
import json
import socket
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from distrl.config import RunConfig
from distrl.config.curriculum import check_adjustable, is_parameter
from distrl.config.live_settings import KWARGS, Parameter, Value, steerable, steered, steered_so_far
from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import Demand, Errand, Request


class _Environment(BaseModel):
    """The part of an `EnvSpec` that operators' requests depend on."""

    adjustable: tuple[str, ...] = ()


class _Configured(BaseModel):
    """The configuration in a run's description, and the environment."""

    config: RunConfig
    spec: _Environment = _Environment()


class _Bounded(BaseModel):
    """The bound on actors in a run's description."""

    most_actors: int | None = None


_Part = TypeVar("_Part", bound=BaseModel)


class Steering:
    """Sends requests through the run's registry; the run's event log records each with its author and time.

    Roles read requests about twice a second, and apply them then or from the next unroll or update on.

    Args:
        backend: Backend of an existing run; used by this thread alone.
        by: Author of the requests, see `operator`.
    """

    def __init__(self, backend: Backend, by: str) -> None:
        self._backend = backend
        self._registry = backend.registry
        self._by = by

    @cached_property
    def _launched(self) -> _Configured:
        """The configuration of the launch, and the environment."""
        return self._described(_Configured)

    @property
    def _config(self) -> RunConfig:
        return self._launched.config

    def _described(self, part: type[_Part]) -> _Part:
        try:
            return part.model_validate_json(self._backend.config_json())
        except ValidationError as error:
            odd = error.errors(include_url=False)[0]
            what = ": ".join(filter(None, (".".join(map(str, odd["loc"])), odd["msg"])))
            raise MemoryBackendError(
                f"the run is not configured as this distrl knows it ({what}); use its version of distrl"
            ) from error

    def pause(self) -> None:
        """Pause: actors wait after their current unroll; nothing is lost."""
        self._ask("pause", lambda: self._registry.set_control(paused=True))

    def resume(self) -> None:
        """Continue after a pause."""
        self._ask("resume", lambda: self._registry.set_control(paused=False))

    def stop(self) -> None:
        """End the run in order: it saves a checkpoint, writes its summary and exits with 0."""
        self._ask("stop", lambda: self._registry.set_control(stop="asked"))

    def scale(self, actors: int, *, force: bool = False) -> None:
        """Change the number of actors.

        Args:
            force: Allow more than `actors.max_count`.

        Raises:
            ConfigError: `actors` is below 1, or above the run's bound; or the run starts no actors of its own.
        """
        if isinstance(actors, bool) or not isinstance(actors, int) or actors < 1:
            raise ConfigError(f"actors: {actors} must be a whole number, at least 1")
        most = self._described(_Bounded).most_actors
        if most == 0:
            raise ConfigError("the run starts no actors (launch.start_actors: false): they join by distrl actors")
        if most is not None and actors > most and not force:
            raise ConfigError(
                f"actors: {actors} is more than this run may have, {most} (actors.max_count); "
                f"if you mean it: distrl scale {actors} --force"
            )
        self._fix(actors, f"scale to {actors}", forced=force)

    def autoscale(self, least: int | None = None, most: int | None = None) -> None:
        """Let the number of actors follow from the run's own measurements; `scale` and `fix_actors` end that.

        Args:
            least: Smallest number of actors; None: that of `actors.autoscale`.
            most: Largest number of actors; None: that of `actors.autoscale`.

        Raises:
            ConfigError: The bounds contradict each other or the run's own bound, or the number of actors is part of
                the algorithm.
        """
        config = self._config
        bound = self._described(_Bounded).most_actors or config.actors.max_count
        if config.algorithm.rounds:
            raise ConfigError(
                f"{config.algorithm.name} makes each update of one gradient of every actor: their number is the size "
                "of its batch; choose it with distrl scale"
            )
        least = config.actors.autoscale.min_count if least is None else least
        most = config.actors.autoscale.max_count if most is None else most
        if bound and max(least, most or 0) > bound:
            raise ConfigError(
                f"actors: {max(least, most or 0)} is more than this run may have, {bound} (actors.max_count)"
            )
        if least < 1 or (most is not None and most < least):
            raise ConfigError(f"actors: from {least} to {most}: the first number must be 1 or more, and not the larger")
        words = f"at least {least} actors" if most is None else f"{least} to {most} actors"
        self._ask(
            f"autoscale, {words}",
            lambda: self._registry.set_control(autoscale=True, min_actors=least, max_actors=most or 0),
        )

    def fix_actors(self) -> None:
        """End autoscaling; the run keeps the number of actors that it has, if it starts actors of its own."""
        supervisor = self._registry.supervisor()
        if supervisor is not None and not (supervisor.autoscales or self._registry.control().autoscale):
            return
        actors = None if supervisor is None else supervisor.actors
        self._fix(actors, "end autoscaling", forced=True)

    def _fix(self, actors: int | None, what: str, *, forced: bool) -> None:
        """Request a number of actors, and the end of autoscaling with it: nothing else may change that number."""
        if actors is None:
            self._ask(what, lambda: self._registry.set_control(autoscale=False))
            return
        self._ask(
            what,
            lambda: self._registry.set_control(autoscale=False, target_actors=actors, target_forced=forced),
        )

    def checkpoint(self) -> int:
        """Request a checkpoint from the learner; return the request's number for `is_done`."""
        return self._demand("checkpoint")

    def evaluate(self) -> int:
        """Request an evaluation of the newest weights; return the request's number for `is_done`.

        Raises:
            ConfigError: The run has no evaluator.
        """
        if self._config.evaluation.every_env_steps is None:
            raise ConfigError("the run has no evaluator: it was launched without evaluation.every_env_steps")
        return self._demand("evaluation")

    def take_networks(self, checkpoint: Path) -> int:
        """Let the learner go on with the networks of a checkpoint, and their optimizers; nothing else changes.

        Args:
            checkpoint: Its directory on the learner's host, of a run with the same networks.

        Returns:
            The request's number for `is_done`.
        """
        self._registry.set_control(networks_from=str(checkpoint))
        return self._demand("networks", f"take the networks of {checkpoint}")

    def is_done(self, errand: Errand, number: int) -> bool:
        """Return whether the request with this number has been fulfilled.

        Raises:
            MemoryBackendError: The run has ended meanwhile.
            ConfigError: The request was refused.
        """
        self._backend.config_json()
        demand: Demand = getattr(self._registry.control(), errand)
        if demand.done == number and demand.refused:
            raise ConfigError(demand.refused)
        return demand.done >= number

    def change(self, settings: Mapping[str, Value]) -> None:
        """Change parameters of the configuration, all of them or none.

        Args:
            settings: Dotted path, one of `steerable` -> value.

        Raises:
            ConfigError: A setting cannot change while the run goes on, or its value is invalid.
        """
        config, held = self._in_force()
        environment, adjustable = self._config.environment, self._launched.spec.adjustable
        names = [path.removeprefix(KWARGS) for path in settings if path.startswith(KWARGS)]
        plain = [name for name in names if is_parameter(environment.kwargs.get(name))]
        check_adjustable(environment.id, plain, adjustable, KWARGS.removesuffix("."))
        steered(config, settings, adjustable)  # a stage must be of a rule that is in force
        steered(self._config, {**held, **settings}, adjustable)
        what = ", ".join(f"{path} {json.dumps(value)}" for path, value in settings.items())
        self._ask(what, lambda: self._registry.set_control(settings=settings))

    def steerable(self) -> list[Parameter]:
        """Return the settings that `change` takes, with their current values."""
        return steerable(self._in_force()[0], self._launched.spec.adjustable)

    def _in_force(self) -> tuple[RunConfig, Mapping[str, Value]]:
        """Return the configuration with the changes so far, and these changes."""
        adjustable = self._launched.spec.adjustable
        config, held, _ = steered_so_far(self._config, self._registry.control().settings, adjustable=adjustable)
        return config, held

    def _demand(self, errand: Errand, what: str | None = None) -> int:
        numbers: list[int] = []
        self._ask(what or f"{errand} now", lambda: numbers.append(self._registry.demand(errand)))
        return numbers[0]

    def _ask(self, what: str, change: Callable[[], None]) -> None:
        self._backend.config_json()  # raises where the run is gone, of which nothing is to be made anew
        # Logged first: a change that takes effect then has its request in the log, even if this process dies.
        self._registry.add_request(Request(self._by, what))
        change()


def operator(way: str) -> str:
    """Return this user and the channel, 'ada@host, command line', for `Steering`.

    Args:
        way: The channel: command line, dashboard or Python.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}, {way}"
