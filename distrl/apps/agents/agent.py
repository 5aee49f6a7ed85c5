"""`distrl.Agent`: code that owns its loop calls `act` and `observe`, and distrl learns."""

import os
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from distrl.apps.agents.joined import JoinedTraining
from distrl.apps.agents.loop import Loop, Newest, check_mask
from distrl.apps.agents.training import TrainingHere
from distrl.apps.config.configuration import Configuration, load
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.config.load import DEFAULT, LoadedConfig
from distrl.config.presets import nearest, presets
from distrl.config.remote_environment import GivenSpaces
from distrl.errors import ConfigError, DistrlError
from distrl.launch.run_to_join import NamedRun, RunOfDirectory, RunToJoin
from distrl.roles.trust import Trust, given_key
from distrl.runs.run_directory import named_directory
from distrl.runs.summary import Summary

if TYPE_CHECKING:
    from gymnasium import Env, Space

ONE_PROCESS = ("actors.count=0", "launch.mode=here")
OWN_LOOP = "own-loop"
"""Name of an environment of which there are spaces alone."""


class Agent:
    """Acts in a loop that is not distrl's, and learns from it in this process.

        with distrl.Agent("cartpole-ppo") as agent:
            while agent.ended is None:
                observation, _ = env.reset()
                over = False
                while not over:
                    action = agent.act(observation)
                    observation, reward, terminated, truncated, _ = env.step(action)
                    agent.observe(reward, terminated, truncated, observation)
                    over = terminated or truncated

    The run's directory is an ordinary one: pages, plots, evaluation, export and `resume` read it. Calls from several
    threads are an error of the caller's.

    Args:
        config: Name of a preset, of an algorithm, or of a YAML file; a configuration made in Python or by
            `distrl.load`; or any part of the tree as a mapping; None: that of the run to `resume`.
        observation_space: Gymnasium's space of the loop's observations; None: that of the environment that the
            configuration names, which is made once to read its spaces.
        action_space: Likewise, of its actions; both or neither.
        sets: "dotted.path=value" to change in the configuration.
        run_dir: The run's directory; None: a new one under runs/.
        resume: As of `distrl.train`: "auto", or a run to go on with.
        view: How progress is shown, as of `distrl.train`; None: "quiet".
        automatic: Learn as soon as there is a batch, within `act` and `observe`; False: only within `update`.
        run: Join a run that goes on elsewhere as one more actor: its directory, or its id. `act` then waits where
            actors do, such as for room. All further arguments but the spaces are the run's.
        redis_url: Redis of the run with this id, whose key is in DISTRL_RUN_KEY.

    Raises:
        ConfigError: A space is not supported, or the configuration is one that a loop of your own cannot have.
    """

    def __init__(
        self,
        config: str | Mapping[str, Any] | Configuration | LoadedConfig | None = None,
        *,
        observation_space: "Space[Any] | None" = None,
        action_space: "Space[Any] | None" = None,
        sets: Sequence[str] = (),
        run_dir: str | Path | None = None,
        resume: str | None = None,
        view: str | None = None,
        automatic: bool = True,
        run: str | Path | None = None,
        redis_url: str | None = None,
    ) -> None:
        spaces = given_spaces(observation_space, action_space)
        if run is not None:
            given = {"config": config, "sets": sets, "run_dir": run_dir, "resume": resume, "view": view}
            refuse(given | {"automatic": not automatic})
            self._join(run, redis_url, spaces)
            return
        if redis_url is not None:
            raise ConfigError("redis_url: it goes with run, the id of the run to join")
        loaded = of_run(resume, sets) if config is None else configured(config, sets)
        self._begin(loaded, spaces, run_dir, resume, view, automatic=automatic)

    @classmethod
    def of(
        cls,
        environment: "Env[Any, Any]",
        config: str | Mapping[str, Any] | Configuration | LoadedConfig = "ppo",
        *,
        sets: Sequence[str] = (),
        run_dir: str | Path | None = None,
        resume: str | None = None,
        view: str | None = None,
        automatic: bool = True,
    ) -> Self:
        """Make an agent for the spaces and limits of an environment, which you step yourself; see the class.

        If gymnasium makes the same environment of its id, the run has that id, so that `distrl evaluate` can play it.

        Raises:
            ConfigError: As of the class; or it is no single environment of gymnasium.
        """
        from distrl.environments.given import registered, spaces_of_environment  # here: it brings gymnasium

        agent, spaces = cls.__new__(cls), spaces_of_environment(environment)
        loaded = configured(config, sets)
        if (named := registered(environment, spaces)) is not None:
            loaded = loaded.with_values({"environment": {"id": named[0], "kwargs": named[1]}}, "distrl.Agent.of")
        agent._begin(loaded, None if named else spaces, run_dir, resume, view, automatic=automatic)
        return agent

    def _join(self, run: str | Path, redis_url: str | None, spaces: GivenSpaces | None) -> None:
        to_join: RunToJoin = RunOfDirectory(Path(run))
        if redis_url is not None:
            to_join = NamedRun(redis_url, str(run), lambda: Trust(given_key(), frozenset()))
        training = JoinedTraining(to_join, spaces)
        self._at(Path(run), training, training.config)

    def _at(self, run_dir: Path, training: TrainingHere | JoinedTraining, config: RunConfig) -> None:
        self.run_dir, self._training = run_dir, training
        self._mask, self._masks = config.network.action_mask, dict[Hashable, Any]()
        self._process = os.getpid()
        self._loops: dict[Hashable, Loop] = {}
        self._is_closed = False
        self._summary: Summary | None = None

    def _begin(
        self,
        loaded: LoadedConfig,
        spaces: GivenSpaces | None,
        run_dir: str | Path | None,
        resume: str | None,
        view: str | None,
        *,
        automatic: bool,
    ) -> None:
        loaded, environment = as_one_loop(loaded, spaces)
        import distrl  # here: it imports this module

        folder = distrl.run_directory(loaded.config, run_dir, resume)
        training = TrainingHere(
            loaded.config,
            environment,
            lambda here, interrupt: distrl._train(loaded, folder, resume, None, view or "quiet", (), interrupt, here),
            automatic=automatic,
        )
        self._at(folder, training, loaded.config)

    @property
    def ended(self) -> str | None:
        """Why the training has ended: a field of `stop`, such as "updates"; None: it goes on."""
        return self._training.ended

    @property
    def version(self) -> int:
        """Version of the newest weights."""
        return self._training.version

    @property
    def updates(self) -> int:
        """Updates of the learner so far, earlier launches included."""
        return self._training.updates

    def act(self, observation: Any, id: Hashable = 0, *, greedy: bool = False, mask: Any = None) -> Any:
        """Return the action for an observation.

        Args:
            observation: As the observation space says.
            id: The loop: each has episodes, recurrent state and unrolls of its own.
            greedy: Take the best action, and learn nothing from this episode.
            mask: 1 where a choice is allowed. It becomes the part of the observation, a mapping, that a head of the
                network names as its `action_mask`.

        Returns:
            An action as `step` of a gymnasium environment takes it.

        Raises:
            DistrlError: The newest action of the loop has no result yet; the observation is not of its space; the agent
                is closed; or the training has ended, or failed.
        """
        self._check_open("act")
        loop = self._loops.get(id)
        if not greedy:
            self._training.check_learns(begins=loop is None or not loop.open)
        if mask is not None:
            observation = self._masked(observation, mask)
            self._masks[id] = mask
        check_mask(self._mask, observation)
        if loop is None:
            loop = self._loops[id] = Loop(id, self._training.learning, self._training.greedy)
        return loop.act(observation, greedy=greedy)

    def observe(
        self,
        reward: float,
        terminated: bool,
        truncated: bool = False,
        observation: Any = None,
        *,
        id: Hashable = 0,
        metrics: Mapping[str, Any] | None = None,
    ) -> None:
        """Report what came of the loop's newest action.

        Args:
            reward: Finite.
            terminated: The episode is over: nothing of value follows.
            truncated: The episode was cut off, as by a time limit.
            observation: The one after the step. Needed if the episode was cut off; else the next `act` brings it.
            metrics: As a gymnasium environment's `info`: numbers that `environment.metrics` names, and `is_success`.

        Raises:
            DistrlError: The loop is unknown, or has no action without a result; or an argument is not as it must be.
        """
        self._check_open("observe")
        loop = self._known(id, "observe")
        if not isinstance(metrics, Mapping | None):
            raise DistrlError(f"observe: metrics is a {type(metrics).__name__}; give a mapping, such as info")
        if id in self._masks and isinstance(observation, Mapping) and self._mask not in observation:
            observation = self._masked(observation, self._masks[id])  # of no value where no action follows
        ends = {"terminated": truth("terminated", terminated), "truncated": truth("truncated", truncated)}
        loop.observe(reward, metrics or {}, observation=observation, **ends)

    def newest(self, id: Hashable = 0) -> Newest:
        """Return the way of a loop's newest action: preprocessed observation, recurrent state, the network's outputs.

        Raises:
            DistrlError: The action has a result already, or there is none.
        """
        self._check_open("newest")
        return self._known(id, "newest").newest()

    @property
    def batch(self) -> Any:
        """The newest batch that was trained on, as arrays; None before the first, and of a run that was joined."""
        return self._training.batch

    def update(self) -> Mapping[str, float]:
        """Let the learner make all updates for which there are batches.

        Returns:
            Metrics of the newest update, such as its loss; empty before the first.
        """
        self._check_open("update")
        self._training.update()
        return self._training.metrics

    def reset(self, id: Hashable | None = None) -> None:
        """Abandon the open episode of a loop, or of all; nothing is learned across the gap.

        Raises:
            DistrlError: There is no loop of this id.
        """
        self._check_open("reset")
        for loop in self._loops.values() if id is None else [self._known(id, "reset")]:
            loop.abandon()

    def forget(self, id: Hashable) -> None:
        """Abandon a loop that does not come back, and free its memory; its unroll that is not full is lost.

        Raises:
            DistrlError: There is no loop of this id.
        """
        self._check_open("forget")
        self._known(id, "forget")
        del self._loops[id]
        self._masks.pop(id, None)

    def save(self) -> Path:
        """Write a checkpoint; return the run's directory, for `resume`, `distrl evaluate` and `distrl export`."""
        self._check_open("save")
        self._training.save()
        return self.run_dir

    def close(self) -> Summary | None:
        """End the training in order, with a checkpoint, and return its summary; or leave the run that was joined.

        Raises:
            DistrlError: The training has failed.
        """
        if not self._is_closed:
            self._is_closed = True
            self._summary = self._training.close()
        return self._summary

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _known(self, id: Hashable, call: str) -> Loop:
        if id not in self._loops:
            known = ", ".join(map(repr, self._loops)) or "none"
            raise DistrlError(f"{call}: there is no loop {id!r}; known are {known}; act comes first")
        return self._loops[id]

    def _check_open(self, call: str) -> None:
        if os.getpid() != self._process:
            raise DistrlError(f"{call}: the agent belongs to the process that made it; make another one here")
        if self._is_closed:
            raise DistrlError(f"{call}: the agent is closed; make another one with resume={str(self.run_dir)!r}")

    def _masked(self, observation: Any, mask: Any) -> Any:
        if self._mask is None:
            raise DistrlError(
                "act(mask=…): no head masks its action; name a part of the observation in network.heads_parameters, as "
                "in [{kind: ppo, action_mask: action_mask}]"
            )
        if not isinstance(observation, Mapping):
            raise DistrlError(
                f"act(mask=…): it becomes the part {self._mask!r} of an observation of a Dict; this observation is a "
                f"{type(observation).__name__}"
            )
        return {**observation, self._mask: mask}


