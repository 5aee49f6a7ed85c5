"""`distrl evaluate`: a saved policy, or a baseline, plays episodes in this process."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distrl.actors.baselines import ConstantPolicy, MemorylessPolicy, OwnPolicy
from distrl.actors.evaluator import (
    ActingPolicy,
    Episode,
    Evaluator,
    GreedyPolicy,
    SampledPolicy,
    metric_means,
    share_of,
    success_rate,
    with_epsilon,
)
from distrl.actors.policy import Policy
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.config.load import config_of_run
from distrl.config.secrets import masked_settings
from distrl.environments.films import Recorder, renderable
from distrl.environments.random_actions import RandomActions
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, MissingExtraError
from distrl.learner.policy_files import read_policy
from distrl.networks.actions.family import UndrawnFamily
from distrl.serving.exported_policy import ExportedPolicy, PolicyState
from distrl.types import Array, ArraySpec, EnvSpec
from distrl.user_classes import own_class

__all__ = [
    "Episode",
    "Subject",
    "Video",
    "baseline",
    "exported_policy",
    "metric_means",
    "play",
    "run_config",
    "saved_policy",
    "success_rate",
]


@dataclass(frozen=True)
class Subject:
    """A policy and its environment.

    Attributes:
        name: Shown to the user.
        make_policy: Make the policy for an environment of that spec; ConfigError if they do not fit.
        env_steps: Environment steps of its training; None if unknown, and for a baseline.
        weights_version: None for a baseline.
        epsilon: Probability of a random action at every step.
        max_episode_steps: Steps after which an episode is cut short; None: none is.
    """

    name: str
    environment: EnvironmentConfig
    make_policy: Callable[[EnvSpec, np.random.Generator], ActingPolicy]
    env_steps: int | None = None
    weights_version: int | None = None
    epsilon: float = 0.0
    max_episode_steps: int | None = None


@dataclass(frozen=True)
class Video:
    """A film of the first `episodes` of the first environment, as .webm or .mp4; `replaced`: overwrite the file."""

    path: Path
    episodes: int = 1
    replaced: bool = False


class EarlierPolicy(GreedyPolicy):
    """The policy of an earlier version, which takes categories as one-hot rows."""

    def __init__(self, policy: Policy, observations: Mapping[str, ArraySpec]) -> None:
        super().__init__(policy)
        self._observations = observations

    def choose(
        self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return (actions, next recurrent state), name -> [B, ...] each."""
        met = {name: self._observations[name].expand(rows) for name, rows in observations.items()}
        return super().choose(met, recurrent_state)


def run_config(run_dir: Path) -> RunConfig:
    """Read the configuration of a run.

    Raises:
        ConfigError: There is none, or it is a data store's copy, in which a secret of the environment is masked.
    """
    if not (run_dir / "config.yaml").is_file():
        raise ConfigError(f"{run_dir} is not a run's directory: it holds no config.yaml")
    config = config_of_run(run_dir)
    _refuse_masked({"environment": config.environment.model_dump(mode="json")})
    return config


def environment_of(config: RunConfig, other: str | None) -> EnvironmentConfig:
    """Return the environment that a run trains in, or one of its `evaluation.other_environments` by name.

    Raises:
        ConfigError: There is none of that name, or a data store has masked one of its secrets.
    """
    if other is None:
        return config.environment
    if other not in config.other_environments:
        known = ", ".join(config.other_environments) or "none"
        raise ConfigError(f"--in {other}: the run's evaluation.other_environments are {known}")
    found = config.other_environments[other]
    _refuse_masked({"evaluation": {"other_environments": {other: {"id": found.id, "kwargs": found.kwargs}}}})
    return found


def _refuse_masked(settings: Mapping[str, Any]) -> None:
    for dotted in masked_settings(settings):
        raise ConfigError(f"{dotted} is a secret, which a data store does not keep: evaluate the run's own directory")


def saved_policy(
    run_dir: Path, checkpoint: str, epsilon: float | None = None, other: str | None = None, *, greedy: bool = True
) -> Subject:
    """Return a run's policy in the environment that it trains in.

    Args:
        epsilon: Probability of a random action at every step, otherwise the best one; None: `evaluation.epsilon`.
        other: One of `evaluation.other_environments` in place of the training's.
        greedy: Take the best action; otherwise draw one from the policy's distribution, if it has one.
    """
    config = run_config(run_dir)
    environment = environment_of(config, other)
    chance = config.evaluation.epsilon if epsilon is None else epsilon
    saved = read_policy(run_dir, checkpoint)
    policy = Policy(saved.bundle)
    policy.set_weights(saved.weights)
    drawn = not (greedy or any(isinstance(family, UndrawnFamily) for family in policy.distributions.values()))

    def make(spec: EnvSpec, rng: np.random.Generator) -> ActingPolicy:
        takes_rows = all(array.categories is None for array in policy.spec.observations.values())
        if other is not None:
            config.evaluation.check_spaces(other, policy.spec, spec)
            acting: ActingPolicy = GreedyPolicy(policy)
        elif spec == policy.spec:
            acting = SampledPolicy(policy, rng) if drawn else GreedyPolicy(policy)
        elif takes_rows and spec.expanded == policy.spec.expanded:
            acting = EarlierPolicy(policy, spec.observations)
        else:
            raise ConfigError(f"the policy of {run_dir} was made for {policy.spec}, here the environment is {spec}")
        return with_epsilon(acting, spec, config.network.action_mask, chance, rng)

    name = f"policy of {run_dir}, {checkpoint}"
    limit = config.evaluation.max_episode_steps
    return Subject(name, environment, make, saved.env_steps, saved.weights.version, chance, limit)


