import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest

from distrl.apps.config.configuration import load
from distrl.apps.dashboard import details
from distrl.apps.dashboard.details import full_hosts, paused_since, stop_of
from distrl.apps.dashboard.files import Event, id_of
from distrl.config.load import dump
from distrl.config.settings import by_path, leaves_of
from distrl.data_store.checkpoints import save
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import Evaluation, RoleStatus, SupervisorStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.runs.evaluations import write_evaluation


def stop(**conditions):
    sets = [f"stop.{name}={value}" for name, value in conditions.items()]
    return dump(load("cartpole-impala", sets=[*sets, "evaluation.every_env_steps=100"]))


def test_a_run_that_has_solved_its_task(runs, make_run):
    make_run("a", config=stop(mean_return=475), mean_return_100=475.5, wall_s=68.0)
    head = details.described(runs, id_of("a"))["head"]
    assert head["sentence"] == "Solved after 1:08: mean return 475.5 reached the target 475.0"
    assert (head["tone"], head["command"], head["log"]) == ("good", "", [])


def test_a_failed_run_shows_the_last_lines_of_the_role_that_failed(runs, make_run):
    folder = make_run("a", exit_code=1, stop_reason="keeps failing", error="actor 1 failed 3 times in the same way: no")
    (folder / "logs" / "learner.log").write_text("fine\n")
    lines = [f"2026-01-02 03:04:05.678+00:00 actor 1 ERROR line {number}" for number in range(20)]
    (folder / "logs" / "actor-1.log").write_text("\n".join([*lines, "ValueError: redis://me:pw@host"]) + "\n")
    told = details.described(runs, id_of("a"))
    assert told["head"]["tone"] == "bad"
    assert told["head"]["log"][0] == {"level": "error", "text": lines[9]}
    assert told["head"]["log"][-1] == {"level": "error", "text": "ValueError: redis://•••@host"}
    assert told["first_log"] == "actor-1"


def test_an_error_in_the_head_is_masked_and_visible(runs, make_run):
    make_run("a", exit_code=1, stop_reason="failed", error="learner: redis://me:pw@host \u202eodd")
    sentence = details.described(runs, id_of("a"))["head"]["sentence"]
    assert sentence.endswith("learner: redis://•••@host \u27e8U+202E\u27e9odd")


def test_one_process_without_redis_is_no_trouble(runs, make_run, alive):
    make_run("a", ended=False, pid=alive, config=stop(mean_return="null", env_steps=600))
    head = details.described(runs, id_of("a"))["head"]
    assert (head["sentence"], head["tone"]) == ("Running: 50 % of 600 steps (300)", "busy")
    assert head["details"] == ("one process without Redis (actors.count: 0); see its files",)


def test_a_run_that_is_gone_has_the_command_that_resumes_it(runs, make_run):
    folder = make_run("a b", ended=False)
    assert details.described(runs, id_of("a b"))["head"]["command"] == ""
    save(folder / "checkpoints", 30, {"main.online": {"w": np.ones(3)}}, {"env_steps": 7}, keep=9)
    told = details.described(runs, id_of("a b"))["head"]
    assert told["command"] == f"distrl train --resume '{folder.resolve()}'"
    (row,) = details.checkpoints(runs, id_of("a b"))["checkpoints"]
    assert (row["step"], row["env_steps"], row["is_newest"]) == (30, 7, True)
    assert row["commands"]["evaluate"] == f"distrl evaluate '{folder.resolve()}@30'"


def test_a_run_whose_checkpoints_this_user_may_not_see_has_its_page(runs, make_run, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder / "checkpoints"))

    make_run("a")
    monkeypatch.setattr(details, "own_checkpoints", refuse)
    assert details.described(runs, id_of("a"))["head"]["command"] == ""


def test_evaluations_newest_first(runs, make_run, tmp_path):
    folder = make_run("a", config=stop(evaluation_return=500), evaluation_mean_return=9.0, evaluation_env_steps=200)
    found = [Evaluation(1, at, 5, 9.0, 0.5, 8.0, 10.0, 7.0, 1.0) for at in (100, 200)]
    for one in found:
        write_evaluation(folder / "evaluations.jsonl", asdict(one))
    told = details.evaluations(runs, id_of("a"))["evaluations"]
    assert told == [asdict(found[1]) | {"is_best": False}, asdict(found[0]) | {"is_best": True}]
    (folder / "evaluations.jsonl").rename(tmp_path / "elsewhere")
    (folder / "evaluations.jsonl").symlink_to(tmp_path / "elsewhere")
    assert details.evaluations(runs, id_of("a")) == {"evaluations": []}


