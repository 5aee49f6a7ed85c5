"""`distrl serve`: a policy behind HTTP and WebSocket."""

import logging
import re
import signal
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.apps.commands.durations import duration_option
from distrl.apps.commands.help import takes
from distrl.apps.commands.options import run_argument, set_option
from distrl.apps.commands.printing import echo
from distrl.apps.web.access import Access, token_of_environment
from distrl.config.secrets import read_secret
from distrl.errors import EXIT_INTERRUPTED, ConfigError
from distrl.health import opened

if TYPE_CHECKING:
    from distrl.apps.serve.app import ServeSettings
    from distrl.apps.serve.gate import ClientGate
    from distrl.apps.serve.learning import JoinedRun
    from distrl.apps.serve.versions import PolicySource, PolicyVersions

PORT = 8730
TOKEN_VARIABLE = "DISTRL_SERVE_TOKEN"
READ_ONLY_TOKEN_VARIABLE = "DISTRL_SERVE_READ_ONLY_TOKEN"
_WINDOW = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")
_ORIGIN = re.compile(r"https?://[^/?#@\s]+")
_UNITS = {"ms": 1e-3, "s": 1.0}
LONGEST_WINDOW_S = 1.0
CANARY_SHARE = 0.1


def _window(text: str | float) -> float:
    """Parse '1ms', '0.005s' or '0' as seconds."""
    found = _WINDOW.fullmatch(str(text))
    window_s = float(found[1]) * _UNITS[found[2]] if found else 0.0 if str(text) in ("0", "0.0") else -1.0
    if not 0.0 <= window_s <= LONGEST_WINDOW_S:
        raise typer.BadParameter(f"{text!r} is not a time up to a second; write 0, 0.5ms or 2ms")
    return window_s


def _share(text: str | float) -> float:
    """Parse '10%' or '0.1' as a share."""
    number = str(text).removesuffix("%")
    try:
        share = float(number) / (100.0 if str(text).endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 < share < 1.0:
        raise typer.BadParameter(f"{text!r} is not a share between 0 and 1; write 10% or 0.1")
    return share


def _bytes(text: str | int) -> int:
    """Parse '4MiB', '64KiB' or a number of bytes."""
    found = re.fullmatch(r"(\d+)(KiB|MiB)?", str(text))
    size = int(found[1]) * {None: 1, "KiB": 2**10, "MiB": 2**20}[found[2]] if found else 0
    if not 0 < size <= 256 * 2**20:
        raise typer.BadParameter(f"{text!r} is not a size up to 256MiB; write 64KiB or 4MiB")
    return size


PolicyArgument = Annotated[
    str | None,
    run_argument(
        "A run's directory, whose newest saved weights are followed; RUN@STEP or RUN@best; FILE.onnx; STORE/RUN."
    ),
]
CanaryOption = Annotated[
    str | None, typer.Option(metavar="POLICY", help="Another policy, with which a share of sessions acts.")
]


@dataclass(frozen=True)
class AccessOptions:
    """Where the server listens, and which clients it serves."""

    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="What to listen on; others than loopback need a token.")
    ] = "127.0.0.1"
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, metavar="N", help=f"[dim]Default: {PORT}, or the next free one.[/]"),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help=f"Holds the token. [dim]Or in {TOKEN_VARIABLE}.[/]"),
    ] = None
    read_only_token_file: Annotated[
        Path | None,
        typer.Option(
            "--read-only-token-file",
            metavar="FILE",
            help=f"Holds one that reads / and /metrics alone. [dim]Or in {READ_ONLY_TOKEN_VARIABLE}.[/]",
        ),
    ] = None
    origin: Annotated[
        list[str] | None,
        typer.Option(
            "--origin", metavar="URL", help="Pages of this origin may send requests, like https://game.example.com."
        ),
    ] = None
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.1, metavar="N", help="Most observations per second of one address."),
    ] = None

    def gate(self) -> "ClientGate":
        """Return what decides the rights of requests."""
        from distrl.apps.serve.gate import ClientGate

        token = _token(self.token_file, "--token-file", TOKEN_VARIABLE)
        reading = _token(self.read_only_token_file, "--read-only-token-file", READ_ONLY_TOKEN_VARIABLE)
        for origin in self.origin or ():
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(f"--origin {origin} is no origin; write it as browsers do: https://game.example.com")
        return ClientGate(Access(self.host, token, reading, TOKEN_VARIABLE), self.rate, frozenset(self.origin or ()))


