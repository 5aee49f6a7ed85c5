"""Roles that die all the time, of kill -9, wherever they are: the run goes on, and nothing is lost or done twice."""

import csv
import re
import time

import pytest

from tests.faults.arguments import sets
from tests.faults.learners import FATE
from tests.faults.processes import Taken, slope_per_h
from tests.waiting import lasts

pytestmark = [pytest.mark.slow, pytest.mark.redis]

SOLVED = 475.0
USUAL_STEPS = 500_000
"""By which CartPole's preset is expected to be solved (distrl presets cartpole-impala)."""


def endurance(seconds):
    return [pytest.mark.endurance, pytest.mark.timeout(seconds)]


@pytest.mark.parametrize(
    ("every", "length"),
    [pytest.param("4s", "12s", marks=pytest.mark.long), pytest.param("10s", "10m", marks=endurance(900))],
)
def test_cartpole_is_learned_while_actors_are_killed(start_run, endless, distrl_command, measured, every, length):
    run = start_run(*endless, "--actors", "4", "--set", "actors.restart_budget=1000")
    run.wait_for_updates(3)
    trial = ["chaos", str(run.run_dir), "--kill", "actor", "--every", every, "--for", length, "--seed", "1"]
    done = distrl_command(*trial, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr  # each was back within 15 s, all unrolls accounted for
    told = re.search(
        r"(\d+) killed, (\d+) back, the slowest after ([\d.]+) s; every unroll is accounted for", done.stdout
    )
    assert told is not None
    newest = run.backend.weights.version()
    run.wait_until(
        lambda: (
            [role.weights_version > newest for role in run.backend.registry.roles() if role.role == "actor"]
            == [True] * 4
        ),
        "all four act with weights of after the last kill",
    )
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "SIGTERM", 0)
    assert (summary.restarts, summary.lost, summary.foreign, summary.rolled_back) == (int(told[1]), 0, 0, 0)
    with (run.run_dir / "metrics.csv").open() as file:
        curve = [(int(row["env_steps"]), float(row["mean_return_100"] or 0.0)) for row in csv.DictReader(file)]
    solved = next((steps for steps, value in curve if value >= SOLVED), None)
    if length == "10m":
        assert solved is not None
        assert solved <= 2 * USUAL_STEPS
    measured(
        1, killed=int(told[1]), slowest_back_s=float(told[3]), solved_at_steps=solved or 0, unrolls=summary.produced
    )


@pytest.mark.parametrize("deaths", [pytest.param(2, marks=pytest.mark.long), pytest.param(20, marks=endurance(1500))])
def test_a_learner_that_dies_wherever_it_hurts_goes_on(start_run, slow_steps, tmp_path, monkeypatch, measured, deaths):
    """In writing files and directories of checkpoints, publishing and acknowledging, before or after."""
    fate = tmp_path / "fate"
    monkeypatch.setenv(FATE, f"{deaths} {fate}")
    run = start_run(
        *slow_steps,
        "--algorithm",
        "tests.faults.learners:Mortal",
        *sets(
            "checkpoint.every_updates=10",
            "actors.restart_budget=100",
            "algorithm.max_staleness_updates=null",
        ),
    )
    versions, gaps, died_at, alive = [], [], None, None
    while len(fate.read_text().splitlines() if fate.exists() else []) < deaths or died_at is not None:
        lasts(0.05)
        assert run.process.poll() is None, run.told
        versions.append(run.backend.weights.version())
        learner = next((role.pid for role in run.backend.registry.roles() if role.role == "learner"), None)
        if alive is not None and died_at is None and not run.alive(alive):
            died_at, trained = time.monotonic(), run.backend.ledger.counts().trained
        if died_at is not None and run.backend.ledger.counts().trained > trained:
            gaps.append(time.monotonic() - died_at)
            died_at = None
        alive = learner if died_at is None else None
    run.wait_for_updates(run.updates + 30)
    assert versions == sorted(versions)
    assert run.backend.engine.call("XLEN", run.backend._run.keys.dead) == 0
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "SIGTERM", 0)
    assert summary.restarts == deaths
    assert (summary.lost, summary.foreign) == (0, 0)
    dropped = {reason: count for reason, count in summary.dropped.items() if count}
    assert dropped.keys() <= {"duplicate"}
    # A learner that dies before its first checkpoint, between publishing and acknowledging, leaves weights that hold an
    # update by an unroll that its successor trains on again.
    trained_again = summary.updates + summary.rolled_back - summary.trained
    assert 0 <= trained_again <= (run.run_dir / "logs" / "events.log").read_text().count("from the published weights")
    measured(
        3,
        deaths=deaths,
        slowest_back_s=max(gaps),
        rolled_back=summary.rolled_back,
        trained=summary.trained,
        duplicates=dropped.get("duplicate", 0),
        of=", ".join(sorted(set(fate.read_text().splitlines()))),
    )


@pytest.mark.parametrize(
    ("every_s", "length_s"),
    [pytest.param(5.0, 20.0, marks=pytest.mark.long), pytest.param(60.0, 3600.0, marks=endurance(4500))],
)
def test_nothing_grows_while_roles_die_and_come_back(start_run, unhurried, measured, every_s, length_s):
    """After an hour with a kill a minute, surviving processes take no more than at the beginning.

    The second actor is killed again and again; learner, first actor, Redis and the run's own command live on.
    """
    run = start_run(*unhurried, *sets("actors.restart_budget=1000", "checkpoint.every_s=10"))
    run.wait_for_updates(20)
    survivors = {
        "command": run.process.pid,
        "learner": run.role("learner").pid,
        "actor": run.role("actor", 0).pid,
        "redis": int(run.backend.engine.call("INFO", "server")["process_id"]),
    }
    warm = length_s / 6
    began, killed, samples = time.monotonic(), 0, []
    while (passed := time.monotonic() - began) < length_s:
        if passed > (killed + 1) * every_s and run.role("actor", 1).incarnation == killed + 1:
            run.kill("actor", 1)
            killed += 1
        if passed > warm:
            samples.append((passed, {name: Taken.by(pid) for name, pid in survivors.items()}, of_redis(run)))
        lasts(min(every_s / 4, 5.0))
    assert {run.role("learner").pid, run.role("actor", 0).pid} <= set(survivors.values())
    run.wait_for_updates(run.updates + 20)
    times = [passed for passed, *_ in samples]
    slopes = {name: slope_per_h(times, [taken[name].rss_mb for _, taken, _ in samples]) for name in survivors}
    quarter = max(len(samples) // 4, 1)
    for name in survivors:  # the most of the last quarter against the most of the first: one may be under way
        for what in ("descriptors", "threads"):
            first, last = (
                max(getattr(taken[name], what) for _, taken, _ in part)
                for part in (samples[:quarter], samples[-quarter:])
            )
            assert last <= first + 2, (name, what)
    keys, pending = zip(*(of for *_, of in samples), strict=True)
    assert max(keys) - min(keys) <= 2  # tickets that are held come and go
    assert max(pending) <= 3
    if length_s > 3000:
        assert max(slopes.values()) <= 1.0, slopes
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance, summary.lost) == (0, killed, 0, 0)
    found = {f"{name}_mb_per_h": slope for name, slope in slopes.items()}
    measured(19, minutes=length_s / 60, killed=killed, updates=summary.updates, keys=max(keys), **found)


def of_redis(run):
    """How many keys there are, and entries that were taken and not acknowledged."""
    return run.backend.engine.call("DBSIZE"), run.backend.ledger.counts().in_flight
