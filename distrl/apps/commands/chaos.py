"""`distrl chaos`: test whether a training survives the loss of roles."""

import random
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.apps.commands.durations import duration_option
from distrl.apps.commands.help import takes
from distrl.apps.commands.options import NamedRunArgument, RunOptions
from distrl.apps.commands.printing import echo
from distrl.errors import ConfigError, MemoryBackendError
from distrl.role_kinds import KINDS

if TYPE_CHECKING:
    from distrl.memory_backend.backend import Backend


@takes(RunOptions)
def chaos(
    named: RunOptions,
    run: NamedRunArgument = None,
    kill: Annotated[
        list[str] | None, typer.Option(metavar="ROLE", help=f"Roles to kill: {', '.join(KINDS)}; repeatable.")
    ] = None,
    every: Annotated[float, duration_option("Time from one kill to the next.")] = 10.0,
    length: Annotated[float, duration_option("Duration.", "--for")] = 60.0,
    within: Annotated[float, duration_option("Longest time to be back at work.")] = 15.0,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Random seed of the choice of roles.")] = None,
) -> None:
    """Kill roles of a live run, one at a time by SIGKILL on this machine, and check that they come back.

    Exits with 1 if one of them did not, or if an unroll is not accounted for. Long trials need a larger
    actors.restart_budget.

    [cyan]distrl chaos runs/first --kill actor --every 10s --for 10m[/]

    [cyan]distrl chaos runs/first --kill actor --kill learner --within 30[/]
    """
    if named.name is None and named.run_id is None:
        raise ConfigError("which run? For example: distrl chaos runs/first --kill actor")
    wrong = [name for name in kill or () if name not in KINDS]
    if not kill or wrong:
        raise ConfigError(f"--kill {wrong[0] if wrong else 'is missing'}: name {', '.join(KINDS)}")
    from distrl.launch.chaos import Chaos

    with named.find().backend() as backend:
        kills = Chaos(backend, set(kill), within, random.Random(seed)).run(every, length, echo)
        accounted, balances = _accounted(backend)
    back = [one.back_after_s for one in kills if one.back_after_s is not None]
    slowest = f", the slowest after {max(back):.1f} s" if back else ""
    echo(f"{len(kills)} killed, {len(back)} back{slowest}; {accounted}")
    raise typer.Exit(0 if balances and len(back) == len(kills) else 1)


def _accounted(backend: "Backend") -> tuple[str, bool]:
    """Return whether every unroll is accounted for, in words and as a flag; an ended run reports it itself."""
    try:
        imbalance = backend.ledger.counts().imbalance
    except MemoryBackendError:
        return "see distrl status for the end of the run and whether its unrolls are accounted for", True
    if imbalance:
        return f"{imbalance:,} unrolls are not accounted for", False
    return "every unroll is accounted for", True
