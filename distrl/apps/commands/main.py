"""The command line. Every error is one line on stderr and an exit code of errors.py; DISTRL_DEBUG=1 adds the traceback.

Commands import what they need when they run, so that `distrl --help` stays quick and actors stay light.
"""

import atexit
import contextlib
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import Abort, TyperException

import distrl
from distrl.apps.commands import (
    actors,
    autoscale,
    chaos,
    completion,
    config,
    control,
    dashboard,
    data,
    doctor,
    env,
    evaluate,
    export,
    health,
    jobs,
    plot,
    presets,
    redis,
    roles,
    runs,
    serve,
    submit,
    sweep,
    tune,
)
from distrl.apps.commands.help import App, takes
from distrl.apps.commands.options import Layers, RunDirOption, RunOrConfigArgument
from distrl.apps.commands.printing import echo
from distrl.apps.commands.stored import stored_configuration
from distrl.apps.dashboard.beside import dashboard_beside
from distrl.config.load import LoadedConfig
from distrl.errors import EXIT_INTERRUPTED, ConfigError, DistrlError, failure, one_line, printable
from distrl.health import beating
from distrl.role_kinds import TABLE
from distrl.shadows import shadow
from distrl.user_classes import hide_arguments
from distrl.version import __version__

if TYPE_CHECKING:
    from distrl.runs.summary import Summary

app = App(
    name="distrl",
    help="Distributed actor-learner training for reinforcement learning.",
    epilog="Start here: [cyan]distrl train --preset cartpole-impala[/]",
)
app.add_typer(config.app, name="config", rich_help_panel="Look")
network_app = App(help="Look at networks.")
app.add_typer(network_app, name="network", rich_help_panel="Look")
app.add_typer(env.app, name="env", rich_help_panel="Look")
app.add_typer(data.app, name="data", rich_help_panel="Data")
app.command("record", rich_help_panel="Data")(data.record)
app.add_typer(redis.app, name="redis", rich_help_panel="Look")


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"distrl {__version__}")
        raise typer.Exit


