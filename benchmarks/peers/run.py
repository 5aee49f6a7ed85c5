"""distrl beside Sample Factory, Stable-Baselines3, a CleanRL-style PPO and RLlib on this machine, in one table.

    python -m benchmarks.peers --environments ~/peers --out runs/peers --publish

First the peers' environments are made (`environments.py`; minutes and 2 GB each). Then every contender runs every task,
one run at a time, in turns: all runs of the first repetition before those of the second. The tasks:

    cartpole      CartPole-v1: steps per second while learning, over 30 s after the first update; the time of that
                  update; memory
    solve         CartPole-v1: seconds from the command to the exit at a mean return of 475 over 100 training
                  episodes, 120 at most
    halfcheetah   HalfCheetah-v5: the mean return of the last 100 training episodes 300 s after the command; steps
                  per second
    pong          Pong from 84×84×4 pixels, frame skip 4: steps per second while learning, over 60 s after the first
                  update

The table has medians over all runs in OUT. To repeat slow tasks less often, first call the benchmark with fewer names
and more repetitions, then with all names. Rates leave out the first quarter of the time after the first update. Memory
is the proportional set size of all processes of a run together. A failed run is reported with the last line of its
output, and the next call tries it again. Existing results are kept, so that the same command continues after an
interruption. The whole table takes about three hours with three repetitions, half of them for HalfCheetah. Run nothing
else meanwhile: the highest load before a run is in the report. Linux only.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from benchmarks import provenance
from benchmarks.measurement import keep
from benchmarks.peers import environments
from benchmarks.peers.contenders import CONTENDERS, TASKS, Contender, Task, selected
from benchmarks.peers.measure import measure
from benchmarks.peers.results import Measured, configuration, keep_result, kept, median, repetitions
from benchmarks.peers.table import block, report, table
from benchmarks.publishing import RESULTS
from benchmarks.speed import write_page

EXAMPLES = """examples:
  python -m benchmarks.peers                                             everything, three times: about three hours
  python -m benchmarks.peers --only sb3 distrl --task cartpole solve     two libraries, two tasks: 13 minutes
  python -m benchmarks.peers --task cartpole --repeat 1 --seconds 10     whether all of them work: 4 minutes
  python -m benchmarks.peers --install                                   the environments of the peers, and no run
