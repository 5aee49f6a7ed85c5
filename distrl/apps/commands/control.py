"""Commands for a live run: they read its state and send requests through its registry in Redis."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.apps.commands import completion
from distrl.apps.commands.answering import answering
from distrl.apps.commands.help import takes
from distrl.apps.commands.options import AddressOption, RunOptions
from distrl.apps.commands.printing import echo
from distrl.apps.config.configuration import Configuration
from distrl.config.document import shown
from distrl.config.explain import known_paths
from distrl.config.load import parse_assignment
from distrl.errors import ConfigError, DistrlError, one_line, printable
from distrl.runs.directories import Run
from distrl.runs.summary import closing_text, duration

if TYPE_CHECKING:
    from distrl.apps.jobs.record import JobRecord
    from distrl.memory_backend.records import Errand
    from distrl.memory_backend.steering import Steering

POLL_S = 0.1


@takes(RunOptions)
def status(
    named: RunOptions,
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show how a run or a submitted job is doing, or how it ended.

    Example: [cyan]distrl status runs/first[/]
    """
    submitted = named.job(address)
    facts: dict[str, Any] = {}
    if submitted is not None:
        # Imported here: other runs need no targets.
        from distrl.apps.jobs.watching import facts_of, job_words, state_of

        with answering(submitted.target):
            state = state_of(submitted)
        facts = {"job": facts_of(submitted, state)}
        if not as_json:
            echo(job_words(submitted, state))
        if named.path is not None and not (named.path / "run.json").exists():  # it has not begun, or not on this host
            if as_json:
                echo(json.dumps({"run_id": submitted.run_id, **facts}, indent=2))
            return
    _show_run(named.find(), facts, as_json=as_json)


def _show_run(run: Run, facts: dict[str, Any], *, as_json: bool) -> None:
    """Print the state of a run that this host reaches; `facts` are added to the JSON object."""
    run_id, summary = run.record.run_id, run.summary
    if summary is not None:
        text = closing_text(summary, run.path)
        if summary.error is not None:
            text += f"\n  error    {printable(one_line(summary.error))}"
        if as_json:
            text = json.dumps({**summary.model_dump(mode="json"), **facts}, indent=2)
        echo(text if as_json else f"{printable(run_id)}: {text}")
        return
    found = run.read()
    supervisor, age_s = found.supervisor, found.supervisor_age_s
    if as_json:
        told: dict[str, Any] = {"run_id": run_id, **facts, "control": asdict(found.control)}
        told |= {"snapshot": found.latest, "ledger": asdict(found.counts), "imbalance": found.counts.imbalance}
        told["supervisor"] = None if supervisor is None else {**asdict(supervisor), "heartbeat_age_s": age_s}
        aged = zip(found.roles, found.ages_s, strict=True)
        told["roles"] = [{**asdict(role), "heartbeat_age_s": role_age_s} for role, role_age_s in aged]
        echo(json.dumps(told, indent=2))
        return
    # Imported here: tables are rich's, which other commands need not load.
    from distrl.apps.commands.tables import print_status

    print_status(run_id, found)
    if why := found.verdict().why:
        echo(f"{found.verdict().word}: {why}")
    if supervisor is not None and age_s is not None and found.supervisor_is_silent:
        where = printable(f"process {supervisor.pid} on host {supervisor.host}")
        echo(f"the supervisor, {where}, has been silent for {duration(age_s)}")