def given_spaces(observation_space: "Space[Any] | None", action_space: "Space[Any] | None") -> GivenSpaces | None:
    """Describe spaces that were given.

    Raises:
        ConfigError: One of them was not, or is of another kind.
    """
    if (observation_space is None) != (action_space is None):
        raise ConfigError("observation_space and action_space come together or not at all")
    if observation_space is None or action_space is None:
        return None
    from distrl.environments.given import spaces_of  # here: it brings gymnasium

    return spaces_of(observation_space, action_space)


def truth(name: str, value: Any) -> bool:
    """Return a flag; raise DistrlError if it is no truth value."""
    from distrl.environments.gym_adapter import flag_of  # here: it brings gymnasium

    try:
        return flag_of(name, value)
    except ValueError as error:
        raise DistrlError(f"observe: {error}") from error


def refuse(arguments: Mapping[str, object]) -> None:
    """Raise ConfigError if one of these arguments was given."""
    for name, value in arguments.items():
        if value:
            raise ConfigError(f"{name}: the run that is joined has its own; leave it out")


def configured(config: str | Mapping[str, Any] | Configuration | LoadedConfig, sets: Sequence[str]) -> LoadedConfig:
    """Return the configuration that is meant by a name, a part of the tree, or an object.

    Raises:
        ConfigError: It has no such preset or algorithm, or is not valid.
    """
    if isinstance(config, str) and config.endswith((".yaml", ".yml")):
        return load(file=config, sets=[*ONE_PROCESS, *sets])
    if isinstance(config, str) and config not in presets():
        from distrl.config.algorithms import ALGORITHMS

        if config not in ALGORITHMS:
            raise ConfigError(f"agent {config!r}: {nearest(config, [*presets(), *ALGORITHMS])}")
        config = {"algorithm": {"name": config}}
    if isinstance(config, Configuration):
        config = LoadedConfig.of(config)
    if isinstance(config, str | Mapping):
        return load(config, sets=[*ONE_PROCESS, *sets])
    if not isinstance(config, LoadedConfig):
        raise ConfigError(f"config is a {type(config).__name__}; name a preset or an algorithm, or use distrl.load")
    if sets:
        raise ConfigError("sets: the configuration is complete; give them to distrl.load")
    return config


