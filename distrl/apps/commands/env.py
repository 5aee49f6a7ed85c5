"""`distrl env`: look at environments."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.apps.commands.help import App
from distrl.apps.commands.options import PresetOption, set_option
from distrl.apps.commands.printing import echo
from distrl.apps.config.configuration import load
from distrl.errors import ConfigError, printable

if TYPE_CHECKING:
    from distrl.environments.check import (
        CheckedEpisode,
        CheckedSpaces,
        Finding,
        FirstObservation,
        Infos,
        Processed,
        Speed,
    )
    from distrl.types import ActionSpec, ArraySpec, EnvSpec


app = App(help="Look at environments.")


@app.callback()
def _group() -> None:
    """Look at environments."""


@app.command()
def check(
    what: Annotated[
        str | None, typer.Argument(metavar="ID|CONFIG.yaml", help="An environment, or a file that names one.")
    ] = None,
    preset: PresetOption = None,
    env: Annotated[str | None, typer.Option(metavar="ID", help="Environment in place of the file's.")] = None,
    sets: Annotated[list[str] | None, set_option("Any value, like environment.kwargs.world=8x8")] = None,
    environments: Annotated[int, typer.Option(min=1, metavar="N", help="Number that step together for the speed.")] = 8,
    pictures: Annotated[Path | None, typer.Option(metavar="DIR", help="Save images of observations there.")] = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="S", help="Longest time for one reset, one episode, one measurement.")
    ] = 30.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Only the spec, as JSON: for environment.spec_file of another host.")
    ] = False,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Only a first configuration, from what was found: for distrl train.")
    ] = False,
) -> None:
    """Try an environment: spaces, the first observation as the network sees it, three episodes, steps per second.

    [cyan]distrl env check CartPole-v1[/]

    [cyan]distrl env check my_module:MyWorld --set environment.kwargs.size=8 --timeout 120[/]

    [cyan]distrl env check --preset cartpole-impala --environments 64[/]

    [cyan]distrl env check my_module:MyWorld --json > spec.json[/]

    [cyan]distrl env check my_module:MyWorld --yaml > my_world.yaml[/]
    """
    from distrl.environments.check import check_environment

    file, given = _distinguish(what, env)
    if file is None and preset is None and given is None:
        raise ConfigError("which environment? For example: distrl env check CartPole-v1")
    config = load(preset, file, sets or (), {"--env": given}).config
    if as_json:
        from distrl.environments.probe import probe

        mask, making_s = config.network.action_mask, config.making_timeout_s
        echo(probe(config.environment, action_mask=mask, making_s=making_s, timeout_s=timeout).to_json())
        return
    findings = check_environment(
        config.environment,
        action_mask=config.network.action_mask,
        environments=None if as_yaml else environments,
        pictures=pictures,
        timeout_s=timeout,
        progress=lambda text: echo(typer.style(text, dim=True), err=True),
    )
    if as_yaml:
        from distrl.environments.starter import starter

        echo(starter(config.environment, findings), nl=False)
        return
    print_findings(findings, environments)


def print_findings(findings: "Iterable[Finding]", environments: int) -> None:
    """Print every finding as it arrives, under headings, and the totals of the episodes."""
    headings = {
        "processed": "observations, step by step of environment.preprocessing",
        "seen": "first observation, as the network sees it",
        "episode": "episodes with random actions",
        "infos": "keys of info in these steps",
        "speed": f"steps/s of {environments} environments together",
    }
    printers: dict[str, Callable[[Any], None]] = {
        "spaces": _print_spaces,
        "notice": lambda found: _say(f"note: {found.text}"),
        "processed": _print_processed,
        "seen": _print_seen,
        "episode": lambda found: _print_episode(found, len(episodes)),
        "infos": _print_infos,
        "speed": lambda found: _print_speed(found, chosen),
    }
    episodes: list[CheckedEpisode] = []
    chosen = ""
    for finding in findings:
        if finding.kind == "spaces":
            chosen = finding.vectorization
        if finding.kind == "episode":
            episodes.append(finding)
        if finding.kind in headings:
            if finding.kind == "infos":
                _print_totals(episodes)
            _say("")
            _say(headings.pop(finding.kind))
        if finding.kind in printers:
            printers[finding.kind](finding)


def _say(line: str) -> None:
    """Print one line; names, infos and errors in it are the environment's."""
    echo(printable(line))


def _distinguish(what: str | None, env: str | None) -> tuple[Path | None, str | None]:
    """Return (configuration file, environment) from the argument and --env."""
    if what is None or what.endswith((".yaml", ".yml")):
        return None if what is None else Path(what), env
    if env is not None:
        raise ConfigError(f"two environments: {what} and --env {env}; leave one out")
    return None, what


def _print_spaces(found: "CheckedSpaces") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    for heading in ("", "name", "shape", "dtype", "bounds"):
        table.add_column(heading)
    for row in _space_rows(found.spec):
        table.add_row(*map(printable, row))
    console = Console(highlight=False, markup=False)
    console.print(printable(found.spec.id))
    console.print(table)
    limits = {"reward threshold": found.spec.reward_threshold, "longest episode, steps": found.spec.max_episode_steps}
    for name, value in limits.items():
        console.print(f"{name}: {'none' if value is None else _plain(value)}")
    if found.mask is not None:
        console.print(printable(f"action mask: {found.mask}; network.heads_parameters names it (action_mask)"))


