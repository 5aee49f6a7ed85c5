"""`distrl export`: write a policy as one file."""

from pathlib import Path
from typing import Annotated

import typer

from distrl.apps.commands.options import RequiredWeightsOfRunArgument, WeightsOption
from distrl.apps.commands.printing import echo
from distrl.apps.commands.stored import with_weights
from distrl.config.stores import is_store_url
from distrl.errors import ConfigError
from distrl.version import __version__


def export(
    run: RequiredWeightsOfRunArgument,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="[dim]Default: policy.onnx in the run's directory.[/]")
    ] = None,
    checkpoint: WeightsOption = "newest",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a run's policy as one ONNX file, which acts without distrl's learner and its libraries.

    [cyan]distrl export runs/first --output cartpole.onnx[/]

    [cyan]distrl export runs/first@1200[/]

    In Python: [cyan]action, _ = distrl.load_policy("cartpole.onnx").act(observation)[/]
    """
    from distrl.serving.export import export_run

    if is_store_url(run) and output is None:
        raise ConfigError(f"{run} is in a data store: name a file here with --output")
    run_dir, checkpoint = with_weights(run, checkpoint)
    path, exported = export_run(run_dir, output, checkpoint=checkpoint, force=force, version=__version__)
    behind = "" if exported.env_steps is None else f" after {exported.env_steps:,} steps"
    echo(
        f"{path}: {exported.algorithm} on {exported.policy.environment.id}{behind}, "
        f"{path.stat().st_size / 1000:,.0f} kB, sha256 {exported.policy.sha256[:12]}"
    )