"""
Todo = tuple[int, Task, Contender]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=(__doc__ or "").splitlines()[0],
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(contender.name for contender in CONTENDERS)
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"contenders or libraries of: {names}")
    made.add_argument("--task", nargs="+", default=list(TASKS), choices=list(TASKS), help="the tasks; all of them")
    made.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each, with seeds 1 to N (default 3)")
    made.add_argument("--seconds", type=float, help="length of every run, instead of each task's own")
    made.add_argument("--out", type=Path, default=Path("runs/peers"), help="where results are kept (runs/peers)")
    made.add_argument("--environments", type=Path, help="where the peers' environments are (OUT/environments)")
    made.add_argument("--install", action="store_true", help="makes the environments and measures nothing")
    made.add_argument("--publish", action="store_true", help="into benchmarks/results/ and docs/performance.md")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if a run failed, 2 after wrong usage, 130 after an interruption."""
    given = parser().parse_args(arguments)
    try:
        contenders = selected(given.only)
    except ValueError as error:
        print(f"benchmarks.peers: error: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(contenders, given)
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from here", flush=True)
        return 130


def run(contenders: tuple[Contender, ...], given: argparse.Namespace) -> int:
    """Make the environments, measure all missing runs, and print the table."""
    folder = (given.environments or given.out / "environments").resolve()
    needed = sorted({contender.environment for contender in contenders if not contender.ours})
    broken = environments.make(needed, folder, tell)
    if given.install:
        return 1 if broken else 0
    seconds = {name: given.seconds or task.seconds for name, task in TASKS.items()}
    plan = list(turns(contenders, given.task, given.repeat))
    results = {todo: there for todo in plan if (there := _kept(given.out, todo, seconds)) and there.failure is None}
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 0.5 * cores:
        tell(f"the machine is busy with something else (load {load:.1f} on {cores} cores): no figure will say much")
    if results:
        tell(f"{len(results)} of {len(plan)} are there already")
    for index, todo in enumerate(plan):
        if todo not in results:
            name = f"[{index + 1}/{len(plan)}] {todo[2].name} {todo[1].name} {todo[0]}"
            left_s = remaining_s([one for one in plan[index:] if one not in results], list(results.values()), seconds)
            tell(f"{name} … ({left_s / 60:.0f} min to go)")
            results[todo] = one_run(todo, seconds[todo[1].name], given.out, folder, broken)
            tell(f"{name}: {words(results[todo])}")
    found = [*results.values(), *others(contenders, given.task, given.out, seconds, results)]
    found.sort(key=lambda one: one.repetition)
    print(f"\n{table(found, seconds)}")
    told = report(found, seconds, "python -m benchmarks.peers " + " ".join(_words_of(given)))
    keep(given.out / "peers.json", told)
    if given.publish:
        keep(RESULTS / "peers.json", told)
        write_page("peers", block)
    return 1 if any(one.failure for one in found) else 0


def turns(contenders: tuple[Contender, ...], tasks: list[str], repetitions: int) -> Iterator[Todo]:
    """Return all runs, repetition by repetition and task by task, so that disturbances affect all contenders."""
    for repetition in range(1, repetitions + 1):
        for task in (TASKS[name] for name in TASKS if name in tasks):
            yield from ((repetition, task, contender) for contender in contenders if task.name in contender.tasks)


def others(
    contenders: tuple[Contender, ...], tasks: list[str], out: Path, seconds: dict[str, float], but: Collection[Todo]
) -> list[Measured]:
    """Return further results of these from an earlier call with more repetitions."""
    found = []
    for task in (TASKS[name] for name in tasks):
        for contender in contenders:
            todos = [(repetition, task, contender) for repetition in repetitions(out, contender, task)]
            left = [_kept(out, todo, seconds) for todo in todos if todo not in but]
            found += [one for one in left if one is not None and one.failure is None]
    return found


def one_run(todo: Todo, seconds: float, out: Path, folder: Path, broken: dict[str, str]) -> Measured:
    """Measure one run and store its result."""
    repetition, task, contender = todo
    where = {
        "contender": contender.name,
        "task": task.name,
        "repetition": repetition,
        "seconds": seconds,
        "configuration": configuration(contender, task, seconds),
        "date": time.strftime("%Y-%m-%d"),
        "machine": provenance.machine(),
        "commit": provenance.commit(),
    }
    if contender.environment in broken:
        found = {
            "failure": f"not installed: {broken[contender.environment]}",
            "env_steps": 0,
            "wall_s": 0.0,
            "load": 0.0,
        }
        names = ("steps_per_s", "first_update_s", "solved_s", "mean_return", "pss_bytes", "cpu_us_per_step")
        found.update(dict.fromkeys(names))
    else:
        found = measure(contender, task, repetition, seconds, out / "runs" / f"{contender.name}-{task.name}", folder)
    measured = Measured(**where, **found)
    keep_result(out, contender, task, measured)
    return measured


def remaining_s(todo: list[Todo], done: list[Measured], seconds: dict[str, float]) -> float:
    """Estimate the seconds that these runs take, from earlier ones of the same kind or from the usual duration."""
    total = 0.0
    for _, task, contender in todo:
        alike = [one for one in done if (one.contender, one.task) == (contender.name, task.name)]
        usual_s = task.expected_s + seconds[task.name] - task.seconds
        total += median(alike, lambda one: one.wall_s) or max(usual_s, 15.0)
    return total


def words(one: Measured) -> str:
    """Return '18,400 steps/s, first update after 2.4 s, 54.1 µs of CPU per step, 0.35 GB'."""
    if one.failure is not None:
        return f"failed: {one.failure}"
    told = [
        "" if one.steps_per_s is None else f"{one.steps_per_s:,.0f} steps/s",
        "" if one.first_update_s is None else f"first update after {one.first_update_s:.1f} s",
        "" if one.solved_s is None else f"solved after {one.solved_s:.1f} s",
        "" if one.mean_return is None else f"mean return {one.mean_return:,.0f}",
        "" if one.cpu_us_per_step is None else f"{one.cpu_us_per_step:,.1f} µs of CPU per step",
        "" if one.pss_bytes is None else f"{one.pss_bytes / 1e9:.2f} GB",
    ]
    return ", ".join(word for word in told if word)


def _kept(out: Path, todo: Todo, seconds: dict[str, float]) -> Measured | None:
    repetition, task, contender = todo
    return kept(out, contender, task, repetition, seconds[task.name])


def _words_of(given: argparse.Namespace) -> list[str]:
    only = ["--only", *given.only] if given.only else []
    task = ["--task", *given.task] if list(given.task) != list(TASKS) else []
    return [
        *only,
        *task,
        "--repeat",
        str(given.repeat),
        *(["--seconds", f"{given.seconds:g}"] if given.seconds else []),
    ]


def tell(line: str) -> None:
    """Print progress at once."""
    print(line, flush=True)
