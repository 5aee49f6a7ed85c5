"""`distrl learner`, `distrl actor` and so on: a command for each kind of role, by which a process joins a run."""

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from distrl.apps.commands.options import AllowOption, JoinedRedisOption
from distrl.role_kinds import RoleKind


def command(kind: RoleKind) -> Callable[..., None]:
    """Return the command of a kind: with --id if its roles are numbered, and --allow if it may join without a key."""

    def join(
        run_id: Annotated[str, typer.Option(metavar="ID", help="The run to join.")],
        redis_url: JoinedRedisOption,
        number: Annotated[int, typer.Option("--id", min=0, metavar="N", help="Its number in the run, from 0.")] = 0,
        allow: AllowOption = None,
    ) -> None:
        from distrl.roles.plan import Role
        from distrl.roles.running import run_here

        raise typer.Exit(run_here(Role(kind.name, number), redis_url=redis_url, run_id=run_id, allowed=allow or ()))

    options = dict(inspect.signature(join).parameters)
    options["number"] = options["number"].replace(default=inspect.Parameter.empty)
    if not kind.numbered:
        del options["number"]
    if kind.needs_key:
        del options["allow"]
    join.__signature__ = inspect.Signature([*options.values()])  # type: ignore[attr-defined]
    return join


def help_of(kind: RoleKind) -> str:
    """Return the help of a kind's command."""
    number = " --id 7" if kind.numbered else ""
    return (
        f"{kind.summary} Set DISTRL_RUN_KEY to the key in the run directory's file run.key.\n\n"
        f"[cyan]distrl {kind.name} --redis-url redis://host:6379 --run-id 20260101-120000-abcdef{number}[/]"
    )
