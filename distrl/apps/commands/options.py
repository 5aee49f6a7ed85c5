"""Options that several commands share: a configuration in layers, and a run by its directory or by its id."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.apps.commands import completion
from distrl.apps.config.configuration import load
from distrl.config.algorithms import ALGORITHMS
from distrl.config.load import LoadedConfig
from distrl.config.secrets import refuse_password, split_password
from distrl.errors import ConfigError
from distrl.memory_backend.credentials import URL_VARIABLE
from distrl.runs.directories import Run, run_directory

if TYPE_CHECKING:
    from distrl.apps.jobs.record import JobRecord


def run_argument(text: str) -> Any:
    """Return the argument that names a run's directory."""
    return typer.Argument(metavar="RUN", help=text, autocompletion=completion.runs)


def set_option(text: str) -> Any:
    """Return the option --set, which may be repeated."""
    return typer.Option(
        "--set", metavar="PATH=VALUE", help=f"{text}; repeatable.", autocompletion=completion.assignments
    )


def _without_password(context: typer.Context, option: typer.CallbackParam, url: str | None) -> str | None:
    """Refuse a password on the command line, which every user of the machine can read."""
    if url is None:
        return None
    source = context.get_parameter_source(option.name or "")
    if source is None or source.name != "ENVIRONMENT":
        refuse_password(url, "--redis-url")
    return split_password(url)[0]


def redis_url_option(text: str, *, of_environment: bool = True) -> Any:
    """Return the option --redis-url.

    Args:
        of_environment: The environment variable DISTRL_REDIS_URL may have it; only there it may hold a password.
    """
    variable = URL_VARIABLE if of_environment else None
    return typer.Option("--redis-url", metavar="URL", envvar=variable, help=text, callback=_without_password)


JoinedRedisOption = Annotated[str, redis_url_option("Redis of the run.")]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="module:Class",
        help="Without the run's key: code that the run may name, like its environment; repeatable.",
    ),
]
RunOrConfigArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN|CONFIG.yaml",
        help="A run's directory, or a file with any part of the configuration.",
        autocompletion=completion.runs_and_files,
    ),
]
PresetOption = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="See [cyan]distrl presets[/].", autocompletion=completion.presets),
]
RunDirOption = Annotated[
    Path | None,
    typer.Option("--run-dir", metavar="DIR", help="The run's own directory. [dim]Default: a new one under runs/.[/]"),
]
NamedRunArgument = Annotated[str | None, run_argument("A run's directory, or its id under runs/.")]
ColumnsOption = Annotated[
    str | None,
    typer.Option(metavar="coach|YAML", help="Columns of a table, as data.sets takes them: {episode: trial, ...}."),
]
_WEIGHTS_OF = (
    "A run's directory, or STORE/RUN in a data store; the run may be training. RUN@STEP and RUN@best name a checkpoint "
    "of a directory."
)
WeightsOfRunArgument = Annotated[str | None, run_argument(_WEIGHTS_OF)]
RequiredWeightsOfRunArgument = Annotated[str, run_argument(_WEIGHTS_OF)]
WeightsOption = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        metavar="newest|best|PATH",
        help="Weights: the newest saved, the best, or those of a checkpoint.",
    ),
]


def named_weights(run: Path, checkpoint: str) -> tuple[Path, str]:
    """Return a run's directory and its weights as --checkpoint names them; RUN@STEP and RUN@best name both.

    Raises:
        ConfigError: There is no such checkpoint, or --checkpoint names another one.
    """
    from distrl.data_store.named_checkpoints import BEST, parse

    named = parse(str(run))
    if named.mark is None:
        return run, checkpoint
    if checkpoint != "newest":
        raise ConfigError(f"{run} names a checkpoint already; leave --checkpoint {checkpoint} out")
    return named.run, BEST if named.mark == BEST else str(named.find())


