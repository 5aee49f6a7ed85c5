"""`distrl.Runner`: steps environments of the caller's with an agent, calls back, and says what came of it."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from distrl.apps.agents.agent import Agent
from distrl.errors import ConfigError, DistrlError

if TYPE_CHECKING:
    from gymnasium import Env


class Step(NamedTuple):
    """A step of one environment, for `on_step`; its reward is the sum over repetitions of the action."""

    worker: int
    steps: int  # of all workers so far, this one included
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Episode(NamedTuple):
    """An episode that has ended, for `on_episode`."""

    worker: int
    episodes: int  # of all workers so far, this one included
    total_return: float
    steps: int


@dataclass
class WorkerResult:
    """Episodes of one environment, in order."""

    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class RunResult:
    """The result of `Runner.run`.

    Attributes:
        steps: Decisions of the agent.
        frames: Steps of environments: more, if actions are repeated.
        updates: Updates of the learner meanwhile.
        seconds: Wall time.
        stop_reason: "steps", "episodes", "updates", "callback", or why the agent's training has ended.
        workers: Results by environment.
        throughput: Least, mean and greatest steps per second, over seconds that have passed in full; the mean alone
            counts if there was none.
    """

    steps: int
    frames: int
    updates: int
    seconds: float
    stop_reason: str
    workers: tuple[WorkerResult, ...]
    throughput: tuple[float, float, float]

    @property
    def returns(self) -> list[float]:
        """Returns of all episodes, one environment after the other."""
        return [value for worker in self.workers for value in worker.returns]

    @property
    def episodes(self) -> int:
        return len(self.returns)

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def frames_per_s(self) -> float:
        return self.frames / self.seconds if self.seconds else 0.0

    @property
    def mean_return(self) -> float | None:
        """Mean over episodes; None: none has ended."""
        return fmean(self.returns) if self.returns else None

    @property
    def least_return(self) -> float | None:
        return min(self.returns, default=None)

    @property
    def greatest_return(self) -> float | None:
        return max(self.returns, default=None)

    def worker(self, number: int) -> WorkerResult:
        """Return the result of one environment; raise ConfigError if there is none of this number."""
        if not 0 <= number < len(self.workers):
            raise ConfigError(f"worker {number}: there are workers 0 to {len(self.workers) - 1}")
        return self.workers[number]


class Runner:
    """Steps environments with an agent, one after the other: environment i is the agent's loop i.

        with distrl.Agent("cartpole-ppo") as agent:
            result = distrl.Runner(agent, gymnasium.make("CartPole-v1")).run(episodes=100)
        print(result.mean_return, result.steps_per_s)

    Args:
        environments: Gymnasium environments of the agent's spaces.
        max_episode_steps: Decisions after which an episode is cut off; None: as the environments do.
        repeat: Steps for which an action is repeated; their rewards are added, and an end ends them.
        render: Call `render` of the first environment after each of its steps.
    """

    def __init__(
        self,
        agent: Agent,
        environments: "Env[Any, Any] | Sequence[Env[Any, Any]]",
        *,
        max_episode_steps: int | None = None,
        repeat: int = 1,
        render: bool = False,
    ) -> None:
        self._agent = agent
        self._environments: list[Any] = [*environments] if isinstance(environments, list | tuple) else [environments]
        self._most_steps = math.inf if max_episode_steps is None else max_episode_steps
        self._repeat, self._render = repeat, render
        for name, value in (("max_episode_steps", max_episode_steps), ("repeat", repeat)):
            if value is not None and value < 1:
                raise ConfigError(f"{name}: {value} must be at least 1")
        if not self._environments:
            raise ConfigError("environments: there is none")
        for environment in self._environments:
            if not hasattr(environment, "step"):
                raise ConfigError(f"environments: {environment!r} cannot be stepped; make it with gymnasium.make")

    def run(
        self,
        *,
        steps: int | None = None,
        episodes: int | None = None,
        updates: int | None = None,
        greedy: bool = False,
        seed: int | None = None,
        on_step: Callable[[Step], object] | None = None,
        on_episode: Callable[[Episode], object] | None = None,
        on_update: Callable[[int], object] | None = None,
    ) -> RunResult:
        """Step until a limit is reached, a callback returns False, or the agent's training ends.

        Args:
            steps: Most decisions of this call; None: there is no such limit.
            episodes: Likewise, ends of episodes.
            updates: Likewise, updates of the learner.
            greedy: Take the best actions, and learn nothing.
            seed: Of the first episodes: environment i is reset with seed + i.
            on_step: Called after each decision.
            on_episode: Called after each end of an episode.
            on_update: Called with the agent's number of updates, after each step that made some.
        """
        run = _Run(self._agent, self._environments, self._most_steps, self._repeat, greedy=greedy, render=self._render)
        limits = {"steps": steps, "episodes": episodes, "updates": updates}
        for name, limit in limits.items():
            if limit is not None and limit < 1:
                raise ConfigError(f"{name}: {limit} must be at least 1")
        try:
            return run.until(limits, seed, on_step, on_episode, on_update)
        finally:
            run.abandon()


class _Run:
    """One call of `Runner.run`."""

    def __init__(
        self,
        agent: Agent,
        environments: "Sequence[Env[Any, Any]]",
        most_steps: float,
        repeat: int,
        *,
        greedy: bool,
        render: bool,
    ) -> None:
        self._agent, self._environments, self._most_steps = agent, environments, most_steps
        self._repeat, self._greedy, self._render = repeat, greedy, render
        self._observations: list[Any] = []
        self._open = [WorkerResult([0.0], [0]) for _ in environments]
        self._results = tuple(WorkerResult() for _ in environments)
        self._counts = {"steps": 0, "episodes": 0, "updates": 0}
        self._frames, self._updates_before = 0, agent.updates
        self._began = self._second_began = time.perf_counter()
        self._rates: list[float] = []
        self._steps_before = 0
        self._stopped: str | None = None

    def until(
        self,
        limits: dict[str, int | None],
        seed: int | None,
        on_step: Callable[[Step], object] | None,
        on_episode: Callable[[Episode], object] | None,
        on_update: Callable[[int], object] | None,
    ) -> RunResult:
        for number, environment in enumerate(self._environments):
            self._observations.append(environment.reset(seed=None if seed is None else seed + number)[0])
        while self._stopped is None:
            for worker in range(len(self._environments)):
                updates = self._agent.updates
                step = self._step(worker)
                if self._agent.updates != updates:
                    self._counts["updates"] = self._agent.updates - self._updates_before
                    self._call(on_update, self._agent.updates)
                self._call(on_step, step)
                if step.terminated or step.truncated:
                    self._call(on_episode, self._end_episode(worker))
                self._stopped = self._stopped or self._reached(limits)
                if self._stopped is not None:
                    break
        return self._result()

    def abandon(self) -> None:
        """Abandon episodes that are open: the next run begins others."""
        for worker in range(len(self._observations)):
            with suppress(DistrlError):  # a loop that has not acted yet, or an agent that has failed
                self._agent.reset(worker)

    def _step(self, worker: int) -> Step:
        environment, open_ = self._environments[worker], self._open[worker]
        action = self._agent.act(self._observations[worker], worker, greedy=self._greedy)
        reward, terminated, truncated, info = 0.0, False, False, dict[str, Any]()
        for _ in range(self._repeat):
            observation, paid, ended, cut_off, info = environment.step(action)
            reward, terminated, truncated = reward + float(paid), bool(ended), bool(cut_off)
            self._frames += 1
            if terminated or truncated:
                break
        if self._render and worker == 0:
            environment.render()
        open_.returns[0] += reward
        open_.lengths[0] += 1
        truncated = truncated or (not terminated and open_.lengths[0] >= self._most_steps)
        self._observations[worker] = observation
        self._agent.observe(reward, terminated, truncated, observation, id=worker, metrics=info)
        self._counts["steps"] += 1
        self._note_rate()
        return Step(worker, self._counts["steps"], reward, terminated, truncated, info)

    def _end_episode(self, worker: int) -> Episode:
        (total,), (length,) = self._open[worker].returns, self._open[worker].lengths
        self._open[worker] = WorkerResult([0.0], [0])
        self._results[worker].returns.append(total)
        self._results[worker].lengths.append(length)
        self._counts["episodes"] += 1
        self._observations[worker] = self._environments[worker].reset()[0]
        return Episode(worker, self._counts["episodes"], total, length)

    def _call(self, callback: Callable[[Any], object] | None, argument: Any) -> None:
        if callback is not None and callback(argument) is False:
            self._stopped = self._stopped or "callback"

    def _reached(self, limits: dict[str, int | None]) -> str | None:
        for name, limit in limits.items():
            if limit is not None and self._counts[name] >= limit:
                return name
        return None if self._greedy else self._agent.ended

    def _note_rate(self) -> None:
        now = time.perf_counter()
        if now - self._second_began >= 1.0:
            self._rates.append((self._counts["steps"] - self._steps_before) / (now - self._second_began))
            self._second_began, self._steps_before = now, self._counts["steps"]

    def _result(self) -> RunResult:
        seconds = time.perf_counter() - self._began
        mean = self._counts["steps"] / seconds
        rates = (min(self._rates, default=mean), mean, max(self._rates, default=mean))
        assert self._stopped is not None
        return RunResult(
            self._counts["steps"],
            self._frames,
            self._agent.updates - self._updates_before,
            seconds,
            self._stopped,
            self._results,
            rates,
        )
