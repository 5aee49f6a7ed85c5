"""`distrl evaluate`: play greedy episodes with a policy, during a training or after it."""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.apps.commands.collecting import collect, mean_return_of
from distrl.apps.commands.help import takes
from distrl.apps.commands.off_policy import DataOptions, estimate, is_about_data
from distrl.apps.commands.options import WeightsOfRunArgument, WeightsOption, set_option
from distrl.apps.commands.printing import echo
from distrl.apps.commands.stored import with_weights
from distrl.apps.config.configuration import load
from distrl.config.document import parse
from distrl.config.stores import is_store_url
from distrl.errors import EXIT_INTERRUPTED, ConfigError
from distrl.metrics.phrases import known, return_words

if TYPE_CHECKING:
    from distrl.serving.evaluation import Episode, Subject, Video

EpsilonOption = Annotated[
    float | None,
    typer.Option(min=0.0, max=1.0, metavar="E", help="Probability of a random action; else the run's, 0: greedy."),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        metavar="random|constant|module:function",
        help="A policy that learned nothing, or a function of yours, in place of the run's policy.",
    ),
]
ActionOption = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]VALUE", help="Of --baseline constant; choices count from 0; one for each action."),
]
TogetherOption = Annotated[
    int, typer.Option(min=1, metavar="B", help="Environments that step together; each plays its share.")
]
EnvironmentOption = Annotated[
    str | None, typer.Option(metavar="ID", help="For --baseline or FILE.onnx: an environment, without a run.")
]
VideoOption = Annotated[
    Path | None, typer.Option(metavar="FILE.webm", help="Film the first episodes of the first environment.")
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Steps after which an episode is cut short; 0: never; else the run's."),
]
OtherOption = Annotated[
    str | None,
    typer.Option("--in", metavar="NAME", help="Play in this one of the run's evaluation.other_environments."),
]