def test_recorded_episodes_are_those_that_the_learner_has_read(runs, make_run):
    folder = make_run("a", config="data: {sets: [{name: x}]}\n")
    assert details.data(runs, id_of("a")) == {"data": None}
    spread = dict.fromkeys(("min", "quarter", "median", "three_quarters", "max", "mean", "std"), 2.0)
    read = {"name": "x", "environment": None, "observation_space": None, "action_space": "Discrete(2)"}
    read |= {
        "episodes": 3,
        "steps": 6,
        "length_steps": spread,
        "terminated": 3,
        "truncated": 0,
        "actions": [{"0": 1.0}],
    }
    read |= {"steps_with_missing_values": 0, "episodes_with_behaviour_probabilities": 3}
    read |= {"return_histogram": {"counts": [3], "edges": [1.5, 2.5]}}
    (folder / "data.json").write_text(json.dumps({**read, "return": spread}))
    assert details.data(runs, id_of("a")) == {"data": {**read, "returns": spread}}
    resumed = make_run("b")  # after a launch that learned from it
    shutil.copy(folder / "data.json", resumed)
    assert details.data(runs, id_of("b")) == {"data": None}
    (folder / "data.json").write_text(json.dumps(read))
    assert details.data(runs, id_of("a")) == {"data": None}  # distrl has not written that


@pytest.mark.parametrize(
    ("data", "axis"),
    [("{}", "steps"), ("{sets: [{name: a}]}", "updates"), ("{sets: [{name: a}], share: 0.5}", "steps")],
)
def test_the_usual_axis_is_that_of_updates_where_nothing_acts(runs, make_run, data, axis):
    make_run("a", config=f"data: {data}\n")
    assert details.described(runs, id_of("a"))["axis"] == axis


@pytest.mark.redis
def test_the_head_of_a_running_job(runs, make_run, alive, redis_url):
    config = stop(evaluation_return=475, mean_return="null", env_steps="null")
    folder = make_run("job", ended=False, pid=alive, redis_url=redis_url, run_id="head", config=config)
    backend = connect(redis_url, "head", QueueCaps(8, 1000), name="test", give_up_s=5.0)
    backend.create("{}")
    snapshot = {"updates": 9, "evaluation_mean_return": 380.0, "evaluation_env_steps": 100, "env_steps": 100}
    backend.registry.add_snapshot({**snapshot, "bottleneck": "actors", "learner_wait_share": 0.25})
    backend.registry.beat(RoleStatus("actor", 0, 1, "h", 5, "acting", cpu_share=0.75))
    status = SupervisorStatus("h", 1, 1, actors=1, actors_wanted=2, wanted_because="the learner waits")
    backend.registry.beat_supervisor(status)
    write_evaluation(folder / "evaluations.jsonl", asdict(Evaluation(1, 100, 5, 380.0, 4.0, 8.0, 10.0, 7.0, 1.0)))
    told = details.described(runs, id_of("job"))
    assert told["head"]["sentence"] == "Running: 80 % to the target 475.0 (evaluation 380.0 ± 4.00)"
    assert told["head"]["step"] == {"label": "Add an actor", "action": "scale", "value": 2}
    assert told["live"]["roles"][0]["cpu_share"] == 0.75
    backend.registry.set_control(paused=True)
    (folder / "logs" / "events.log").write_text("2026-01-02 03:04:05 asked: pause (by me)\n")
    runs.live.let_go(0.0)
    assert details.described(runs, id_of("job"))["head"]["sentence"].startswith(
        "Paused since 2026-01-02 03:04:05, 80 %"
    )
    backend.delete()
    backend.close()


@pytest.mark.parametrize(
    ("texts", "since"),
    [
        ((), ""),
        (("asked: pause (by a)",), "0"),
        (("asked: pause (by a)", "asked: resume (by a)"), ""),
        (("asked: pause (by a)", "asked: resume (by a)", "asked: pause (by b)", "other"), "2"),
    ],
)
def test_the_time_of_a_pause(texts, since):
    assert paused_since([Event(str(at), text, "info", None) for at, text in enumerate(texts)]) == since


@pytest.mark.parametrize(
    ("busy", "words"),
    [
        ({"hera": 1.0}, "the 2 cores of hera are 100 % busy"),
        ({"hera": 0.8}, ""),
        ({"hera": 1.0, "zeus": 0.9}, "the 4 cores of 2 hosts are 95 % busy"),
        ({"hera": 1.0, "zeus": 0.2}, ""),  # the other host has room
        ({"hera": 1.0, "zeus": None}, ""),
        ({}, ""),
    ],
)
def test_hosts_without_room_for_an_actor(busy, words):
    loads = {host: {"cores": 2, "busy_share": share} for host, share in busy.items() if share is not None}
    assert full_hosts({**loads, "learner": {"cores": 8, "busy_share": 0.1}}, set(busy)) == words


def test_stop_conditions_of_a_configuration():
    assert stop_of(by_path(leaves_of({"stop": {"metrics": {"x/y": 2.0}, "minutes": 1}}))).metrics == {"x/y": 2.0}
    assert stop_of(by_path(leaves_of({"stop": {"of_another_version": 1}}))) == stop_of({})
