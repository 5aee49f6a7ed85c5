"""`distrl evaluate --data`: estimates from recorded episodes, without acting."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.apps.commands.collecting import collect
from distrl.apps.commands.options import ColumnsOption
from distrl.apps.commands.printing import echo
from distrl.apps.commands.stored import with_weights
from distrl.config.document import parse
from distrl.config.load import validated
from distrl.config.off_policy import ESTIMATORS
from distrl.errors import EXIT_INTERRUPTED, ConfigError, printable
from distrl.metrics.phrases import known, return_words

if TYPE_CHECKING:
    from distrl.data.off_policy.evaluating import OffPolicy
    from distrl.memory_backend.records import Estimate

BC = "bc"


@dataclass(frozen=True)
class DataOptions:
    """The options of `distrl evaluate` that are about recorded episodes, as they were given."""

    data: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Estimate the return from these recorded episodes; nothing acts."),
    ] = None
    columns: ColumnsOption = None
    estimator: Annotated[
        str | None,
        typer.Option(metavar="ips,wis,dm,dr,sdr,fqe", help="With --data: estimators, all if none is named."),
    ] = None
    interval: Annotated[bool, typer.Option("--interval", help="With --data: 95 % intervals.")] = False
    greedy: Annotated[
        bool, typer.Option("--greedy", help="With --data: take the best action; else draw it, if the policy draws.")
    ] = False
    behaviour: Annotated[
        str | None,
        typer.Option(metavar=BC, help="With --data: fit the policy that acted, whose probabilities are not recorded."),
    ] = None
    discount: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, metavar="G", help="With --data: discount of rewards; else the algorithm's."),
    ] = None


_WITH_DATA = {*DataOptions.__dataclass_fields__, "run", "checkpoint", "epsilon", "seed", "as_json"}


def is_about_data(context: typer.Context, options: DataOptions) -> bool:
    """Return whether --data is given; refuse options that do not go with it, or that go with it alone."""
    for option in context.command.params:
        name, source = str(option.name), context.get_parameter_source(str(option.name))
        if source is None or source.name != "COMMANDLINE":
            continue
        if options.data is None and name in DataOptions.__dataclass_fields__:
            raise ConfigError(f"{option.opts[0]} goes with --data NAME, recorded episodes")
        if options.data is not None and name not in _WITH_DATA:
            raise ConfigError(f"{option.opts[0]} is of episodes that are played; with --data nothing acts")
    return options.data is not None


def estimate(
    options: DataOptions, run: str | None, checkpoint: str, epsilon: float | None, seed: int, *, as_json: bool
) -> None:
    """Print estimates of a run's policy from recorded episodes."""
    # Imported here: it brings environments and ONNX Runtime, which the help does not need.
    from distrl.config.data import DataConfig
    from distrl.data.off_policy.evaluating import Wanted, of_run
    from distrl.serving.evaluation import run_config

    if run is None or run.endswith(".onnx"):
        raise ConfigError("--data goes with the policy of a run: distrl evaluate RUN --data NAME")
    names = ESTIMATORS if options.estimator is None else tuple(dict.fromkeys(options.estimator.split(",")))
    if unknown := [name for name in names if name not in ESTIMATORS]:
        raise ConfigError(f"--estimator {unknown[0]}: there are {', '.join(ESTIMATORS)}; several are joined by commas")
    if options.behaviour not in (None, BC):
        raise ConfigError(f"--behaviour {options.behaviour}: there is {BC}")
    directory, checkpoint = with_weights(run, checkpoint)
    columns = {} if options.columns is None else {"columns": parse(options.columns, "--columns")}
    data = validated(DataConfig, {"sets": [{"name": options.data, **columns}]}, {"sets": "--data"})
    wanted = Wanted(
        names,
        options.discount,
        epsilon,
        greedy=options.greedy,
        fits_behaviour=options.behaviour is not None,
        interval=options.interval,
        seed=seed,
        needs_all=options.estimator is not None,
    )
    evaluation, env_steps = of_run(directory, checkpoint, run_config(directory), data, wanted)
    _, interrupted = collect(evaluation.play(), evaluation.episodes, "episodes")
    found: list[Estimate] = []
    if not interrupted:
        found, interrupted = collect(evaluation.estimates(), len(names), "estimators")
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    report = _report(evaluation, found)
    subject = {"run": run, "policy": checkpoint, "data": options.data, "seed": seed, "env_steps_trained": env_steps}
    report = {**subject, **report}
    echo(json.dumps(report, indent=2) if as_json else _text(report, has_intervals=options.interval))


def _report(evaluation: "OffPolicy", found: Sequence["Estimate"]) -> dict[str, Any]:
    """Return the figures, in JSON's types."""
    return {
        "target": evaluation.target.text,
        "behaviour": evaluation.behaviour,
        "discount": evaluation.discount,
        "episodes": evaluation.episodes,
        "steps": len(evaluation.recorded.rewards),
        "mean_return": evaluation.mean_return(1.0),
        "mean_discounted_return": evaluation.mean_return(evaluation.discount),
        "estimates": [asdict(each) for each in found],
    }


def _text(report: Mapping[str, Any], *, has_intervals: bool) -> str:
    behind = "" if report["env_steps_trained"] is None else f", {report['env_steps_trained']:,} environment steps"
    lines = [
        f"policy of {report['run']}, {report['policy']}{behind}: {report['target']}",
        f"  data       {report['data']}: {report['episodes']:,} episodes, {report['steps']:,} steps",
        f"  behaviour  {report['behaviour']}",
        f"  return     {return_words(report['mean_return'])} mean of the data; "
        f"{report['mean_discounted_return']:.4g} with discount {report['discount']:g}",
        "",
    ]
    heading = f"{'95 % interval':<22}" if has_intervals else ""
    lines.append(f"  estimator  {'value':>10}  {heading}effective episodes")
    for each in report["estimates"]:
        if each["problem"] is not None:
            lines.append(f"  {each['estimator']:<9}  {'–':>10}  {each['problem']}")
            continue
        bounds = "one episode decides" if each["low"] is None else f"{each['low']:.4g} … {each['high']:.4g}"
        weighed = known(each["effective_episodes"], "{:,.1f}".format, "–")
        lines.append(
            f"  {each['estimator']:<9}  {each['value']:>10.4g}  {f'{bounds:<22}' if has_intervals else ''}{weighed}"
        )
    return "\n".join(map(printable, lines))
