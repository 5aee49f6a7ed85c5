"""`distrl record` and `distrl data`: recorded episodes, made and looked at."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.apps.commands.collecting import collect, mean_return_of
from distrl.apps.commands.help import App
from distrl.apps.commands.options import ColumnsOption, WeightsOfRunArgument, WeightsOption, set_option
from distrl.apps.commands.printing import echo
from distrl.apps.commands.stored import with_weights
from distrl.apps.config.configuration import load
from distrl.config import RunConfig
from distrl.config.document import parse, parse_mapping
from distrl.errors import EXIT_INTERRUPTED, ConfigError, printable

if TYPE_CHECKING:
    from distrl.data.episodes import EpisodeWriter
    from distrl.data.keyboard import Keyboard
    from distrl.environments.vector import VectorEnvironment
    from distrl.serving.evaluation import Episode, Subject

RANDOM, HUMAN = "random", "human"
app = App(help="Look at recorded episodes.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A data set of Minari, a CSV or Parquet file.")]
EnvironmentOption = Annotated[
    str | None, typer.Option("--env", metavar="ID", help="Environment; default: that of the recording, or of the run.")
]


@app.callback()
def _group() -> None:
    """Look at recorded episodes."""


def record(
    output: Annotated[
        str,
        typer.Option(metavar="NAME|FILE", help="A new data set of Minari, by name or path; FILE.parquet, FILE.csv."),
    ],
    run: WeightsOfRunArgument = None,
    episodes: Annotated[int, typer.Option(min=1, metavar="N", help="Number of episodes.")] = 100,
    env: EnvironmentOption = None,
    sets: Annotated[list[str] | None, set_option("With --env: like environment.kwargs.size=8")] = None,
    checkpoint: WeightsOption = "newest",
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Take the best action; else draw it from the policy, if that draws.")
    ] = False,
    epsilon: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="E", help="Probability of a random action at every step.")
    ] = 0.0,
    environments: Annotated[int, typer.Option(min=1, metavar="B", help="Environments that step together.")] = 10,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of environments and actions.")] = 0,
    keys: Annotated[
        str | None, typer.Option(metavar="{KEY: ACTION}", help="With human: key -> action; none: while no key is down.")
    ] = None,
) -> None:
    """Record episodes of a run's policy, an exported one, random actions or yours, as a data set of Minari or a table.

    [cyan]distrl record runs/first --episodes 200 --output cartpole/expert[/]

    [cyan]distrl record runs/first@best --greedy --epsilon 0.1 --output cartpole/medium[/]

    [cyan]distrl record policy.onnx --env CartPole-v1 --output cartpole/exported[/]

    [cyan]distrl record random --env Pendulum-v1 --output pendulum.parquet[/]

    [cyan]distrl record human --env CartPole-v1 --keys '{left: 0, right: 1}' --output cartpole/mine[/]
    """
    from distrl.environments.vector import VectorEnvironment

    if keys is not None and run != HUMAN:
        raise ConfigError("--keys goes with a person who acts: distrl record human --env ID")
    subject, uniform = _subject(run, checkpoint, env, sets or (), epsilon, greedy=greedy)
    environment = VectorEnvironment(subject.environment, 1 if run == HUMAN else min(environments, episodes))
    with closing(environment), ExitStack() as beside:
        if run == HUMAN:
            keyboard = beside.enter_context(_keyboard(environment, keys))
            subject = replace(subject, make_policy=lambda _spec, _rng: keyboard)
        writer, playing = _recording(subject, environment, episodes, output, seed, uniform=uniform)
        try:
            ended, interrupted = collect(playing, episodes, "episodes", mean_return_of)
        except BaseException:
            writer.abandon()
            raise
    if not ended:
        writer.abandon()
        raise typer.Exit(EXIT_INTERRUPTED)
    path = writer.finish()
    steps = sum(episode.length_steps for episode in ended)
    mean = sum(episode.total for episode in ended) / len(ended)
    echo(f"{len(ended):,} episodes, {steps:,} steps, mean return {mean:.4g}: {path}")
    if interrupted and run != HUMAN:  # a person ends it so
        raise typer.Exit(EXIT_INTERRUPTED)


def _keyboard(environment: "VectorEnvironment", keys: str | None) -> "Keyboard":
    from distrl.data.keyboard import Keyboard

    given = None if keys is None else parse_mapping(keys, "--keys")
    if given == {}:
        raise ConfigError("--keys {} has no key; write --keys '{left: 0, right: 1}', or leave it out")
    return Keyboard(environment, given)


def _recording(
    subject: "Subject", environment: "VectorEnvironment", episodes: int, output: str, seed: int, *, uniform: bool
) -> "tuple[EpisodeWriter, Iterator[Episode]]":
    """Return the new data set, and the episodes that are played for it.

    Args:
        uniform: Whether all actions are equally likely.
    """
    import numpy as np

    from distrl.data.opening import new_set
    from distrl.data.recording import record, uniform_log_probability

    environment_seed, policy_seed = np.random.SeedSequence(seed, spawn_key=(6,)).spawn(2)
    policy = subject.make_policy(environment.spec, np.random.default_rng(policy_seed))
    vector = environment.vector
    spaces = vector.single_observation_space, vector.single_action_space
    about = {"algorithm_name": subject.name, "description": "recorded by distrl"}
    writer = new_set(output, subject.environment.id, *spaces, about)
    playing = record(
        policy,
        environment,
        episodes,
        writer,
        seed=int(environment_seed.generate_state(1)[0]),
        most_steps=subject.max_episode_steps,
        log_probability=uniform_log_probability(environment.spec.actions) if uniform else None,
    )
    return writer, playing


def _subject(
    run: str | None, checkpoint: str, env: str | None, sets: Sequence[str], epsilon: float, *, greedy: bool
) -> "tuple[Subject, bool]":
    """Return who acts where, and whether all actions are equally likely."""
    from pathlib import Path

    from distrl.environments.films import renderable
    from distrl.serving import evaluation
    from distrl.serving.exported_policy import load_policy

    if run is None:
        raise ConfigError("who acts? A run, a file of distrl export, human, or random: distrl record random --env ID")
    if sets and env is None:
        raise ConfigError("--set goes with --env; the environment of a run is settled")
    if run in (RANDOM, HUMAN):
        if env is None:
            raise ConfigError(f"{run} actions in which environment? distrl record {run} --env ID")
        config = load(None, None, sets, {"--env": env}).config
        if run == HUMAN:
            shown = renderable(config.environment.model_copy(update={"preprocessing": ()}))
            return replace(evaluation.baseline(RANDOM, config, {}), name=HUMAN, environment=shown), False
        return evaluation.baseline(RANDOM, config, {}), config.network.action_mask is None
    if run.endswith(".onnx"):
        if epsilon or greedy:
            raise ConfigError(f"--epsilon and --greedy go with a run; {run} acts greedily")
        policy = load_policy(Path(run))
        config = load(None, None, sets, {"--env": env or policy.spec.id}).config
        return evaluation.exported_policy(Path(run), policy, config), False
    if env is not None:
        raise ConfigError(f"--env {env}: the policy of a run acts in the run's environment; leave it out")
    directory, checkpoint = with_weights(run, checkpoint)
    return evaluation.saved_policy(directory, checkpoint, epsilon, greedy=greedy), False


@app.command()
def show(
    name: NameArgument,
    env: EnvironmentOption = None,
    columns: ColumnsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show a data set: spaces, episodes, returns, how episodes ended, missing values, actions.

    [cyan]distrl data show cartpole/expert[/]

    [cyan]distrl data show acrobot.csv --columns coach --env Acrobot-v1[/]
    """
    from distrl.data.opening import opened
    from distrl.data.playing import spaces_of
    from distrl.data.summary import summary

    config = _config(name, env, columns)
    found = summary(opened(config.data.sets[0], spaces_of(config.environment)))
    echo(json.dumps(found, indent=2) if as_json else _text(found))


