"""A real run's numbers are the same wherever they are told: page, /metrics, status, CSV, TensorBoard and summary."""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from distrl.apps.dashboard.app import make_app
from distrl.apps.web.access import Access
from distrl.metrics.snapshot import TEXTS, tag_of
from distrl.runs.metrics_csv import read_table
from distrl.runs.summary import Summary
from tests.event_files import read_events
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.redis]

COUNTED = ("updates", "env_steps", "trained_steps", "episodes", "weights_version", "restarts", "mean_return_100")
UNROLLS = ("produced", "trained", "stored", "queued", "in_flight", "lost", "foreign")
STILL = {"env_steps_per_s", "updates_per_s", "episodes_per_s", "wire_bytes_per_s", "learner_wait_share"}
ELSEWHERE = {"actors_up", "actors_wanted", "actors_blocked_share", "cpu_cores", "restarts", "rss_mb"} | STILL
"""Numbers that page, /metrics and status read from the heartbeats as they are now: paused, roles make no steps."""
AVERAGED = {"env_steps_per_s", "updates_per_s", "wall_s"}
"""Numbers of the summary that the last row has of its own interval, or of the training alone."""


def last_row(run):
    return {name: column[-1] for name, column in read_table(run.run_dir / "metrics.csv").items() if name not in TEXTS}


def newest_points(run, row):
    """Read TensorBoard's numbers by the names of the table; its axis is environment steps."""
    newest = {}
    for (tag, step), value in read_events(run.run_dir / "tensorboard").scalars.items():
        newest[tag] = (step, value) if tag not in newest or step >= newest[tag][0] else newest[tag]
    points = {name: newest[tag_of(name)][1] for name in row if tag_of(name) in newest}
    return points | {"env_steps": max(step for step, _ in newest.values())}


def told_by_prometheus(client):
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {sample.name.removeprefix("distrl_"): sample.value for family in families for sample in family.samples}


def the_same(told, row, names):
    """Check that both have the number and agree on it; TensorBoard has float32."""
    known = {name: row[name] for name in names if row[name] == row[name]}
    assert len(known) > len(names) / 2
    assert {name: told[name] for name in known} == {
        name: pytest.approx(value, rel=1e-6) for name, value in known.items()
    }


def at_rest(run):
    """Nothing is trained, and nothing new is told, while the learner beats three times."""

    def told():
        return last_row(run)["updates"], run.snapshot["updates"], run.backend.ledger.counts()

    before, beat = told(), run.role("learner").beat
    wait_until(lambda: run.role("learner").beat >= beat + 3, "the learner beats")
    return before == told() and before[0] == before[1] and before[2].queued == 0


def test_every_place_tells_the_same_numbers(start_run, unhurried, tmp_path, command_here):
    run = start_run(*unhurried)
    where = ("--run", str(run.run_dir))
    with TestClient(make_app(tmp_path, Access("127.0.0.1")), base_url="http://127.0.0.1:8720") as page:
        run.wait_for_updates(20)
        assert command_here("pause", *where).returncode == 0
        run.wait_until(lambda: {run.state("actor", 0), run.state("actor", 1)} == {"paused"}, "both actors pause")
        run.wait_until(lambda: at_rest(run), "the newest numbers are in the table, and none come")
        run.wait_until(
            lambda: run.state("learner", 0) == "waiting: unrolls", "the learner's heartbeat tells that it waits"
        )
        row, still = last_row(run), dict.fromkeys(STILL, 0.0) | {"learner_wait_share": 1.0}
        of_learner = [name for name in row if name not in ELSEWHERE]
        (listed,) = page.get("/api/runs").json()["runs"]
        shown = page.get(f"/api/runs/{listed['id']}").json()
        the_same(shown["snapshot"], row, of_learner)
        prometheus = told_by_prometheus(page)
        the_same(prometheus, row, of_learner)
        status = json.loads(command_here("status", *where, "--json").stdout)
        the_same(status["snapshot"], row, of_learner)
        wanted = run.backend.registry.supervisor().actors_wanted
        assert wanted >= 1
        assert {shown["snapshot"]["actors_wanted"], prometheus["actors_wanted"]} == {wanted}
        assert status["supervisor"]["actors_wanted"] == wanted
        the_same(newest_points(run, row), row, [*row])
        assert {name: shown["snapshot"][name] for name in STILL} == still
        assert shown["run"]["numbers"]["training_s"] == row["wall_s"]
        assert shown["live"]["shares"]["actor"]["paused"] == pytest.approx(1.0, abs=0.01)
        assert shown["live"]["shares"]["learner"] == {"unrolls": 1.0}
        assert {role["env_steps_per_s"] for role in shown["live"]["roles"]} == {0.0}
        told = run.backend.ledger.counts()
        assert (shown["ledger"]["trained"], shown["ledger"]["produced"]) == (told.trained, told.produced)

        run.process.terminate()
        summary = run.finish().model_dump()
        row = last_row(run)

        def described():
            return page.get(f"/api/runs/{listed['id']}").json()

        run.wait_until(lambda: described()["run"]["state"] == "ended", "the page knows of the end")
        shown = described()
        the_same(summary, row, COUNTED)
        (listed,) = page.get("/api/runs").json()["runs"]
        of_summary = {name: summary[name] for name in listed["numbers"] if name in summary}
        assert {name: listed["numbers"][name] for name in of_summary} == of_summary
        shared = Summary.read(run.run_dir / "summary.json").snapshot().keys() & summary.keys()
        assert {name: shown["snapshot"][name] for name in shared} == {name: summary[name] for name in shared}
        assert shown["snapshot"]["training_s"] == listed["numbers"]["training_s"] == row["wall_s"]
        the_same(shown["snapshot"], row, [name for name in row if name not in AVERAGED])
        the_same(newest_points(run, row), row, [*row])
        assert shown["ledger"]["dropped"] == {reason: row[f"dropped_{reason}"] for reason in summary["dropped"]}
        assert {name: shown["ledger"][name] for name in UNROLLS} == {name: summary[name] for name in UNROLLS}
