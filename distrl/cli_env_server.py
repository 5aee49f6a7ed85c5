"""`distrl serve-env`: environments of this machine for a training elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from distrl.config.load import load
from distrl.errors import ConfigError

PORT = 6025  # TensorForce's


def serve_env(
    env: Annotated[str, typer.Argument(metavar="ID", help="gymnasium id, or package.module:Class.")],
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Listen there (127.0.0.1). 0.0.0.0: everybody may try.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="N", help=f"Listen there ({PORT}). 0: any that is free.")
    ] = None,
    connect: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Do not listen: dial the training that listens there.")
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Each an environment of its own: at most (64), or with --connect exactly (1)."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The token both sides know. [dim]Or in DISTRL_ENV_TOKEN.[/]"),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Like environment.kwargs.gravity=9.8; repeatable."),
    ] = None,
) -> None:
    """Serve an environment to trainings on other machines, until Ctrl-C.

    [cyan]distrl serve-env CartPole-v1[/], and there: [cyan]distrl train --env tcp://127.0.0.1:6025[/]

    [cyan]distrl serve-env my_robot:Arm --host 0.0.0.0 --token-file token.txt[/]

    [cyan]distrl serve-env my_robot:Arm --connect trainer:6025 --connections 4[/], where the training has
    [cyan]--env tcp-listen://0.0.0.0:6025[/]
    """
    # Imported here: it brings gymnasium.
    from distrl.launch.environment_server import serve_environment

    loaded = load(None, None, sets or (), {"--env": env})
    for path in (assignment.partition("=")[0] for assignment in sets or ()):
        if path.split(".")[:2] != ["environment", "kwargs"]:
            raise ConfigError(f"--set {path}: serve-env takes environment.kwargs only; all else is the training's")
    if connect is not None and (host, port) != (None, None):
        raise ConfigError("--host and --port say where to listen; with --connect nobody listens here")
    target = None if connect is None else _target(connect)
    raise typer.Exit(
        serve_environment(
            loaded.config.environment,
            listen_at=("127.0.0.1" if host is None else host, PORT if port is None else port),
            dial=target,
            connections=connections or (64 if target is None else 1),
            token_file=None if token_file is None else str(token_file),
            write=lambda line: print(line, flush=True),
        )
    )


def _target(connect: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        ConfigError: It is something else.
    """
    host, _, port = connect.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 1 <= int(port) <= 65535:
        raise ConfigError(f"--connect {connect}: it must be HOST:PORT, with a port from 1 to 65535")
    return host.strip("[]"), int(port)