def of_run(resume: str | None, sets: Sequence[str]) -> LoadedConfig:
    """Return the configuration of the run to go on with.

    Raises:
        ConfigError: There is none, or `resume` names no directory.
    """
    if resume is None or resume == "auto" or "://" in resume:
        raise ConfigError(f"config is missing: name a preset or an algorithm; resume={resume!r} names no directory")
    return load(file=named_directory(None, resume) / "config.yaml", sets=[*ONE_PROCESS, *sets])


def as_one_loop(loaded: LoadedConfig, spaces: GivenSpaces | None) -> tuple[LoadedConfig, EnvironmentConfig]:
    """Return the configuration of a training in this process, and its environment with spaces.

    Each loop is an actor of one row. A batch of the stream has as many rows as with the configuration's environments;
    a size without a number of environments counts unrolls of loops.

    Args:
        spaces: None: those of the environment that the configuration names.

    Raises:
        ConfigError: The configuration cannot be that of one process, or its environments follow a curriculum.
    """
    config = loaded.config
    if config.environment.action_repeat > 1:
        raise ConfigError("environment.action_repeat: your own code steps the environment; use distrl.Runner(repeat=…)")
    if config.learns_from_data:
        raise ConfigError(
            "data.sets: nothing acts in a run that learns from data alone; add data.share, or distrl.train it"
        )
    apart = spaces is not None or config.environment.spaces is not None
    for name, value in (("data.sets", config.data.sets), ("recording.name", config.recording.name)):
        if value and apart:
            raise ConfigError(f"{name}: it needs an environment that distrl can make, by environment.id")
    if config.environment.curriculum:
        raise ConfigError("environment.curriculum: your own code makes the environment, and distrl cannot change it")
    changes: dict[str, dict[str, Any]] = {"actors": {"count": 0, "environments": 1}, "launch": {"mode": "here"}}
    if (size := batch_of_loops(loaded)) is not None:
        changes["learner"] = {"batch_size": size}
    if spaces is None and config.environment.spaces is not None:
        loaded = loaded.with_values(changes, "distrl.Agent")
        return loaded, loaded.config.environment
    if spaces is None:
        from distrl.environments.given import spaces_of_named  # here: it brings gymnasium

        named = config.environment.model_copy(update={"spaces": spaces_of_named(config.environment)})
        return loaded.with_values(changes, "distrl.Agent"), named
    changes["environment"] = {"id": OWN_LOOP, "spaces": spaces.model_dump(mode="json")}
    loaded = loaded.with_values(changes, "distrl.Agent")
    return loaded, loaded.config.environment


def batch_of_loops(loaded: LoadedConfig) -> int | None:
    """Return the size of a batch of unrolls of one row each that has as many rows as the configuration's; None: that.

    A batch size that comes without a number of environments counts unrolls of a loop.
    """
    config, origins = loaded.config, loaded.origins
    of_loops = origins["actors.environments"] == DEFAULT != origins["learner.batch_size"]
    if config.algorithm.replay_parameters is not None or config.algorithm.ships != "unrolls" or of_loops:
        return None
    return config.batch_size * config.actors.environments