@dataclass(frozen=True)
class ServeOptions(AccessOptions):
    """How the server acts, and its limits."""

    sample: Annotated[
        bool, typer.Option("--sample", help="Draw actions where a request does not say; else the most probable.")
    ] = False
    seed: Annotated[int | None, typer.Option("--seed", min=0, metavar="N", help="Seed of drawn actions.")] = None
    window: Annotated[
        float,
        typer.Option(
            "--window", parser=_window, metavar="TIME", help="How long a batch waits for more requests: 0, 1ms."
        ),
    ] = 0.0
    change: Annotated[
        str,
        typer.Option("--change", metavar="episodes|now", help="When sessions take a newer version of the policy."),
    ] = "episodes"
    poll: Annotated[float, duration_option("How often a newer version is looked for.", "--poll")] = 1.0
    max_body: Annotated[
        int, typer.Option("--max-body", parser=_bytes, metavar="SIZE", help="Longest message.", show_default="4MiB")
    ] = 4 * 2**20
    max_sessions: Annotated[int, typer.Option("--max-sessions", min=1, metavar="N", help="Most sessions.")] = 10_000
    session_idle: Annotated[
        float, duration_option("A session ends after that long without a request.", "--session-idle")
    ] = 600.0
    max_connections: Annotated[int, typer.Option("--max-connections", min=1, metavar="N", help="Most connections.")] = (
        1024
    )

    def settings(self) -> "ServeSettings":
        """Return them as the server takes them."""
        from distrl.apps.serve.app import ServeSettings

        if self.change not in ("episodes", "now"):
            raise ConfigError(f"--change {self.change} is neither episodes nor now")
        return ServeSettings(
            window_s=self.window,
            greedy=not self.sample,
            change="now" if self.change == "now" else "episodes",
            poll_s=self.poll,
            seed=self.seed,
            most_body_bytes=self.max_body,
            most_sessions=self.max_sessions,
            session_idle_s=self.session_idle,
            most_connections=self.max_connections,
        )


@dataclass(frozen=True)
class PolicyOptions(ServeOptions):
    """Where the policies come from, and what becomes of their episodes."""

    learn: Annotated[
        bool,
        typer.Option("--learn", help="POLICY is a run that trains: it learns from sessions that report rewards."),
    ] = False
    train: Annotated[
        str | None,
        typer.Option("--train", metavar="PRESET|CONFIG.yaml", help="With --learn: begin that training, or resume it."),
    ] = None
    sets: Annotated[list[str] | None, set_option("With --train: like stop.env_steps=1e6")] = None
    demo: Annotated[
        bool,
        typer.Option("--demo", help="With --learn: a game in the browser teaches the policy of a training of its own."),
    ] = False
    canary: CanaryOption = None
    canary_share: Annotated[
        float | None,
        typer.Option(
            "--canary-share",
            parser=_share,
            metavar="SHARE",
            help="Share of new sessions that act with --canary. [dim]Default: 10%.[/]",
        ),
    ] = None
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="RUN",
            help="The run on whose page the dashboard shows the server. [dim]Default: the one served.[/]",
        ),
    ] = None

    def check(self) -> None:
        """Refuse options that need another one."""
        if not self.learn and (self.train is not None or self.sets or self.demo):
            raise ConfigError("--train, --set and --demo go with --learn, the run that learns from clients")
        if self.demo and self.train is not None:
            raise ConfigError(f"--train {self.train}: --demo has a training of its own; leave one of them out")
        if self.canary is None and self.canary_share is not None:
            raise ConfigError("--canary-share goes with --canary, the policy with which that share acts")
        if self.report is not None and not self.report.is_dir():
            problem = "is not a directory; name a run's, whose page is to show the server"
            raise ConfigError(f"--report {self.report} {problem}")

    def open(self, policy: str, cleanup: ExitStack) -> "tuple[PolicyVersions, JoinedRun | None]":
        """Return the versions to serve, and the run that learns from clients."""
        from distrl.apps.commands.served_training import joined
        from distrl.apps.serve.demo import CONFIG
        from distrl.apps.serve.sources import source_of
        from distrl.apps.serve.versions import PolicyVersions

        train = str(CONFIG) if self.demo else self.train
        learning = cleanup.enter_context(joined(Path(policy), train, self.sets or ())) if self.learn else None
        sources: list[PolicySource] = [source_of(policy) if learning is None else learning]
        if self.canary is not None:
            sources.append(source_of(self.canary))
        return PolicyVersions(sources, CANARY_SHARE if self.canary_share is None else self.canary_share), learning


