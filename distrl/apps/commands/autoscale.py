"""`distrl autoscale`: let a live run choose its number of actors, and follow or watch its decisions."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.apps.commands.answering import answering
from distrl.apps.commands.help import takes
from distrl.apps.commands.options import AddressOption, RunOptions
from distrl.apps.commands.printing import echo
from distrl.errors import ConfigError, DistrlError

if TYPE_CHECKING:
    from distrl.apps.jobs.record import JobRecord

RELAUNCH_LOOK_S = 2.0


@takes(RunOptions)
def autoscale(
    named: RunOptions,
    least: Annotated[int | None, typer.Option("--min", min=1, metavar="N", help="Fewest actors.")] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, metavar="M", help="Most actors.")] = None,
    off: Annotated[bool, typer.Option("--off", help="End it; the run keeps the actors that it has.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not print what the run decides.")] = False,
    address: AddressOption = None,
) -> None:
    """Let a run choose its number of actors, by how long learner and actors wait for each other.

    It prints each decision until Ctrl-C; the run goes on to decide. distrl scale N ends that, too.

    Example: [cyan]distrl autoscale --min 1 --max 16[/], [cyan]distrl autoscale --off[/]
    """
    if off and (least is not None or most is not None or detach):
        raise ConfigError("--off takes neither --min, --max nor --detach")
    submitted = named.job(address)
    _request(named, submitted, least, most, off=off, detach=detach)
    if off:
        echo("end of autoscaling requested; the number of actors stays as it is")
        return
    echo("autoscaling requested; end it with distrl autoscale --off")
    if detach:
        return
    if submitted is not None and named.path is not None and not (named.path / "run.json").exists():
        echo("the run is not on this host: distrl logs -f shows its decisions")
        return
    _watch(named, submitted, lambda: _request(named, submitted, least, most, off=False, detach=False))


def _request(
    named: RunOptions, submitted: "JobRecord | None", least: int | None, most: int | None, *, off: bool, detach: bool
) -> None:
    """Request it of a run directly, of a submitted job through its target."""
    if submitted is not None:
        # Imported here: other runs need no targets.
        from distrl.apps.jobs.targets import open_target

        target = open_target(submitted.target)
        if detach and target.starts_actors:
            raise ConfigError(f"--detach: jobs on {submitted.target} follow only while this command runs; leave it out")
        with answering(submitted.target):
            target.autoscale(submitted, least, most, off=off)
        return
    with named.find().steering("command line") as steering:
        if off:
            steering.fix_actors()
        else:
            steering.autoscale(least, most)


def _watch(named: RunOptions, submitted: "JobRecord | None", request: Callable[[], None]) -> None:
    """Print the decisions until the run ends or Ctrl-C, and make a target that starts the actors follow them.

    Where the learner is requeued, the job's next launch is asked again: the bounds are in the Redis of the one before.
    """
    # Imported here: the CLI's help needs no Redis client.
    from distrl.launch.wanted_follower import TURNED_OFF

    follow = _Follower(submitted)
    try:
        ended = _followed(named, follow)
        echo(ended)
        while ended != TURNED_OFF and follow.may_go_on():
            time.sleep(RELAUNCH_LOOK_S)
            try:
                request()
                again = _followed(named, follow)
            except DistrlError:  # the next launch has not begun
                continue
            if again != ended:
                echo(again)
            ended = again
    except KeyboardInterrupt:
        echo(follow.left)


def _followed(named: RunOptions, follow: "_Follower") -> str:
    """Follow one launch of the run; return why that ended."""
    from distrl.launch.wanted_follower import follow_wanted

    with named.find().backend() as backend:
        return follow_wanted(backend, follow)


class _Follower:
    """Prints decisions, and makes a job's target follow. A target that refuses is asked again."""

    def __init__(self, record: "JobRecord | None") -> None:
        self._scale: Callable[[int], None] | None = None
        self._state: Callable[[], str] = lambda: "ended"
        if record is not None:
            from distrl.apps.jobs.targets import open_target

            target = open_target(record.target)
            if target.starts_actors:
                self._scale = lambda actors: target.scale(record, actors, force=False)
                self._state = lambda: target.state(record).state
        self._asked: int | None = None
        self._trouble = ""

    def __call__(self, actors: int, reason: str) -> bool:
        """Return whether the number is followed."""
        if actors != self._asked:
            _say(f"{actors} {'actor' if actors == 1 else 'actors'} wanted: {reason}")
        self._asked = actors
        try:
            if self._scale is not None:
                self._scale(actors)
        except ConfigError as error:
            if str(error) != self._trouble:
                _say(f"not followed: {error}")
            self._trouble = str(error)
            return False
        self._trouble = ""
        return True

    def may_go_on(self) -> bool:
        """Whether the job may make another launch, which is to be followed."""
        return self._state() in ("waiting", "running", "stopping", "unknown")

    @property
    def left(self) -> str:
        """The last line after Ctrl-C."""
        if self._scale is None:
            return "left; the run goes on to choose its number of actors"
        return "left; the job keeps its actors, and follows again when you repeat the command"


def _say(text: str) -> None:
    echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")