def _space_rows(spec: "EnvSpec") -> list[tuple[str, str, str, str, str]]:
    rows = []
    for name, array in spec.observations.items():
        rows.append(("observation", name, _shape(array.shape), array.dtype, _observed_bounds(array)))
    for name, action in spec.actions.items():
        rows.append(("action", name, _shape(action.array.shape), action.array.dtype, _action_bounds(action)))
    return rows


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _bounds(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "none that all numbers share"
    return f"{_number(low, '-∞')} … {_number(high, '∞')}"


def _observed_bounds(array: "ArraySpec") -> str:
    if array.categories is None:
        return _bounds(array.low, array.high)
    return f"choices, one-hot in networks: {', '.join(map(str, array.categories.choices))}"


def _plain(value: float) -> str:
    """With thousands apart and up to three decimals: 1,000,000 and -226.125."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _number(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:g}"


def _action_bounds(action: "ActionSpec") -> str:
    if action.kind == "discrete":
        return f"{action.start} … {action.start + action.n - 1}: {action.n} choices"
    if action.kind == "multi_discrete":
        return f"choices: {', '.join(map(str, action.choices))}"
    if action.kind == "multi_binary":
        return "each 0 or 1"
    pairs = list(dict.fromkeys(zip(action.low, action.high, strict=True)))
    shown = [f"{_number(low, '-∞')} … {_number(high, '∞')}" for low, high in pairs[:4]]
    return ", ".join([*shown, *(["…"] if len(pairs) > 4 else [])])


def _print_processed(found: "Processed") -> None:
    shapes = (f"{name} {_shape(array.shape)} {array.dtype}" for name, array in found.observations.items())
    _say(f"  {found.step:<14}{', '.join(shapes)}")


def _print_seen(found: "FirstObservation") -> None:
    if found.path is not None:
        _say(f"  {found.name}: {found.path}")
        return
    _say(f"  {found.name}")
    for line in found.text.splitlines():
        _say(f"  {line}")


def _print_episode(episode: "CheckedEpisode", number: int) -> None:
    _say(f"  {number}   {episode.length_steps:,} steps   return {_plain(episode.total)}   {episode.end}")
    for odd in episode.odd:
        _say(f"      {odd}")


def _print_infos(found: "Infos") -> None:
    _say(f"  numbers, for environment.metrics: {', '.join(found.numbers) or 'none'}")
    if found.others:
        _say(f"  others: {', '.join(found.others)}")


def _print_totals(episodes: "list[CheckedEpisode]") -> None:
    ends: dict[Any, int] = dict.fromkeys(("terminated", "truncated", "cut short"), 0)
    for episode in episodes:
        for end in ends:
            ends[end] += end in episode.end
    _say("  " + ", ".join(f"{count} {end}" for end, count in ends.items()))


def _print_speed(found: "Speed", chosen: str) -> None:
    mark = "   taken by environment.vectorization" if found.vectorization == chosen else ""
    speed = "-" if found.steps_per_s is None else f"{found.steps_per_s:,.0f}"
    _say(f"  {found.vectorization:<8}{speed:>12}{mark}{'   ' if found.reason else ''}{found.reason}")


PORT = 6025  # TensorForce's


def serve_env(
    env: Annotated[str, typer.Argument(metavar="ID", help="gymnasium id, or package.module:Class.")],
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Address to listen on (127.0.0.1). 0.0.0.0: all networks.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="N", help=f"Port to listen on ({PORT}). 0: any free port.")
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Dial a training that listens at this address, instead of listening."),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Connections, one environment each: at most (64), or with --connect exactly (1)."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the token of both sides. [dim]Or in DISTRL_ENV_TOKEN.[/]"),
    ] = None,
    sets: Annotated[list[str] | None, set_option("Like environment.kwargs.gravity=9.8")] = None,
) -> None:
    """Serve an environment to trainings on other machines, until Ctrl-C.

    [cyan]distrl serve-env CartPole-v1[/], and there: [cyan]distrl train --env tcp://127.0.0.1:6025[/]

    [cyan]distrl serve-env my_robot:Arm --host 0.0.0.0 --token-file token.txt[/]

    [cyan]distrl serve-env my_robot:Arm --connect trainer:6025 --connections 4[/], where the training has
    [cyan]--env tcp-listen://0.0.0.0:6025[/]
    """
    # Imported here: it brings gymnasium.
    from distrl.environments.remote.server import serve_environment

    loaded = load(None, None, sets or (), {"--env": env})
    for path in (assignment.partition("=")[0] for assignment in sets or ()):
        if path.split(".")[:2] != ["environment", "kwargs"]:
            raise ConfigError(f"--set {path}: serve-env takes environment.kwargs only; all else is the training's")
    if connect is not None and (host, port) != (None, None):
        raise ConfigError("--host and --port are addresses to listen on; --connect dials instead")
    target = None if connect is None else _target(connect)
    raise typer.Exit(
        serve_environment(
            loaded.config.environment,
            listen_at=("127.0.0.1" if host is None else host, PORT if port is None else port),
            dial=target,
            connections=connections or (64 if target is None else 1),
            token_file=None if token_file is None else str(token_file),
            write=echo,
        )
    )


def _target(connect: str) -> tuple[str, int]:
    """Parse HOST:PORT."""
    host, _, port = connect.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 1 <= int(port) <= 65535:
        raise ConfigError(f"--connect {connect}: it must be HOST:PORT, with a port from 1 to 65535")
    return host.strip("[]"), int(port)
