import os
from dataclasses import replace

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.doctor import run
from distrl.apps.doctor.run import compared, ended, examine_run, in_one_process
from distrl.environments.probe import probe
from distrl.memory_backend.backend import connect
from distrl.memory_backend.ledger import DROP_REASONS, LedgerCounts
from distrl.memory_backend.records import Control, RoleStatus, SupervisorStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.roles.description import RunDescription
from distrl.runs.reading import Reading
from tests.run_folders import summary

LEARNER = RoleStatus("learner", 0, 1, "here", 11, "training", at=1000.0, last_step_age_s=0.5, rss_mb=700.0)
ACTORS = [RoleStatus("actor", number, 1, "here", 20 + number, "acting", at=1000.0) for number in range(2)]
SUPERVISOR = SupervisorStatus("here", 10, 3, at=1000.0)
SNAPSHOT = {"bottleneck": "actors", "learner_wait_share": 0.4, "actors_blocked_share": 0.0}


@pytest.fixture
def look():
    """look(**changes): a run with a learner and two actors that goes on."""

    def make(**changes):
        counts = LedgerCounts(produced=12, trained=10, queued=1, in_flight=1, stream_bytes=2_000_000)
        found = Reading(Control(), [LEARNER, *ACTORS], counts, [("1-0", SNAPSHOT)], SUPERVISOR, clock=1000.5)
        return replace(found, **changes)

    return make


def later(found, **counts):
    """The same run some seconds later: unrolls were used."""
    counts = counts or {"produced": found.counts.produced + 7, "trained": found.counts.trained + 7}
    return replace(found, counts=replace(found.counts, **counts))


def told(before, now):
    return [finding[:3] for finding in compared(before, now, 300.0)]


def test_a_run_that_goes_on(look):
    assert told(look(), later(look())) == [
        ("ok", "run", "running"),
        ("ok", "learner", "training, last update 0.5 s ago, 700 MB"),
        ("ok", "actors", "2 actors acting"),
        ("ok", "unrolls", "17 trained of 19, 1 queued, 1 in flight, 2.0 MB; all accounted for"),
        ("ok", "progress", "2.0 unrolls/s; actors: the learner waits for unrolls 40% of its time"),
    ]
    *_, progress = compared(look(), later(look()), 300.0)
    assert "distrl scale" in progress.advice


def test_a_supervisor_that_a_callback_holds_is_a_problem(look):
    held = look(clock=1020.0)
    assert ("error", "supervisor", "silent for 20 s: process 10 on here") in told(held, later(held))
    stopping = replace(held, control=Control(stop="asked"))  # it waits for roles then
    for fine in (look(clock=1009.0), replace(held, supervisor=None), stopping):
        assert not [finding for finding in told(fine, later(fine)) if finding[1] == "supervisor"]


@pytest.mark.parametrize(("age_s", "health", "more"), [(50, "ok", ""), (125, "warning", "; no new numbers for 2:05")])
def test_one_process_whose_numbers_are_old_may_hang(tmp_path, monkeypatch, age_s, health, more):
    for name, written in (("run.json", 10), ("metrics.csv", 1000)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (written, written))
    monkeypatch.setattr("time.time", lambda: 1000.0 + age_s)
    found = in_one_process(tmp_path)
    assert found[:3] == (health, "run", f"running, in one process without Redis (actors.count: 0){more}")


def test_a_paused_run_is_told_how_to_go_on(look):
    paused = look(control=Control(paused=True))
    found = list(compared(paused, later(paused, produced=12), 300.0))
    assert found[0] == ("warning", "run", "paused: actors wait, nothing is lost", "distrl resume goes on")
    assert found[-1][:3] == ("ok", "progress", "none, as asked")
    stopping = look(control=Control(stop="asked"))
    assert told(stopping, later(stopping))[0] == ("ok", "run", "stopping (asked)")


def test_silent_roles_are_named_with_their_processes(look):
    evaluator = RoleStatus("evaluator", 0, 1, "here", 30, "evaluating", at=990.5)
    now = look(roles=[replace(LEARNER, at=990.0), replace(ACTORS[0], at=993.5), ACTORS[1], evaluator])
    found = told(look(), now)
    assert ("error", "learner", "silent for 10 s: process 11 on here") in found
    assert ("error", "actor 0", "silent for 7.0 s: process 20 on here") in found
    assert ("error", "evaluator", "silent for 10 s: process 30 on here") in found
    assert len([line for line in found if "silent" in line[2]]) == 3


def test_a_learner_that_starts_has_made_no_update(look):
    starting = look(roles=[replace(LEARNER, state="starting: building the network"), *ACTORS])
    assert ("ok", "learner", "starting: building the network, 700 MB") in told(starting, later(starting))