@takes(PolicyOptions)
def serve(options: PolicyOptions, policy: PolicyArgument = None) -> None:
    """Serve a policy to programs that own their loop, by HTTP and WebSocket.

    [cyan]distrl serve runs/first[/]

    [cyan]distrl serve policy.onnx --host 0.0.0.0 --token-file token[/]

    [cyan]distrl serve runs/first@best --canary runs/second@best --canary-share 10%[/]

    [cyan]distrl serve runs/game --learn --train game.yaml[/]

    [cyan]distrl serve --learn --demo[/]

    Then: [cyan]curl -d '{"observation": [0, 0, 0, 0]}' http://127.0.0.1:8730/act[/]
    """
    from distrl.apps.serve.needs import require_serving

    require_serving()
    # Imported here: the help needs neither a web server nor ONNX Runtime.
    from distrl.apps.serve.report import ServerReport
    from distrl.apps.serve.server import make_server
    from distrl.apps.serve.sources import directory_of
    from distrl.apps.web.listening import address_of, listen, url_of

    gate, settings = options.gate(), replace(options.settings(), demo=options.demo)
    options.check()
    named = str(Path("runs") / "catch") if policy is None and options.demo else policy
    if named is None:
        raise ConfigError("name a policy: a run's directory, FILE.onnx or STORE/RUN; or try --learn --demo")
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("distrl.apps.serve").setLevel(logging.INFO)  # changes of version
    before = signal.signal(signal.SIGTERM, _end)
    try:
        with ExitStack() as cleanup:
            versions, learning = options.open(named, cleanup)
            listening = cleanup.enter_context(listen(options.host, options.port, PORT))
            beats = cleanup.enter_context(opened("serve"))
            shown_by = directory_of(named) if options.report is None else options.report
            reported = None if shown_by is None else ServerReport(shown_by, address_of(listening))
            server = make_server(versions, gate, settings, beats, reported, learning)
            echo(f"{_words(versions)} at {url_of(listening)} (Ctrl-C ends it)")
            if options.demo:
                echo(f"open {url_of(listening)}demo/ in a browser; if the server has a token, add #token=TOKEN")
            # uvicorn raises the signal again when it has ended in order: an orchestrator's SIGTERM is no failure.
            signal.signal(signal.SIGTERM, lambda *_: None)
            server.run(sockets=[listening])
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(*_: object) -> None:
    """End in order before the server is up: a training may have been started."""
    raise SystemExit(0)


def _words(versions: "PolicyVersions") -> str:
    found = [
        f"{track.source.name}, version {track.newest.number}{', followed' if track.source.follows else ''}"
        for track in versions.tracks
    ]
    return f"distrl serve {versions.spec.id}: {'; canary '.join(found)}"


def _token(file: Path | None, option: str, variable: str) -> str | None:
    return token_of_environment(variable) if file is None else read_secret(str(file), option)
