"""One loop of the caller: observations and rewards of one episode after the other, and the actions for them."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from distrl.actors.acting import Acting, Chosen
from distrl.actors.actor import Actor
from distrl.actors.evaluator import GreedyPolicy
from distrl.actors.unroll import restarted
from distrl.config.environment import EnvironmentConfig
from distrl.environments.given import given_environment
from distrl.environments.vector import EnvironmentStep, VectorEnvironment
from distrl.errors import DistrlError, SchemaError
from distrl.types import Array


class Newest(NamedTuple):
    """The way of a loop's newest action.

    Attributes:
        observations: name -> [...]. As preprocessing left them.
        recurrent_state: name -> [...]. Before the action; empty without memory.
        outputs: name -> [...]. Of the network: parameters of the action's distribution, or the values of choices.
        explored: Whether the action was drawn as actors explore; False: it was the best one.
        log_probability: Of the drawn action; None of the best one.
    """

    observations: Mapping[str, Array]
    recurrent_state: Mapping[str, Array]
    outputs: Mapping[str, Array]
    explored: bool
    log_probability: float | None


class Rows(Protocol):
    """Takes the rows of a loop's episodes, and chooses actions for them."""

    def begin(self) -> None:
        """Begin with the first episode, whose observation the environment returns from `reset`."""

    def choose(self) -> Mapping[str, Array]:
        """Return actions for the newest row, name -> [1, ...]."""

    def add(self, step: EnvironmentStep) -> None:
        """Take the step that the newest actions made."""

    def newest(self) -> Newest:
        """Return the way of the newest actions."""


class LearningRows(Rows):
    """Rows of an actor's unrolls.

    Args:
        reset: Resets the actor.
        start: Begins an unroll.
        push: Pushes the full unroll.
    """

    def __init__(
        self, actor: Actor, reset: Callable[[], None], start: Callable[[Actor], None], push: Callable[[Actor], None]
    ) -> None:
        self._actor, self._reset, self._start, self._push = actor, reset, start, push
        self._chosen: Chosen | None = None
        self._begun = False  # the unroll; it begins when an action is wanted, as Ctrl-C may interrupt the push before

    def begin(self) -> None:
        self._reset()

    def ready(self) -> None:
        """Begin an unroll if none is open, so that the newest weights choose the next action."""
        if not self._begun:
            self._start(self._actor)
            self._begun = True

    def restart(self) -> None:
        """Begin another unroll with the next action; the rows of the open one are forgotten."""
        self._begun = False

    def choose(self) -> Mapping[str, Array]:
        self.ready()
        self._chosen = self._actor.choose()
        return self._chosen.actions

    def add(self, step: EnvironmentStep) -> None:
        assert self._chosen is not None
        self._actor.add(self._chosen, step)
        if self._actor.full:
            self._begun = False
            self._push(self._actor)

    def newest(self) -> Newest:
        assert self._chosen is not None
        _, log_probabilities, output = self._chosen
        seen, state = map(_single, self._actor.newest)
        return Newest(seen, state, _single(output.outputs), True, float(log_probabilities[0]))


class GreedyRows(Rows):
    """Rows of episodes with the best actions, of which nothing is learned.

    Args:
        refresh: Gives the policy the newest weights; called as each episode begins.
    """

    def __init__(self, environment: VectorEnvironment, policy: Acting, refresh: Callable[[], None]) -> None:
        self._environment, self._acting, self._refresh = environment, policy, refresh
        self._policy = GreedyPolicy(policy)

    def begin(self) -> None:
        self._refresh()
        self._seen, self._state = self._environment.reset(0), self._policy.initial_state(1)

    def choose(self) -> Mapping[str, Array]:
        actions, self._next = self._policy.choose(self._seen, self._state)
        return actions

    def add(self, step: EnvironmentStep) -> None:
        if not step.valid[0]:
            self._refresh()
        self._seen, self._state = step.observations, restarted(self._next, step.valid)

    def newest(self) -> Newest:
        outputs = self._acting.step(self._seen, self._state).outputs
        return Newest(_single(self._seen), _single(self._state), _single(outputs), False, None)