def test_roles_that_are_not_there(look):
    nobody = look(roles=[])
    found = told(nobody, nobody)
    assert ("warning", "learner", "has not reported yet") in found
    assert ("warning", "actors", "none has reported yet") in found
    few = look(control=Control(target_actors=4))
    assert ("warning", "actors", "2 actors acting, 4 requested") in told(few, later(few))


def test_a_run_that_waits_for_actors_of_other_hosts_is_not_about_to_end_as_stalled(look):
    idle = look(roles=[replace(LEARNER, last_step_age_s=3600.0)])
    found = list(compared(idle, later(idle, trained=10), 300.0, joined=True))
    assert ("warning", "actors", "none: the run waits until some join", "on their hosts: distrl actors --help") in found
    assert {one.health for one in found} == {"ok", "warning"}
    assert "stalled" not in str(found)
    stopping = replace(idle, control=Control(stop="mean_return"))
    found = list(compared(stopping, later(stopping, trained=10), 300.0, joined=True))
    assert ("ok", "actors", "none: the run is stopping", "") in found
    assert {one.health for one in found} == {"ok"}
    still = look(roles=[replace(LEARNER, last_step_age_s=3600.0), *ACTORS])
    assert "stalled" in str(list(compared(still, later(still, trained=10), 300.0, joined=True)))


@pytest.mark.parametrize("reason", DROP_REASONS)
def test_every_drop_has_an_explanation(look, reason):
    counts = LedgerCounts(produced=5, trained=2, dropped={**dict.fromkeys(DROP_REASONS, 0), reason: 3}, lost=1)
    found = list(compared(look(counts=counts), later(look(counts=counts), trained=2), 300.0))
    (dropped,) = [one for one in found if "dropped" in one.found]
    assert dropped.found == f"3 dropped as {reason}"
    assert dropped.advice
    assert ("warning", "unrolls", "1 lost") in [one[:3] for one in found]
    assert ("error", "unrolls", "0 queued, 0 in flight, 0.0 MB; -1 are not accounted for") in [one[:3] for one in found]


@pytest.mark.parametrize(
    ("queued", "age_s", "health", "words"),
    [
        (0, 20.0, "warning", "the learner waits for unrolls; learner training, 2 actors acting"),
        (1, 200.0, "error", "unrolls wait for the learner; learner training, 2 actors acting"),
    ],
)
def test_a_run_that_stands_still_is_told_what_it_waits_for(look, queued, age_s, health, words):
    counts = LedgerCounts(produced=10 + queued, trained=10, queued=queued)
    still = look(counts=counts, roles=[replace(LEARNER, last_step_age_s=age_s), *ACTORS])
    *_, progress = compared(still, later(still, trained=10), 300.0)
    assert progress[:3] == (health, "progress", f"no unroll was used in 3.5 s; {words}")
    assert "5:00" in progress.advice


def test_a_learner_that_pretrains_awaits_no_unrolls(look):
    state = "pretraining: 9 of 100 updates"
    still = look(roles=[replace(LEARNER, state=state, last_step_age_s=0.1), *ACTORS])
    words = f"unrolls are not awaited yet; learner {state}, 2 actors acting"
    assert told(still, later(still, trained=10))[-1] == ("ok", "progress", words)


def test_two_looks_at_a_run(monkeypatch):
    loaded = load(preset="cartpole-impala")
    backend = connect("local:", "r1", QueueCaps(entries=8, bytes=1000), name="test", give_up_s=1.0)
    spec = probe(loaded.config.environment)
    backend.create(RunDescription(run_id="r1", run_dir="/r", config=loaded.config, spec=spec).model_dump_json())
    backend.registry.beat(LEARNER)

    def pass_by(seconds):
        assert seconds == run.BETWEEN_S
        backend.registry.beat(LEARNER)

    monkeypatch.setattr(run.time, "sleep", pass_by)
    found = list(examine_run(backend, "r1"))
    assert ("ok", "learner", "training, last update 0.5 s ago, 700 MB") in [one[:3] for one in found]


def test_how_a_run_has_ended(tmp_path):
    solved = summary()
    assert ended(solved, "runs/x").health == "ok"
    interrupted = solved.model_copy(update={"exit_code": 130, "stop_reason": "Ctrl-C"})
    assert ended(interrupted, str(tmp_path)).health == "warning"
    failed = solved.model_copy(update={"exit_code": 4, "stop_reason": "stalled", "error": "no update for 300 s"})
    found = ended(failed, str(tmp_path))
    assert found.health == "error"
    assert found.found.endswith(": no update for 300 s")
    assert "distrl train --resume" not in found.advice  # there is no checkpoint to go on from
    (tmp_path / "checkpoints" / "ckpt-000000000001").mkdir(parents=True)
    assert f"distrl train --resume {tmp_path}" in ended(failed, str(tmp_path)).advice