@dataclass(frozen=True)
class Layers:
    """A configuration as the command line describes it."""

    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG.yaml", help="Any part of the configuration.", autocompletion=completion.runs_and_files
        ),
    ] = None
    preset: PresetOption = None
    env: Annotated[str | None, typer.Option("--env", metavar="ID", help="gymnasium id, or package.module:Class.")] = (
        None
    )
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            metavar="NAME",
            help=f"What learns: {', '.join(ALGORITHMS)}, or package.module:Class.",
            autocompletion=completion.algorithms,
        ),
    ] = None
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="NAME|FILE", help="Learn from these recorded episodes; with --actors 0 or data.share."
        ),
    ] = None
    record: Annotated[
        str | None,
        typer.Option(
            "--record", metavar="NAME|FILE", help="Record what actors do: a new data set, beside the training."
        ),
    ] = None
    actors: Annotated[
        int | None, typer.Option("--actors", metavar="N", help="Actor processes; 0: deterministic mode, or --data.")
    ] = None
    no_actors: Annotated[
        bool, typer.Option("--no-actors", help="Start none: actors of other hosts join by [cyan]distrl actors[/].")
    ] = False
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Any value, like network.learning_rate=1e-3; repeatable. "
            "[cyan]distrl config explain PATH[/] describes it.",
            autocompletion=completion.assignments,
        ),
    ] = None
    track: Annotated[
        list[str] | None,
        typer.Option(
            "--track",
            metavar="wandb|mlflow|MODULE:CLASS",
            help="Also send every row of metrics there; repeatable.",
            autocompletion=completion.trackers,
        ),
    ] = None
    launcher: Annotated[
        str | None,
        typer.Option(
            "--launcher",
            metavar="process|ray",
            help="Where roles run.",
            autocompletion=lambda incomplete: [name for name in ("process", "ray") if name.startswith(incomplete)],
        ),
    ] = None
    ray_address: Annotated[
        str | None, typer.Option("--ray-address", metavar="ADDRESS", help="A Ray cluster that exists.")
    ] = None
    redis_url: Annotated[
        str | None,
        redis_url_option("redis://, unix://, redis+sentinel:// or redis+cluster://; default: one of its own."),
    ] = None
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Root of all randomness.")] = None
    init_from: Annotated[
        str | None,
        typer.Option(
            "--init-from",
            metavar="RUN[@STEP|@best]|FILE",
            help="Begin with the weights of a run, a checkpoint or an exported policy.",
            autocompletion=completion.runs_and_files,
        ),
    ] = None

    @property
    def names_nothing(self) -> bool:
        """Whether neither a file, a preset nor an environment is named, the last by `--env` or `--set`."""
        by_set = any(value.startswith("environment.id=") for value in self.sets or ())
        return self.config is None and self.preset is None and self.env is None and not by_set

    def given(self) -> list[str]:
        """The options that the command line has, without those that the process' environment may hold."""
        options = {
            "--preset": self.preset,
            "--set": self.sets or None,
            "--track": self.track or None,
            **self._flags(),
            "--redis-url": None,
        }
        return [name for name, value in options.items() if value is not None]

    def load(self) -> LoadedConfig:
        """Return the configuration, checked; errors are one line with the value and where it came from."""
        return load(self.preset, self.config, self.sets or (), self._flags(), self.track or ())

    def _flags(self) -> dict[str, Any]:
        names = ("env", "algorithm", "data", "record", "actors", "launcher", "ray_address", "redis_url", "seed")
        flags = {f"--{name.replace('_', '-')}": getattr(self, name) for name in (*names, "init_from")}
        return {**flags, "--no-actors": False if self.no_actors else None}


AddressOption = Annotated[
    str | None,
    typer.Option("--address", metavar="URL", help="Where the target is. [dim]Default: as it was submitted.[/]"),
]


@dataclass(frozen=True)
class RunOptions:
    """A run as the command line names it."""

    run: Annotated[
        str | None,
        run_argument("A run's directory, or the id of a run under runs/. [dim]Default: the newest there.[/]"),
    ] = None
    same_run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="As RUN.", autocompletion=completion.runs)
    ] = None
    redis_url: Annotated[
        str | None,
        redis_url_option("Redis of the run, with --run-id. [dim]Or in DISTRL_REDIS_URL.[/]", of_environment=False),
    ] = None
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="A run by its id, without its directory.")
    ] = None

    @property
    def name(self) -> str | None:
        """The run's directory or id as it was given, if one is named."""
        if self.run is not None and self.same_run is not None:
            raise ConfigError(f"{self.run} and --run {self.same_run} both name a run; give one of them")
        return self.run or self.same_run

    @property
    def words(self) -> str:
        """Arguments that name the run on a command line, after a space; "" for the newest one."""
        given = {"--redis-url": self.redis_url, "--run-id": self.run_id}
        words = [self.name, *(word for option, value in given.items() if value for word in (option, value))]
        return "".join(f" {shlex.quote(word)}" for word in words if word)

    @property
    def path(self) -> Path | None:
        """The run's directory; None for a run that Redis has."""
        in_redis = self.redis_url is not None or self.run_id is not None
        return None if self.name is None and in_redis else run_directory(self.name)

    def find(self) -> Run:
        """Return the run, as `Run.find`."""
        from distrl.apps.jobs.finding import job_in

        path = self.path
        job = None if path is None else job_in(path)
        if path is not None and job is not None and not (path / "run.json").exists():
            raise ConfigError(f"{job.run_id} on {job.target} has not begun, or not on this host: distrl status {path}")
        return Run.find(self.name, self.redis_url, self.run_id)

    def job(self, address: str | None) -> "JobRecord | None":
        """Return the submitted job that is named, or is the newest; None for a run that `distrl train` began.

        Args:
            address: The target's address, in place of the recorded one.

        Raises:
            ConfigError: There is no run of that name; or an address is given for a run that is no job, or is a job
                of a target without one.
        """
        from distrl.apps.jobs.finding import at_address, job_in

        path = self.path
        found = None if path is None else job_in(path)
        if found is None and address is not None:
            raise ConfigError(f"--address {address} is for jobs, which distrl submit has submitted")
        return None if found is None else at_address(found, address)