def _single(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return arrays without their batch axis."""
    return {name: array[0] for name, array in arrays.items()}


class _Result(NamedTuple):
    """The result of a step that has not ended its episode; None: its next observation is not known yet."""

    reward: float
    metrics: Mapping[str, Any]
    observation: Any


class Episodes:
    """Turns calls of `act` and `observe` into rows of an environment that is given.

    A row is complete when its next observation is known. After an episode's end comes a row whose action is ignored,
    and which leads to the first observation of the next one, as in gymnasium's NEXT_STEP autoreset.

    Args:
        config: With `spaces`.
        rows: Makes what takes the rows of this environment.
        largest: Greatest magnitude of a real number in an observation.

    Attributes:
        rows: Takes them.
        open: Whether an episode has begun and has not ended.
        awaits: Whether the newest action has no result yet.
    """

    def __init__(
        self, config: EnvironmentConfig, rows: Callable[[VectorEnvironment], Rows], largest: float = math.inf
    ) -> None:
        self._environment, self._given = given_environment(config, largest)
        self.rows = rows(self._environment)
        self._actions: Mapping[str, Array] = {}
        self._observation: Any = None
        self._result: _Result | None = None
        self._length = 0  # steps of the open episode so far
        self._state: Literal["new", "over", "result", "complete"] = "new"
        self.open = self.awaits = False

    def act(self, observation: Any) -> Any:
        """Return the action for an observation."""
        self.see(observation)
        return self.choose()

    def see(self, observation: Any) -> None:
        """Take an observation, which also completes the row before it; `choose` comes next.

        Each change comes before what Ctrl-C may interrupt, so that no row is added twice.

        Raises:
            SchemaError: The observation is not of its space, not finite, or too large; nothing has changed.
        """
        before, result = self._state, self._result
        if before != "complete":  # else an earlier call for this row was interrupted
            self._given.give(
                observation, 0.0 if result is None else result.reward, info=None if result is None else result.metrics
            )
            self._observation, self._result, self._state = observation, None, "complete"
            if before == "new":
                self.rows.begin()
            elif before == "over":
                self._actions = self.rows.choose()
            if before != "new":
                self._add()

    def choose(self) -> Any:
        """Return the action for the newest observation."""
        self._actions = self.rows.choose()
        self.open = self.awaits = True
        return self._given.action_of(self._environment, self._actions)

    def observe(
        self, reward: float, metrics: Mapping[str, Any], *, terminated: bool, truncated: bool, observation: Any = None
    ) -> None:
        """Take the result of the newest action.

        Args:
            observation: The one after the step; None: the next `act` brings it, or it has no value for learning.
        """
        if terminated or truncated:
            self._end(self._observation if observation is None else observation, reward, terminated, truncated, metrics)
            return
        if observation is not None:
            self._given.check(observation)
        self._result, self._state, self.awaits = _Result(reward, metrics, observation), "result", False

    def abandon(self) -> None:
        """End the open episode as cut off. A row whose result or next observation is not known is not valid."""
        if not self.open:
            return
        result, self._result = self._result, None
        if result is not None and result.observation is not None:
            self._end(result.observation, result.reward, False, True, result.metrics)
        else:
            self._end(self._observation, 0.0, False, True, {}, is_known=False)

    def _end(
        self,
        observation: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        metrics: Mapping[str, Any],
        *,
        is_known: bool = True,
    ) -> None:
        self._given.give(observation, reward, terminated, truncated, metrics)
        self._state, self.open, self.awaits = "over", False, False
        self._add(is_known=is_known)

    def _add(self, *, is_known: bool = True) -> None:
        step = self._environment.step(self._actions)
        if not is_known:
            no = np.zeros_like(step.valid)
            ended = step.ended if self._length else no  # there are no episodes without a step
            step = step._replace(terminated=no, truncated=no, valid=no, ended=ended)
            self._length = 0
        self._length = 0 if step.ended[0] else self._length + int(step.valid[0])
        self.rows.add(step)


class Loop:
    """The episodes of one loop: some learn, and some have the best actions, of which nothing is learned.

    Args:
        name: As the caller knows it, for messages.
        learning, greedy: Make the episodes of each kind, when they are needed.
    """

    def __init__(self, name: object, learning: Callable[[], Episodes], greedy: Callable[[], Episodes]) -> None:
        self._name = name
        self._make = {False: learning, True: greedy}
        self._made: dict[bool, Episodes] = {}
        self._greedy = False

    @property
    def open(self) -> bool:
        """Whether an episode is open."""
        return self._greedy in self._made and self._made[self._greedy].open

    def act(self, observation: Any, *, greedy: bool) -> Any:
        """Return the action for an observation.

        Raises:
            DistrlError: The newest action has no result yet, or the open episode is of the other kind.
        """
        if (current := self._made.get(self._greedy)) is not None and current.open:
            if current.awaits:
                raise DistrlError(f"act: loop {self._name!r} has an action without a result; call observe first")
            if greedy != self._greedy:
                kinds = ("learns", "is greedy")
                raise DistrlError(
                    f"act(greedy={greedy}): the open episode of loop {self._name!r} {kinds[self._greedy]}; end it with "
                    "observe(terminated=True) or reset, or use another id"
                )
        if greedy not in self._made:
            self._made[greedy] = self._make[greedy]()
        action = self._made[greedy].act(observation)
        self._greedy = greedy
        return action

    def observe(
        self, reward: Any, metrics: Mapping[str, Any], *, terminated: bool, truncated: bool, observation: Any
    ) -> None:
        """Take the result of the newest action.

        Raises:
            DistrlError: There is no action without a result, the reward is no finite number, or an episode was cut off
                without a last observation.
        """
        current = self._made.get(self._greedy)
        if current is None or not current.awaits:
            raise DistrlError(f"observe: loop {self._name!r} has no action without a result; call act first")
        if truncated and not terminated and observation is None:
            raise DistrlError(
                "observe(truncated=True): the value of what would have followed is learned from the last observation; "
                "give it: observation=…"
            )
        current.observe(finite(reward), metrics, terminated=terminated, truncated=truncated, observation=observation)

    def newest(self) -> Newest:
        """Return the way of the newest action.

        Raises:
            DistrlError: It has a result already, or there is none.
        """
        current = self._made.get(self._greedy)
        if current is None or not current.awaits:
            raise DistrlError(f"newest: loop {self._name!r} has no action without a result; call act first")
        return current.rows.newest()

    def abandon(self) -> None:
        """End the open episode, if there is one."""
        if (current := self._made.get(self._greedy)) is not None:
            current.abandon()


def finite(reward: Any) -> float:
    """Return a reward as a number.

    Raises:
        DistrlError: It is none, or not finite.
    """
    try:
        number = float(reward)
    except (TypeError, ValueError):
        raise DistrlError(f"observe: the reward is a {type(reward).__name__}; give one number") from None
    if not math.isfinite(number):
        raise DistrlError(f"observe: the reward is {number}; give a finite number")
    return number


def check_mask(name: str | None, observation: Any) -> None:
    """Refuse a mask that allows nothing: an unroll with it could not be learned from.

    Args:
        name: Path of the mask in the observation; None: there is none.

    Raises:
        SchemaError: It allows no choice.
    """
    part = observation
    for key in () if name is None else name.split("/"):
        part = part.get(key) if isinstance(part, Mapping) else None
    if name is None or part is None:
        return
    try:
        allows = bool(np.any(part))
    except ValueError:  # rows of different lengths
        raise SchemaError(f"act: the mask {name!r} is no array") from None
    if not allows:
        raise SchemaError(f"act: the mask {name!r} allows no choice")