@app.command()
def check(name: NameArgument, env: EnvironmentOption = None, columns: ColumnsOption = None) -> None:
    """Check that an environment could have shown, done and paid all that a data set holds.

    [cyan]distrl data check cartpole/expert --env CartPole-v1[/]
    """
    from distrl.data.playing import Playing
    from distrl.environments.probe import probe

    config = _config(name, env, columns)
    playing = Playing(config, probe(config.environment))
    for _ in playing.unrolls({}):
        pass
    echo(f"{name} fits {config.environment.id}: {playing.steps:,} steps")


def _config(name: str, env: str | None, columns: str | None) -> RunConfig:
    """Return a configuration that learns from that data, in its environment."""
    from distrl.config.data import TABLES, absolute
    from distrl.data.minari_sets import recorded_environment

    given = {"name": name} | ({} if columns is None else {"columns": parse(columns, "--columns")})
    env = env or (None if name.endswith(TABLES) else recorded_environment(absolute(name)))
    if env is None:
        raise ConfigError(f"{name} does not say which environment it is of; name it: --env ID")
    sets = [f"data.sets={json.dumps([given])}", "algorithm.name=dqn", "actors.count=0"]
    return load(None, None, sets, {"--env": env}).config


def _text(found: dict[str, Any]) -> str:
    returns, lengths = found["return"], found["length_steps"]
    ends = f"{found['terminated']:,} terminated, {found['truncated']:,} cut off"
    known = found["episodes_with_behaviour_probabilities"]
    lines = [
        ("data set", found["name"]),
        ("environment", found["environment"] or "not recorded"),
        ("observations", found["observation_space"] or "as the environment's"),
        ("actions", found["action_space"]),
        ("episodes", f"{found['episodes']:,}: {ends}"),
        ("steps", f"{found['steps']:,}; an episode {lengths['min']:,.0f} to {lengths['max']:,.0f}"),
        ("returns", f"{returns['min']:,.4g} to {returns['max']:,.4g}, mean {returns['mean']:,.4g}"),
        ("quartiles", f"{returns['quarter']:,.4g}, {returns['median']:,.4g}, {returns['three_quarters']:,.4g}"),
        ("missing values", f"in {found['steps_with_missing_values']:,} steps"),
        ("probabilities of actions", f"known in {known:,} episodes"),
        *((f"action {place}", _spread(figures)) for place, figures in enumerate(found["actions"])),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(printable(f"{name:<{width}}  {text}") for name, text in lines)


def _spread(figures: dict[str, float]) -> str:
    if "mean" in figures:
        return f"{figures['min']:.3g} to {figures['max']:.3g}, mean {figures['mean']:.3g}, std {figures['std']:.3g}"
    return ", ".join(f"{choice}: {share:.1%}" for choice, share in figures.items())
