"""`distrl export`: write a policy as one file."""

from pathlib import Path
from typing import Annotated

import typer

import distrl
from distrl.commands.options import RequiredWeightsOfRunArgument, WeightsOption, named_weights


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

    run, checkpoint = named_weights(run, checkpoint)
    path, exported = export_run(run, output, checkpoint=checkpoint, force=force, version=distrl.__version__)
    behind = "" if exported.env_steps is None else f" after {exported.env_steps:,} steps"
    typer.echo(
        f"{path}: {exported.algorithm} on {exported.policy.environment.id}{behind}, "
        f"{path.stat().st_size / 1000:,.0f} kB, sha256 {exported.policy.sha256[:12]}"
    )