@app.callback()
def _distrl(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Distributed actor-learner training for reinforcement learning."""


@app.command(rich_help_panel="Train")
@takes(Layers)
def train(
    layers: Layers,
    run_dir: RunDirOption = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN[@STEP|@best]|STORE/RUN|auto",
            help="Go on with that run, from its newest checkpoint or the named one; auto: with the run in --run-dir or "
            "its store, if there is one.",
            autocompletion=completion.runs,
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Id of a new run, by which other hosts join it. [dim]Default: time and chance.[/]"
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of the live panel.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only events and the final summary.")] = False,
    dated: Annotated[
        bool, typer.Option("--dated", help="Plain lines that begin with date and time, for a log.")
    ] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Also serve the dashboard, on this machine.")] = False,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="1..5|1,4,9", help="Train under each of these seeds, as a sweep in --run-dir."),
    ] = None,
    parallel: sweep.ParallelOption = 1,
) -> None:
    """Train until a stop condition holds.

    [cyan]distrl train --preset cartpole-impala[/]

    [cyan]distrl train --env CartPole-v1 --actors 4 --set stop.mean_return=475[/]

    [cyan]distrl train --resume runs/first[/]

    [cyan]distrl train --resume s3://bucket/runs/cartpole-1[/]

    [cyan]distrl train --preset cartpole-impala --init-from runs/first@best[/]

    [cyan]distrl train --preset cartpole-ppo --seeds 1..5 --parallel 2[/]

    [cyan]distrl train --env CartPole-v1 --algorithm dqn --actors 0 --data cartpole/random[/]

    [cyan]distrl train --preset cartpole-ppo --record cartpole/all[/]
    """
    if layers.names_nothing and resume is not None and "://" in resume:
        loaded = stored_configuration(layers, resume)
    else:
        if layers.names_nothing:
            layers = replace(layers, config=_config_to_resume(run_dir, resume))
        loaded = layers.load()
    if seeds is not None or parallel > 1:
        others = {"--resume": resume, "--run-id": run_id, "--seed": layers.seed, "--dashboard": dashboard or None}
        others |= {"--plain": plain or None, "--quiet": quiet or None, "--dated": dated or None}
        others["--record"] = loaded.config.recording.name
        raise typer.Exit(sweep.train_seeds(loaded, seeds, parallel, run_dir, others))
    _end(_train(loaded, run_dir, resume, run_id, plain=plain, quiet=quiet, dated=dated, dashboard=dashboard))


app.command(rich_help_panel="Train")(sweep.sweep)
app.command(rich_help_panel="Train")(tune.tune)
app.command(rich_help_panel="Train")(submit.submit)
app.command(rich_help_panel="Train")(actors.actors)
for _kind in TABLE:
    app.command(_kind.name, rich_help_panel="Train", help=roles.help_of(_kind))(roles.command(_kind))
app.command(rich_help_panel="Look")(evaluate.evaluate)
app.command("serve-env", rich_help_panel="Environments")(env.serve_env)

for _command in (
    jobs.jobs,
    jobs.logs,
    control.status,
    control.scale,
    autoscale.autoscale,
    control.pause,
    control.resume,
    control.stop,
    control.checkpoint,
    control.evaluate_now,
):
    app.command(rich_help_panel="A live run")(_command)

app.command("set", rich_help_panel="A live run")(control.set_parameters)
app.command(rich_help_panel="A live run")(dashboard.dashboard)
app.command(rich_help_panel="A live run")(chaos.chaos)


@app.command(rich_help_panel="Look")
@takes(Layers)
def bench(
    layers: Layers,
    seconds: Annotated[float, typer.Option(min=1.0, metavar="S", help="Length of the end-to-end measurement.")] = 20.0,
    run_dir: RunDirOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure the limit of this machine and the speed of the pipeline; by default with cartpole-impala.

    [cyan]distrl bench --preset cartpole-impala --json[/]

    [cyan]distrl bench --env Acrobot-v1 --actors 4[/]
    """
    import json

    from distrl.apps.trackers.tracking import Trackers
    from distrl.launch.bench import bench as measure
    from distrl.terminal.console import QuietView, make_view

    loaded = (replace(layers, preset="cartpole-impala") if layers.names_nothing else layers).load()
    folder = run_dir or distrl.new_directory(Path("runs") / distrl.run_name(loaded.config, "bench-"))
    view = QuietView(folder, lambda text: echo(text, err=True)) if as_json else make_view(run_dir=folder)
    try:
        report = measure(loaded, seconds=seconds, run_dir=folder, view=view, observers=[Trackers])
    finally:
        view.stop()
    if as_json:
        echo(json.dumps(report, indent=2))
        return
    from distrl.apps.commands.tables import print_bench

    print_bench(report)


app.command(rich_help_panel="Runs")(runs.runs)
app.command(rich_help_panel="Runs")(runs.compare)
app.command(rich_help_panel="Runs")(plot.plot)
app.command(rich_help_panel="Runs")(plot.report)
app.command("presets", rich_help_panel="Look")(presets.presets)
app.command(rich_help_panel="Look")(doctor.doctor)
app.command(rich_help_panel="Look")(health.health)
app.command(rich_help_panel="A policy")(export.export)
app.command(rich_help_panel="A policy")(serve.serve)


@network_app.command("show")
@takes(Layers)
def network_show(
    layers: Layers,
    config: RunOrConfigArgument = None,
) -> None:
    """Show the networks of a run or a configuration: layers, shapes, numbers of weights.

    [cyan]distrl network show runs/first[/]

    [cyan]distrl network show --preset cartpole-impala[/]

    [cyan]distrl network show --env CartPole-v1 --set network.middleware_parameters.kind=lstm[/]
    """
    from rich.console import Console

    from distrl.launch.external_algorithm import settled
    from distrl.launch.network_view import network_view

    if config is not None and config.is_dir():
        layers = replace(layers, config=config / "config.yaml")
    loaded = settled(layers.load())
    with Console(stderr=True).status("trying the environment and building the network …"):
        text = network_view(loaded.config)
    echo(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and return the exit code."""
    if arguments is None:
        _become_program()
        arguments = hide_arguments()
    try:
        return app(arguments, prog_name="distrl", standalone_mode=False) or 0
    except TyperException as error:
        if error.format_message():  # empty after help was printed for want of arguments
            _report(f"{error.format_message()} (see distrl --help)", error)
        return error.exit_code
    except (KeyboardInterrupt, Abort):
        return EXIT_INTERRUPTED
    except DistrlError as error:
        return _failed(error, *failure(error))
    except Exception as error:
        if (shadowed := shadow()) is not None:
            return _failed(error, ConfigError.exit_code, shadowed)
        code = _failed(error, *failure(error))
        if not getattr(error, "__notes__", ()) and not _debugging():
            echo("set DISTRL_DEBUG=1 to see the traceback", err=True)
        return code


def _become_program() -> None:
    """Set what only a process of its own may: its end, and how it takes signals."""
    # The interpreter's last garbage collections would take a fifth of a second and free nothing.
    atexit.register(gc.freeze)
    # A command that a script starts with & ignores SIGINT, and Python leaves it so: it could not be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1:2] == ["train"]:  # until the run has its own handlers; other commands end at once
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler)


def _train(
    loaded: LoadedConfig,
    run_dir: Path | None,
    resume: str | None,
    run_id: str | None,
    *,
    plain: bool,
    quiet: bool,
    dated: bool,
    dashboard: bool,
) -> "Summary":
    from distrl.roles.lifeline import LIFELINE_VARIABLE, watch_lifeline
    from distrl.terminal.console import make_view

    watch_lifeline()  # of a sweep, which may be killed
    os.environ.pop(LIFELINE_VARIABLE, None)  # what the training starts has none, or the training's
    folder = distrl.run_directory(loaded.config, run_dir, resume)
    view = make_view(plain=plain, quiet=quiet, dated=dated, run_dir=folder)
    try:
        with contextlib.ExitStack() as beside:
            beside.enter_context(beating("supervisor"))
            if run_dir is None and resume is None:
                beside.enter_context(distrl.forgotten_if_empty(folder))
            if dashboard:
                view.event(f"dashboard at {beside.enter_context(dashboard_beside(folder))}")
            return distrl.train(loaded, run_dir=folder, resume=resume, run_id=run_id, view=view)
    except DistrlError:
        raise  # its line says enough, and a launch that is refused leaves its directory as it was
    except Exception as error:
        _keep_traceback(error, folder)
        raise


def _config_to_resume(run_dir: Path | None, resume: str | None) -> Path:
    """Return the configuration file of the run to resume, if the command line names none."""
    from distrl.runs.run_directory import run_to_resume

    folder = run_to_resume(run_dir, resume)
    if folder is None:
        raise ConfigError("what to train? For example: distrl train --preset cartpole-impala")
    if not (folder / "config.yaml").is_file():
        raise ConfigError(f"{folder} holds no run to resume (no config.yaml); name a preset or a file to start one")
    return folder / "config.yaml"


def _keep_traceback(error: Exception, run_dir: Path) -> None:
    """Append the traceback to logs/train.log of an existing run directory."""
    if not (run_dir / "logs").is_dir():
        return
    log = run_dir / "logs" / "train.log"
    with contextlib.suppress(OSError):  # the disk may be what the error is about
        with log.open("a", encoding="utf-8") as file:
            file.write(time.strftime("%Y-%m-%d %H:%M:%S\n"))
            traceback.print_exception(error, file=file)
        error.add_note(f"traceback in {log}")


def _end(summary: "Summary") -> None:
    if summary.error is not None:
        with contextlib.suppress(OSError):  # without a reader, the exit code still reports it
            echo(f"distrl: error: {_one_line(summary.error)}", err=True)
    raise typer.Exit(summary.exit_code)


def _failed(error: Exception, code: int, text: str) -> int:
    _report(text, error)
    return code


def _report(text: str, error: Exception) -> None:
    """Print one line; below it, dim, the error's details: an environment's own traceback, the path of the log."""
    details: list[str] = getattr(error, "__notes__", [])
    with contextlib.suppress(OSError):  # without a reader, the exit code still reports it
        echo(f"distrl: error: {_one_line(text)}", err=True)
        for detail in details:
            text = "\n".join(printable(line.expandtabs()) for line in detail.rstrip().splitlines())
            echo(typer.style(text, dim=True), err=True)
        if _debugging():
            traceback.print_exception(error, file=sys.stderr)


def _one_line(text: str) -> str:
    return printable(one_line(text))


def _debugging() -> bool:
    return os.environ.get("DISTRL_DEBUG", "") not in ("", "0")
