"""Output of commands, in which texts of files, Redis and environments cannot command the terminal."""

import typer

from distrl.errors import printable_lines


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text of one or more lines, which may have styles of `typer.style`."""
    typer.echo(printable_lines(text), err=err, nl=nl)