def exported_policy(path: Path, policy: ExportedPolicy, config: RunConfig) -> Subject:
    """Return the policy that was loaded from a file, in the environment of a configuration."""
    exported = policy.exported

    def make(spec: EnvSpec, rng: np.random.Generator) -> ActingPolicy:
        if difference := policy.spec.unlike(spec):
            raise ConfigError(f"{path} does not fit {spec.id}: {difference}; name its environment: --env ID")
        return FromFile(policy)

    limit = config.evaluation.max_episode_steps
    return Subject(
        f"policy of {path}",
        config.environment.model_copy(update={"image_channels": "last"}),  # the policy turns images itself
        make,
        exported.env_steps,
        exported.weights_version,
        max_episode_steps=limit,
    )


class FromFile:
    """Acts as an exported policy does, whose state it keeps as arrays: a row of zeros stands for an episode's start."""

    def __init__(self, policy: ExportedPolicy) -> None:
        self._policy = policy

    def initial_state(self, batch: int) -> dict[str, Array]:
        """Return the state before an episode, name -> [batch, ...]."""
        return _rows_of(self._policy.fresh(batch))

    def choose(
        self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return (actions, next state), name -> [B, ...] each."""
        kept = {
            kind: {name.removeprefix(kind): rows for name, rows in recurrent_state.items() if name.startswith(kind)}
            for kind in (_RECURRENT, _STACK)
        }
        begins = recurrent_state[_GOES_ON] == 0
        before = PolicyState(kept[_RECURRENT], kept[_STACK], begins)
        actions, after = self._policy.choose(dict(observations), before)
        return actions, _rows_of(after)


_RECURRENT, _STACK, _GOES_ON = "recurrent/", "stack/", "goes on"


def _rows_of(state: PolicyState) -> dict[str, Array]:
    return {
        **{f"{_RECURRENT}{name}": rows for name, rows in state.recurrent.items()},
        **{f"{_STACK}{name}": rows for name, rows in state.stacks.items()},
        _GOES_ON: (~state.begins).astype(np.uint8),
    }


def baseline(kind: str, config: RunConfig, values: Mapping[str | None, Any], other: str | None = None) -> Subject:
    """Return a policy that learned nothing.

    Args:
        kind: "random", "constant", or module:function, see `OwnPolicy`.
        other: As for `saved_policy`.
        values: For "constant": action -> its value; None stands for the only action that there is.

    Raises:
        ConfigError: No such baseline, or values for one that chooses its own.
    """
    if kind not in ("random", "constant"):
        if ":" not in kind:
            raise ConfigError(f"--baseline {kind} is none of random, constant, module:function")
        function = own_class(kind, "--baseline")
    if kind != "constant" and values:
        raise ConfigError(f"--action is of --baseline constant; {kind} chooses its own")

    def make(spec: EnvSpec, rng: np.random.Generator) -> ActingPolicy:
        if kind == "random":
            return MemorylessPolicy(RandomActions(spec, rng, config.network.action_mask))
        if kind != "constant":
            return OwnPolicy(function, spec.actions, f"--baseline {kind}")
        if None in values and len(spec.actions) > 1:
            raise ConfigError(f"--action: name the action, NAME=VALUE; there are {', '.join(spec.actions)}")
        (first, *_) = spec.actions
        return ConstantPolicy(spec.actions, {name or first: value for name, value in values.items()})

    return Subject(
        f"{kind} policy", environment_of(config, other), make, max_episode_steps=config.evaluation.max_episode_steps
    )


def play(
    subject: Subject, *, episodes: int | None, environments: int, seed: int, video: Video | None = None
) -> Iterator[Episode]:
    """Play exactly that many episodes, or endlessly, and yield each as it ends.

    Args:
        environments: Number that step together, at most `episodes`.
        video: Complete when the iterator has ended, or is closed, which cuts it short.

    Raises:
        ConfigError: The environment cannot be made, does not fit the policy, or has no pictures to film.
        EnvironmentFailedError: It raised.
    """
    count = environments if episodes is None else min(environments, episodes)
    config = subject.environment if video is None else _filmed(subject.environment, video, episodes, count)
    environment_seed, policy_seed = np.random.SeedSequence(seed, spawn_key=(4,)).spawn(2)
    with ExitStack() as cleanup:
        environment = _make(config, count, filmed=video is not None)
        cleanup.callback(environment.close)
        policy = subject.make_policy(environment.spec, np.random.default_rng(policy_seed))
        recorder = None
        if video is not None:
            recorder = Recorder(environment, video.path, video.episodes, replaced=video.replaced)
            cleanup.enter_context(recorder)
        watch = None if recorder is None else recorder.watch
        evaluator = Evaluator(policy, environment, subject.max_episode_steps, watch)
        yield from evaluator.episodes(episodes, int(environment_seed.generate_state(1)[0]))


def _make(config: EnvironmentConfig, count: int, *, filmed: bool) -> VectorEnvironment:
    try:
        return VectorEnvironment(config, count)
    except MissingExtraError:
        raise
    except ConfigError as error:
        if filmed:
            raise ConfigError(f"--video: {error}") from error
        raise


def _filmed(config: EnvironmentConfig, video: Video, episodes: int | None, environments: int) -> EnvironmentConfig:
    share = None if episodes is None else share_of(0, episodes, environments)
    if share is not None and video.episodes > share:
        raise ConfigError(
            f"--video-episodes {video.episodes}: the environment that is filmed plays {share} of {episodes} episodes; "
            "film fewer, or play in fewer --environments"
        )
    return renderable(config)