@takes(DataOptions)
def evaluate(
    recorded: DataOptions,
    context: typer.Context,
    run: WeightsOfRunArgument = None,
    episodes: Annotated[int, typer.Option(min=0, metavar="N", help="Number; 0: endlessly, until Ctrl-C.")] = 100,
    checkpoint: WeightsOption = "newest",
    environments: TogetherOption = 10,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the environments.")] = 0,
    video: VideoOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing film.")] = False,
    video_episodes: Annotated[int, typer.Option(min=1, metavar="K", help="Number of episodes that --video films.")] = 1,
    env: EnvironmentOption = None,
    sets: Annotated[list[str] | None, set_option("With --env: like environment.kwargs.size=8")] = None,
    baseline: BaselineOption = None,
    action: ActionOption = None,
    epsilon: EpsilonOption = None,
    max_episode_steps: LimitOption = None,
    other: OtherOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Play greedy episodes with the policy of a run, or of a file that distrl export wrote: returns and lengths.

    [cyan]distrl evaluate runs/first --episodes 100[/]

    [cyan]distrl evaluate runs/first --checkpoint best --video best.webm[/]

    [cyan]distrl evaluate runs/pong --epsilon 0.05[/]

    [cyan]distrl evaluate runs/first --in hard[/]

    [cyan]distrl evaluate --env CartPole-v1 --baseline random[/]

    [cyan]distrl evaluate --env CartPole-v1 --baseline constant --action 1[/]

    [cyan]distrl evaluate --env CartPole-v1 --baseline my_module:policy[/]

    [cyan]distrl evaluate policy.onnx --env CartPole-v1[/]

    [cyan]distrl evaluate runs/first --data cartpole/random --estimator wis,fqe --interval[/]
    """
    if is_about_data(context, recorded):
        return estimate(recorded, run, checkpoint, epsilon, seed, as_json=as_json)
    # Imported here: it brings environments and ONNX Runtime, which the help does not need.
    from distrl.serving.evaluation import play

    options = _Options(env, sets or (), baseline, action or (), epsilon, other)
    subject, run, checkpoint = _chosen(run, checkpoint, options)
    if max_episode_steps is not None:
        subject = replace(subject, max_episode_steps=max_episode_steps or None)
    film = _film(video, video_episodes, replaced=force)
    began = time.monotonic()
    with _output_of_environments_apart():
        playing = play(subject, episodes=episodes or None, environments=environments, seed=seed, video=film)
        ended, interrupted = collect(playing, episodes, "episodes", mean_return_of)
    report = _report(subject, ended, run, checkpoint, baseline, seed, complete=len(ended) == episodes)
    report |= {"in": other, "wall_s": time.monotonic() - began}
    echo(json.dumps(report, indent=2) if as_json else _text(subject, report, video if ended else None))
    if interrupted and episodes:
        raise typer.Exit(EXIT_INTERRUPTED)


def _film(path: Path | None, episodes: int, *, replaced: bool) -> "Video | None":
    """Return the film that is to be made; None: none is."""
    from distrl.serving.evaluation import Video

    if replaced and path is None:
        raise ConfigError("--force goes with --video FILE.webm")
    return None if path is None else Video(path, episodes, replaced=replaced)


@dataclass(frozen=True)
class _Options:
    """The options that choose policy and environment, as they were given."""

    env: str | None
    sets: Sequence[str]
    baseline: str | None
    action: Sequence[str]
    epsilon: float | None
    other: str | None


def _chosen(run: str | None, checkpoint: str, options: _Options) -> "tuple[Subject, str | None, str]":
    """Return what is evaluated, with the names of run, or file, and checkpoint for the report."""
    if run is not None and run.endswith(".onnx") and not is_store_url(run):
        return _of_file(Path(run), checkpoint, options), run, checkpoint
    run_dir = None
    if run is not None:
        run_dir, checkpoint = with_weights(run, checkpoint)
        run = run if is_store_url(run) else str(run_dir)
    return _subject(run_dir, run, checkpoint, options), run, checkpoint


def _of_file(path: Path, checkpoint: str, options: _Options) -> "Subject":
    """Return the policy of an exported file; its environment is the one that it was trained in, unless named."""
    from distrl.serving import evaluation
    from distrl.serving.exported_policy import load_policy

    of_runs = {
        "--baseline": options.baseline,
        "--action": " ".join(options.action) or None,
        "--epsilon": options.epsilon,
        "--in": options.other,
        "--checkpoint": None if checkpoint == "newest" else checkpoint,
    }
    for option, given in of_runs.items():
        if given is not None:
            raise ConfigError(f"{option} {given} goes with a run; {path} is one policy, which acts greedily")
    policy = load_policy(path)
    env = options.env or policy.spec.id
    _check_sets_of_environment(options.sets, env)
    return evaluation.exported_policy(path, policy, load(None, None, options.sets, {"--env": env}).config)


def _subject(run: Path | None, name: str | None, checkpoint: str, options: _Options) -> "Subject":
    """Return the policy and environment of the command line, which names exactly one policy.

    Args:
        name: The run's name to the user: its directory, or its place in a data store.
    """
    from distrl.serving import evaluation

    env, baseline, other = options.env, options.baseline, options.other
    if (run is None) == (env is None):
        raise ConfigError(
            "what to evaluate? A run or a file, distrl evaluate RUN, or a baseline: --env ID --baseline random"
        )
    if options.sets and env is None:
        raise ConfigError("--set goes with --env; the environment of a run is settled")
    if other is not None and run is None:
        raise ConfigError(f"--in {other} names an environment of a run; --env ID is one by itself")
    if options.action and baseline is None:
        raise ConfigError("--action goes with --baseline constant")
    if baseline is None:
        if run is None:
            raise ConfigError("--env needs --baseline random or constant; a policy is evaluated by its run")
        subject = evaluation.saved_policy(run, checkpoint, options.epsilon, other)
        return replace(subject, name=f"policy of {name}, {checkpoint}") if is_store_url(str(name)) else subject
    of_policies = {"epsilon": options.epsilon, "checkpoint": None if checkpoint == "newest" else checkpoint}
    for option, given in of_policies.items():
        if given is not None:
            raise ConfigError(f"--{option} {given} goes with a run's own policy, not with --baseline")
    _check_sets_of_environment(options.sets, env)
    config = evaluation.run_config(run) if run else load(None, None, options.sets, {"--env": env}).config
    return evaluation.baseline(baseline, config, _actions(options.action), other)


def _check_sets_of_environment(sets: Sequence[str], env: str | None) -> None:
    """Refuse settings of anything but the environment, and of its id, which `env` is."""
    for dotted in (assignment.partition("=")[0].strip() for assignment in sets):
        if dotted == "environment.id":
            raise ConfigError(f"--set environment.id: --env {env} names the environment")
        if not dotted.startswith("environment."):
            raise ConfigError(f"--set {dotted}: only the environment is settled here; set environment.<what>")


def _actions(given: Sequence[str]) -> dict[str | None, Any]:
    """Return action -> value; None stands for the only action."""
    values: dict[str | None, Any] = {}
    for name, value in map(_parse_action, given):
        if name in values:
            raise ConfigError(f"--action {'' if name is None else f'{name}='}{value}: that action has a value already")
        values[name] = value
    return values


def _parse_action(text: str) -> tuple[str | None, Any]:
    name, equals, value = text.rpartition("=")
    return (name if equals else None), parse(value, f"--action {text}")


def _report(
    subject: "Subject",
    ended: "Sequence[Episode]",
    run: str | None,
    checkpoint: str,
    baseline: str | None,
    seed: int,
    *,
    complete: bool,
) -> dict[str, Any]:
    """Return the JSON object. Values that need an episode are null before one has ended."""
    from distrl.serving.evaluation import metric_means, success_rate

    returns, lengths = [episode.total for episode in ended], [episode.length_steps for episode in ended]
    mean = fmean(returns) if returns else None
    return {
        "run": run,
        "environment": subject.environment.id,
        "policy": baseline or checkpoint,
        "weights_version": subject.weights_version,
        "env_steps_trained": subject.env_steps,
        "epsilon": subject.epsilon,
        "seed": seed,
        "episodes": len(ended),
        "complete": complete,
        "mean_return": mean,
        "std_return": None if mean is None else fmean((value - mean) ** 2 for value in returns) ** 0.5,
        "min_return": min(returns, default=None),
        "max_return": max(returns, default=None),
        "mean_length_steps": fmean(lengths) if lengths else None,
        "success_rate": success_rate(ended),
        "metrics": metric_means(ended),
        "cut_episodes": sum(episode.cut for episode in ended),
        "returns": returns,
        "lengths_steps": lengths,
    }


def _text(subject: "Subject", report: Mapping[str, Any], video: Path | None) -> str:
    behind = "" if report["env_steps_trained"] is None else f", {report['env_steps_trained']:,} environment steps"
    chance = f", epsilon {subject.epsilon:g}" if subject.epsilon else ""
    name = "" if report["in"] is None else f" ({report['in']})"
    lines = [f"{report['environment']}{name} · {subject.name}{behind}{chance}"]
    if not report["episodes"]:
        return "\n".join([*lines, "  no episode finished"])
    mean, deviation, least, most = (
        return_words(report[name]) for name in ("mean_return", "std_return", "min_return", "max_return")
    )
    lengths = report["lengths_steps"]
    count = f"{report['episodes']:,} episode{'s' * (report['episodes'] != 1)}"
    lines.append(f"  return   {mean} ± {deviation} over {count} · min {least} · max {most}")
    lines.append(
        f"  length   {report['mean_length_steps']:,.1f} steps mean · min {min(lengths):,} · max {max(lengths):,}"
    )
    if report["success_rate"] is not None:
        lines.append(f"  success  {report['success_rate']:.1%} of episodes")
    width = max(map(len, report["metrics"]), default=0)
    for key, value in report["metrics"].items():
        lines.append(
            f"  {key:<{max(width, 7)}}  {known(value, lambda mean: f'{return_words(mean)} mean', 'not in info')}"
        )
    if report["cut_episodes"]:
        lines.append(f"  cut      {report['cut_episodes']:,} of them after {subject.max_episode_steps:,} steps")
    if not report["complete"]:
        lines.append("  stopped before all had ended: short episodes count for more than their share")
    if video is not None:
        lines.append(f"  film     {video}")
    return "\n".join(lines)


@contextmanager
def _output_of_environments_apart() -> Iterator[None]:
    """While inside, output of environments, also from C, goes to standard error: standard output is for the result."""
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