@takes(RunOptions)
def scale(
    named: RunOptions,
    actors: Annotated[int, typer.Argument(min=1, metavar="N", help="The number of actors that the run must have.")],
    force: Annotated[bool, typer.Option("--force", help="Also more actors than actors.max_count.")] = False,
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Change the number of actors while a run or a submitted job goes on.

    Example: [cyan]distrl scale 8[/], [cyan]distrl scale 8 runs/first[/]
    """
    submitted = named.job(address)
    if submitted is not None:
        from distrl.apps.jobs.record import JobRecord
        from distrl.apps.jobs.targets import open_target

        run_id, target = submitted.run_id, open_target(submitted.target)
        with answering(submitted.target):
            if target.starts_actors and named.path is not None and (named.path / "run.json").exists():
                target.autoscale(submitted, None, None, off=True)
            target.scale(submitted, actors, force=force)
        if named.path is not None:  # read anew, as --address may have replaced the recorded one
            record = JobRecord.read(named.path).model_copy(update={"actors": actors})
            record.write(named.path)
            _store(record)
    else:
        found = named.find()
        run_id = found.record.run_id
        with found.steering("command line") as steering:
            steering.scale(actors, force=force)
    if as_json:
        echo(json.dumps({"run_id": run_id, "actors": actors}))
        return
    told = f"requested {actors} {'actor' if actors == 1 else 'actors'}"
    echo(f"{told}; distrl status{named.words} shows them come and go")


def _store(record: "JobRecord") -> None:
    """Write the record of a job into its store, where other machines read it."""
    from distrl.apps.jobs.stored_jobs import store_record

    try:
        store_record(record)
    except DistrlError as error:  # the hosts of the run may have rights that this one lacks
        echo(f"job.json is not in the data store: {error}", err=True)


@takes(RunOptions)
def pause(named: RunOptions) -> None:
    """Let the actors wait after the unroll in hand; nothing is lost.

    Example: [cyan]distrl pause[/]
    """
    with _steering(named) as steering:
        steering.pause()
    echo(f"pause requested; continue with distrl resume{named.words}")


@takes(RunOptions)
def resume(named: RunOptions) -> None:
    """Go on after a pause.

    Example: [cyan]distrl resume[/] (a run that has ended is continued by [cyan]distrl train --resume DIR[/])
    """
    with _steering(named) as steering:
        steering.resume()
    echo("resume requested")


@takes(RunOptions)
def stop(
    named: RunOptions,
    now: Annotated[bool, typer.Option("--now", help="Kill it; updates since the last checkpoint are lost.")] = False,
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """End a run or a submitted job in order: it saves a checkpoint, writes its summary and exits with 0.

    Example: [cyan]distrl stop runs/first[/]
    """
    submitted = named.job(address)
    if submitted is None and now:
        from distrl.apps.jobs.finding import as_job

        if named.path is None:
            raise ConfigError("--now kills processes, which --redis-url does not name; name the run's directory")
        submitted = as_job(named.path)
    if submitted is not None:
        run_id = submitted.run_id
        with answering(submitted.target):
            told = _stop_job(submitted, named.path, now=now)
    else:
        found = named.find()
        run_id, told = found.record.run_id, None
        with found.steering("command line") as steering:
            steering.stop()
    done = told or ("killed" if now else "stop requested")
    echo(json.dumps({"run_id": run_id, "now": now, "did": done}) if as_json else done)


def _stop_job(job: "JobRecord", run_dir: Path | None, *, now: bool) -> str | None:
    """Stop a job; return what else was done, as `Target.stop`."""
    from distrl.apps.jobs.submission import withdraw_unfinished
    from distrl.apps.jobs.targets import open_target

    if run_dir is not None and withdraw_unfinished(job, run_dir):
        return "its submission had not finished: what there was of it is removed"
    return open_target(job.target).stop(job, now=now)


@takes(RunOptions)
def checkpoint(named: RunOptions) -> None:
    """Save what is learned now, and say when it is there.

    Example: [cyan]distrl checkpoint[/]
    """
    _run_errand("checkpoint", lambda steering: steering.checkpoint(), named)
    echo("a checkpoint holds all updates up to your request")


@takes(RunOptions)
def evaluate_now(named: RunOptions) -> None:
    """Evaluate the newest weights now, and say when that is done.

    Example: [cyan]distrl evaluate-now[/] (a run that has ended: [cyan]distrl evaluate DIR[/])
    """
    _run_errand("evaluation", lambda steering: steering.evaluate(), named)
    echo("evaluated; distrl status and logs/events.log show the result")


@takes(RunOptions)
def set_parameters(
    named: RunOptions,
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH=VALUE… [RUN]",
            help="Settings as of --set, and a run's directory: the argument without an equals sign. "
            "[dim]No setting: show what can change. No run: the newest under runs/.[/]",
            autocompletion=completion.assignments_and_runs,
        ),
    ] = None,
) -> None:
    """Change parameters while a run goes on; checkpoints remember them.

    Example: [cyan]distrl set network.learning_rate=1e-4 algorithm.entropy_weight=0.001 runs/first[/]

    A run whose name holds an equals sign is named by --run.
    """
    assignments = (parse_assignment(text, "distrl set") for text in run or () if "=" in text)
    named = replace(named, run=_run_among(run or ()))
    settings = {".".join(path): value for path, value in assignments}
    with _steering(named) as steering:
        if settings:
            steering.change(settings)
        now = steering.steerable()
    for parameter in now:
        now_is = json.dumps(parameter.value) if isinstance(parameter.value, bool) else parameter.value
        value = "(by a schedule or a rule)" if parameter.value is None else now_is
        echo(f"{parameter.path} = {value}  # {parameter.meaning}")


def _run_among(arguments: Sequence[str]) -> str | None:
    """Return the only argument that is no assignment."""
    runs = [text for text in arguments if "=" not in text]
    for text in {*runs} & {*known_paths(Configuration)}:
        parse_assignment(text, "distrl set")  # raises: the equals sign is missing
    if len(runs) > 1:
        raise ConfigError(
            f"distrl set takes PATH=VALUE and one run, not both {shown(runs[0])} and {shown(runs[1])}; "
            "write settings without spaces around ="
        )
    return runs[0] if runs else None


def _steering(named: RunOptions) -> "AbstractContextManager[Steering]":
    return named.find().steering("command line")


def _run_errand(
    errand: "Errand",
    ask: "Callable[[Steering], int]",
    named: RunOptions,
) -> None:
    """Request an errand, and wait until it is done."""
    # Imported here: rich costs time that other commands need not pay.
    from rich.console import Console

    with _steering(named) as steering:
        number = ask(steering)
        with Console(stderr=True).status(f"{errand} requested; waiting for it (after Ctrl-C the run still does it) …"):
            while not steering.is_done(errand, number):
                time.sleep(POLL_S)
