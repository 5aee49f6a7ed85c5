"""`distrl redis`: set up a Redis of your own."""

from typing import Annotated

import typer

from distrl.apps.commands.help import App
from distrl.apps.commands.printing import echo

app = App(help="Set up a Redis of your own.")

_NOTES = """\
These users have no password yet, and so cannot log in: add #<sha256 of the password as hex> at the end of each line.
The word reset at the start of a line removes the passwords that the user had.
None of them may change users: make one that may. Then turn off the user default, or give it a password.
How to do all this: docs/cluster.md, Users"""
_WEAKER = """\
Redis 6.2 cannot limit a command to certain keys: an actor's user may also replace weights and the policy, and rewrite
the run's description (which roles then refuse). Use --redis 7 where you can."""


@app.callback()
def _redis() -> None:
    """Set up a Redis of your own."""


@app.command()
def acl(
    namespace: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The runs' [cyan]memory.namespace[/]. [dim]Default: that of the setting.[/]"),
    ] = None,
    redis: Annotated[str, typer.Option(metavar="6.2|7", help="Oldest version of Redis that reads the rules.")] = "7",
) -> None:
    """Print the users of Redis for a namespace, as an ACL file has them: learner, actor, evaluator, operator, viewer.

    Each may run the commands that its role sends, with the keys of this namespace, and nothing else.

    [cyan]distrl redis acl --namespace team-a > users.acl[/]
    """
    from distrl.errors import ConfigError
    from distrl.memory_backend.access import SERVERS, users
    from distrl.memory_backend.keys import DEFAULT_NAMESPACE

    server = next((known for known in SERVERS if known == redis), None)
    if server is None:
        raise ConfigError(f"--redis {redis} is not known; use one of {', '.join(SERVERS)}")
    for line in users(DEFAULT_NAMESPACE if namespace is None else namespace, server).values():
        echo(line)
    echo(_NOTES if server == "7" else f"{_NOTES}\n{_WEAKER}", err=True)
