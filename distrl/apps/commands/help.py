"""Commands whose help names values instead of Python types, and options that several commands share."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

Function = TypeVar("Function", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command whose help shows no Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the command."""
        return _readable(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A group of commands whose help shows no Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the group."""
        return _readable(super().get_params(ctx))


def _readable(params: list[Any]) -> list[Any]:
    """Show nothing beside a flag's name, the metavar of an option, the name of an argument."""
    for param in params:
        if isinstance(param, TyperArgument):
            param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
        elif isinstance(param, TyperOption) and param.metavar is None:
            param.metavar = "" if param.is_flag or param.count else (param.name or "").upper()
    return params


class App(typer.Typer):
    """A group of commands with readable help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=CommandGroup, rich_markup_mode="rich", no_args_is_help=True, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        """Register a command, as typer does."""
        return super().command(name, cls=Command, **options)


def takes(shared: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command that takes the options of a dataclass beside its own.

        @app.command()
        @takes(Layers)
        def train(layers: Layers, run_dir: RunDirOption = None) -> None: ...

    The command's first parameter receives the dataclass. Required parameters of the command come first on the command
    line, then those of the dataclass, then the rest. A parameter of the command with the name of a field describes that
    field in its place, and is not passed on.
    """
    fields = inspect.signature(shared).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command).parameters.values()
        replaced = {each.name: each for each in own if each.name in fields}
        rest = [each for each in own if each.name not in fields]
        required = [each for each in rest if each.default is inspect.Parameter.empty]
        optional = [each for each in rest if each.default is not inspect.Parameter.empty]
        together = [*required, *(replaced.get(name, field) for name, field in fields.items()), *optional]

        @functools.wraps(command)
        def called(**arguments: Any) -> None:
            described = {name: arguments.pop(name) for name in fields}
            command(shared(**described), **{name: described[name] for name in replaced}, **arguments)

        keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in together]
        called.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in together}
        return called

    return decorate
