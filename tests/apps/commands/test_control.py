import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import distrl
from distrl.apps.commands import main
from distrl.config import RunConfig
from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend.backend import connect
from distrl.memory_backend.embedded_redis import EmbeddedRedis, find_server
from distrl.memory_backend.records import Control, Demand, GpuLoad, HostLoad, RoleStatus, SupervisorStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.runs.directories import Run
from distrl.types import UnrollHeader
from tests.run_folders import summary
from tests.waiting import wait_until

CAPS = QueueCaps(entries=8, bytes=1000)


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(distrl.__file__).parent.parent))  # for processes that tests start
    monkeypatch.delenv("DISTRL_REDIS_URL", raising=False)
    return tmp_path


def make_run(folder, *, run_id="r1", redis_url="redis://h:1/0", pid=None):
    folder.mkdir(parents=True)
    record = {"run_id": run_id, "redis_url": redis_url, "pid": pid or os.getpid(), "started": 1.5}
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def finish(folder, run_id="r1", **changes):
    summary(run_id=run_id, **changes).write(folder / "summary.json")


def dead_pid():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def run(capsys, *arguments):
    code = main.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def backend(monkeypatch):
    """The in-memory twin in place of Redis."""
    twin = connect("local:", "r1", CAPS, name="test", give_up_s=1.0)
    twin.create("{}")
    opened = []

    @contextmanager
    def opened_backend(found):
        opened.append(found)
        yield twin

    monkeypatch.setattr(Run, "backend", opened_backend)
    yield twin
    assert all(found.record.run_id == "r1" for found in opened)


@pytest.mark.parametrize(
    ("arguments", "control", "line"),
    [
        (["scale", "5"], Control(target_actors=5, autoscale=False), "requested 5 actors; "),
        (
            ["scale", "1", "--force"],
            Control(target_actors=1, target_forced=True, autoscale=False),
            "requested 1 actor; ",
        ),
        (["pause"], Control(paused=True), "pause requested; "),
        (["resume"], Control(paused=False), "resume requested\n"),
        (["stop"], Control(stop="asked"), "stop requested\n"),
    ],
)
def test_operators_ask_through_the_registry(capsys, backend, workplace, arguments, control, line):
    make_run(workplace / "runs" / "first")
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    assert out.startswith(line)
    assert backend.registry.control() == control


def test_pause_and_resume_leave_the_rest(capsys, backend, workplace):
    make_run(workplace / "first")
    for command in (["scale", "3"], ["pause"], ["resume"]):
        assert run(capsys, *command, "--run", "first")[0] == 0
    assert backend.registry.control() == Control(paused=False, target_actors=3, autoscale=False)


@pytest.mark.parametrize(
    ("arguments", "control"),
    [
        (["scale", "5", "first"], Control(target_actors=5, autoscale=False)),
        (["pause", "first"], Control(paused=True)),
        (["resume", "first"], Control(paused=False)),
        (["stop", "first"], Control(stop="asked")),
        (["stop", "--run", "first"], Control(stop="asked")),
    ],
)
def test_the_run_is_the_last_argument(capsys, backend, workplace, arguments, control):
    make_run(workplace / "first")
    make_run(workplace / "runs" / "newer", run_id="other")
    assert run(capsys, *arguments)[::2] == (0, "")
    assert backend.registry.control() == control
    assert run(capsys, "status", "first")[0] == 0


def test_hints_name_the_run_as_it_was_named(capsys, backend, workplace):
    make_run(workplace / "first run")
    make_run(workplace / "runs" / "newer")
    assert run(capsys, "pause", "first run")[1] == "pause requested; continue with distrl resume 'first run'\n"
    assert run(capsys, "pause")[1] == "pause requested; continue with distrl resume\n"
    hint = "requested 3 actors; distrl status 'first run' shows them come and go\n"
    assert run(capsys, "scale", "3", "--run", "first run")[1] == hint


def test_two_names_of_one_run_are_refused(capsys, workplace):
    code, _, error = run(capsys, "stop", "first", "--run", "second")
    assert (code, error) == (
        2,
        "distrl: error: first and --run second both name a run; give one of them\n",
    )
    code, _, error = run(capsys, "set", "network.learning_rate", "1e-4")
    assert code == 2
    assert "distrl set wants path=value" in error
    assert error.count("\n") == 1


def populate(backend):
    incarnation = backend.registry.register_actor(0)
    backend.unrolls.push(UnrollHeader(0, incarnation, 0, 1, 64), b"x" * 10)
    learner = RoleStatus("learner", 0, 1, "box", 11, "training", 5, 320512, 161203.0, 1205, 0.01, 800.2, 812.0)
    actor = RoleStatus("actor", 0, incarnation, "box", 12, "acting", 5, 160256, 80601.0, 1204, 0.02, 92.1, 93.0)
    backend.registry.beat(actor)
    backend.registry.beat(learner)
    backend.registry.add_snapshot({"env_steps": 1, "updates": 1, "mean_return_100": None})
    backend.registry.add_snapshot(
        {"env_steps": 320512, "updates": 1204, "env_steps_per_s": 161203.0, "bottleneck": "actors"}
    )


def test_status_of_a_running_job(capsys, backend, workplace, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    make_run(workplace / "first")
    now = [993.0]
    monkeypatch.setattr(type(backend.registry), "clock", lambda _: now[0])
    backend.registry.beat(RoleStatus("actor", 1, 1, "box", 14, "acting"))
    now[0] = 1000.0  # the host of actor 1 has lost its power
    populate(backend)
    evaluator = RoleStatus("evaluator", 0, 2, "box", 13, "evaluating", 5, 40, 0.0, 1200, 0.03)
    backend.registry.beat(evaluator)
    backend.registry.set_control(paused=True, target_actors=2)
    code, out, _ = run(capsys, "status", "--run", "first")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines == [
        "r1 paused, 2 actors requested",
        "steps 320,512 · 161,203/s · updates 1,204 · no episode finished yet · bottleneck actors",
        "role state steps/s version step silent MB starts pid host",
        "learner training 161,203 1,205 0.0 s 0.0 s 800 1 11 box",
        "actor 0 acting 80,601 1,204 0.0 s 0.0 s 92 1 12 box",
        "actor 1 acting 0 0 0.0 s 7.0 s 0 1 14 box",
        "evaluator evaluating 0 1,200 0.0 s 0.0 s 0 2 13 box",
        "unrolls: 1 produced, 0 trained, 1 queued, 0 in flight, 0 dropped, 0 lost",
    ]


def test_a_narrow_terminal_shows_states_and_processes_whole(capsys, backend, workplace, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    make_run(workplace / "first")
    status = RoleStatus("actor", 10_017, 12, "a-long-name.of-a-host.example", 1234567, "acting")
    backend.registry.beat(replace(status, env_steps_per_s=12_345.0, weights_version=98_765, rss_mb=987.0))
    code, out, _ = run(capsys, "status", "--run", "first")
    (line,) = [line for line in out.splitlines() if line.startswith("actor 10017")]
    assert code == 0
    assert {"acting", "12,345", "98,765", "987", "12", "1234567"} <= {*line.split()}


@pytest.mark.parametrize(
    ("age_s", "last"), [(1.0, []), (70.0, ["the supervisor, process 7 on host box, has been silent for 1:10"])]
)
def test_status_says_that_the_supervisor_is_silent(capsys, backend, workplace, monkeypatch, age_s, last):
    make_run(workplace / "first")
    now = [1000.0]
    monkeypatch.setattr(type(backend.registry), "clock", lambda _: now[0])
    assert json.loads(run(capsys, "status", "first", "--json")[1])["supervisor"] is None
    backend.registry.beat_supervisor(SupervisorStatus("box", 7, 3))
    now[0] += age_s
    out = run(capsys, "status", "first")[1]
    assert [line for line in out.splitlines() if "supervisor" in line] == last
    told = json.loads(run(capsys, "status", "first", "--json")[1])["supervisor"]
    wanted = {"actors": None, "autoscales": False, "actors_wanted": None, "wanted_because": ""}
    assert told == {"host": "box", "pid": 7, "beat": 3, **wanted, "at": 1000.0, "heartbeat_age_s": age_s}


@pytest.mark.parametrize(("autoscales", "asked"), [(True, "autoscaling"), (False, "2 actors requested")])
def test_status_has_the_wanted_number_of_actors_and_its_reason(capsys, backend, workplace, autoscales, asked):
    make_run(workplace / "first")
    backend.registry.set_control(target_actors=2)
    backend.registry.beat_supervisor(SupervisorStatus("box", 7, 3, 3, autoscales, 4, "the learner waits"))
    out = run(capsys, "status", "first")[1]
    assert out.splitlines()[0] == f"r1  running, {asked}"
    assert "actors wanted: 4 (the learner waits)" in out.splitlines()


def test_status_has_the_memory_of_the_learners_gpu(capsys, backend, workplace):
    make_run(workplace / "first")
    gpu = GpuLoad("NVIDIA H200", 0.25, memory_mb=150_754.0, memory_used_mb=1_334.4)
    machine = HostLoad(16.0, 0.5, 128_000.0, 9_000.0, (gpu,))
    backend.registry.beat(RoleStatus("learner", 0, 1, "box", 11, "training", machine=machine))
    told = run(capsys, "status", "first")[1].splitlines()
    assert "GPU of the learner: NVIDIA H200, 25% busy, 1,334 of 150,754 MB used" in told


def test_status_before_the_first_update(capsys, backend, workplace):
    make_run(workplace / "first")
    out = run(capsys, "status", "--run", "first")[1]
    assert out.splitlines()[:2] == ["r1  running", "no update yet"]


def test_status_as_json(capsys, backend, workplace):
    make_run(workplace / "first")
    populate(backend)
    told = json.loads(run(capsys, "status", "--json", "--run", "first")[1])
    assert told["run_id"] == "r1"
    nothing = {"asked": 0, "done": 0, "refused": ""}
    assert told["control"] == {
        "paused": False,
        "stop": None,
        "target_actors": None,
        "target_forced": False,
        "autoscale": None,
        "min_actors": None,
        "max_actors": None,
        "stacks": "",
        "settings": {},
        "checkpoint": nothing,
        "evaluation": nothing,
        "networks": nothing,
        "networks_from": "",
    }
    assert told["snapshot"]["updates"] == 1204
    assert [role["role"] for role in sorted(told["roles"], key=lambda role: role["pid"])] == ["learner", "actor"]
    assert (told["ledger"]["produced"], told["ledger"]["queued"], told["imbalance"]) == (1, 1, 0)


def test_a_finished_run(capsys, workplace):
    finish(make_run(workplace / "first"))
    code, out, _ = run(capsys, "status", "--run", "first")
    assert code == 0
    assert out.startswith("r1: solved: the mean return asked for is reached (exit code 0)\n")
    assert json.loads(run(capsys, "status", "--run", "first", "--json")[1])["stop_reason"] == "mean_return"
    for command in (["scale", "2"], ["pause"], ["resume"], ["stop"]):
        code, out, err = run(capsys, *command, "--run", "first")
        assert (code, out) == (2, "")
        assert err == "distrl: error: first has ended (mean_return); distrl status shows how\n"


def test_a_resumed_run_is_not_finished_by_its_old_summary(backend, capsys, workplace):
    finish(make_run(workplace / "first"), run_id="an earlier launch")
    assert run(capsys, "pause", "--run", "first")[0] == 0
    assert backend.registry.control().paused


def test_a_run_whose_process_is_gone(capsys, workplace):
    pid = dead_pid()
    make_run(workplace / "first", pid=pid)
    code, _, err = run(capsys, "status", "--run", "first")
    assert code == 2
    assert err == (f"distrl: error: first does not run: its process {pid} is gone and left no summary\n")
    (workplace / "first" / "checkpoints" / "ckpt-000000000001").mkdir(parents=True)
    assert run(capsys, "status", "--run", "first")[2].endswith(
        " is gone and left no summary; go on with distrl train --resume first\n"
    )


def test_why_a_run_failed(capsys, workplace):
    finish(make_run(workplace / "first"), exit_code=1, stop_reason="updates", error="no room\nfor \x1b[2J it")
    _, out, _ = run(capsys, "status", "--run", "first")
    assert out.splitlines()[-1] == "  error    no room for ?[2J it"


def test_a_run_in_one_process_has_no_registry_to_ask(capsys, workplace):
    make_run(workplace / "first", redis_url=None)
    code, _, err = run(capsys, "pause", "--run", "first")
    assert code == 2
    assert "one process without Redis (actors.count: 0); Ctrl-C ends it" in err


def test_the_newest_run_is_the_default(workplace):
    for age, name in enumerate(["new", "old", "older"]):
        path = make_run(workplace / "runs" / name, run_id=name) / "run.json"
        os.utime(path, (1000 - age, 1000 - age))
    (workplace / "runs" / "bare").mkdir()
    assert Run.find(None).record.run_id == "new"


def test_runs_by_id(monkeypatch):
    found = Run.find(None, "redis://h", "r9")
    assert (found.record.run_id, found.record.redis_url, found.summary) == ("r9", "redis://h", None)
    monkeypatch.setenv("DISTRL_REDIS_URL", "redis://me:secret@env")
    assert Run.find(None, None, "r9").record.redis_url == "redis://me@env"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, None, None), "there is no run under"),
        ((None, "redis://h", None), "--redis-url needs --run-id; distrl runs --redis-url URL lists the ids"),
        ((None, None, "r9"), "--run-id needs --redis-url"),
        (("first", None, "r9"), "both name a run"),
        (("nowhere", None, None), "nowhere is not a run's directory: run.json: No such file or directory"),
        (("damaged", None, None), "run.json is damaged"),
    ],
)
def test_runs_that_cannot_be_found(workplace, arguments, message):
    (workplace / "damaged").mkdir()
    (workplace / "damaged" / "run.json").write_text('{"run_id": 3')
    run, url, run_id = arguments
    with pytest.raises(ConfigError) as caught:
        Run.find(run and str(workplace / run), url, run_id)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_scale_wants_at_least_one(capsys):
    code, _, err = run(capsys, "scale", "0")
    assert code == 2
    assert "Invalid value for 'N'" in err


@pytest.mark.redis
def test_on_a_real_redis(capsys, workplace):
    try:
        find_server()
    except ConfigError as error:
        (pytest.fail if "CI" in os.environ else pytest.skip)(str(error))
    with EmbeddedRedis.start(maxmemory_bytes=2**27, max_bulk_bytes=2**20) as redis:
        real = connect(redis.url, "r1", CAPS, name="test", give_up_s=3.0)
        real.create("{}")
        populate(real)
        make_run(workplace / "first", redis_url=redis.url)
        assert run(capsys, "scale", "4", "--run", "first")[0] == 0
        assert run(capsys, "pause", "--redis-url", redis.url, "--run-id", "r1")[0] == 0
        assert real.registry.control() == Control(paused=True, target_actors=4, autoscale=False)
        assert "actors requested" in run(capsys, "status", "--run", "first")[1]
        code, _, err = run(capsys, "stop", "--redis-url", redis.url, "--run-id", "unknown")
        assert (code, len(err.splitlines())) == (6, 1)
        assert "unknown" in err
        real.close()


def test_an_unreachable_redis_is_exit_6(capsys, workplace):
    make_run(workplace / "first", redis_url="unix:///nowhere/redis.sock")
    code, _, err = run(capsys, "status", "--run", "first")
    assert code == MemoryBackendError.exit_code
    assert len(err.splitlines()) == 1


def test_status_tells_who_waits_for_whom(capsys, backend, workplace, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    make_run(workplace / "first")
    for actor, share in enumerate((0.5, 0.75)):
        backend.registry.beat(RoleStatus("actor", actor, 1, "box", 14, "waiting: room", blocked_share=share))
    backend.registry.add_snapshot({"updates": 1, "learner_wait_share": 0.01, "bottleneck": "learner"})
    _, out, _ = run(capsys, "status", "--run", "first")
    assert " ".join(out.split()).count("bottleneck learner · waits: learner 1%, actors 62% of the time") == 1


@pytest.fixture
def configured(backend):
    """The run's description, as far as who steers it reads that."""
    config = RunConfig.model_validate({"evaluation": {"every_env_steps": 1000}})
    backend.delete()
    backend.create(json.dumps({"config": config.model_dump(mode="json")}))
    return backend


def test_parameters_are_set_shown_and_written_down(capsys, configured, workplace):
    make_run(workplace / "first")
    code, out, _ = run(capsys, "set", "network.learning_rate=1e-4", "launch.log_level=debug", "first")
    assert code == 0
    assert out.splitlines() == [
        "network.learning_rate = 0.0001  # learning rate; a schedule is scaled by it",
        "algorithm.entropy_weight = 0.01  # weight of the entropy that the loss rewards",
        "launch.log_level = debug  # lowest level that roles log",
    ]
    assert configured.registry.control().settings == {"network.learning_rate": 1e-4, "launch.log_level": "debug"}
    assert run(capsys, "set", "--run", "first")[1] == out  # what holds by now
    assert run(capsys, "set", "first")[1] == out
    asked = [request for _, request in configured.registry.requests("0")]
    assert [request.what for request in asked] == ['network.learning_rate 0.0001, launch.log_level "debug"']
    assert all(request.by.endswith(", command line") and "@" in request.by for request in asked)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["network.learning_rate=-1"], "network.learning_rate: -1 (from the request) must be greater than 0"),
        (["network.learning_rate"], "distrl set wants path=value"),
        (["network.learning_rate="], "distrl set network.learning_rate= has no value"),
        (["actors.count=3"], "actors.count cannot change while the run goes on"),
        (["network.learning_rate=1e-3", "actors.count=3"], "actors.count cannot change while the run goes on"),
    ],
)
def test_what_cannot_be_set_changes_nothing(capsys, configured, workplace, arguments, message):
    make_run(workplace / "first")
    code, out, error = run(capsys, "set", *arguments, "--run", "first")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert message in error
    assert (configured.registry.control().settings, configured.registry.requests("0")) == ({}, [])


@pytest.mark.parametrize(
    ("command", "errand", "said"),
    [
        ("checkpoint", "checkpoint", "a checkpoint holds all updates up to your request"),
        ("evaluate-now", "evaluation", "evaluated"),
    ],
)
def test_an_errand_is_waited_for(capsys, configured, workplace, command, errand, said):
    make_run(workplace / "first")
    registry = configured.registry

    def fulfil():
        wait_until(lambda: getattr(registry.control(), errand).pending)
        registry.fulfil(errand, 1)

    role = threading.Thread(target=fulfil)
    role.start()
    code, out, _ = run(capsys, command, "--run", "first")
    role.join()
    assert (code, getattr(registry.control(), errand)) == (0, Demand(1, 1))
    assert out.startswith(said)
    assert [request.what for _, request in registry.requests("0")] == [f"{errand} now"]


def test_without_an_evaluator_nothing_waits_for_one(capsys, backend, workplace):
    make_run(workplace / "first")
    backend.delete()
    backend.create(json.dumps({"config": RunConfig().model_dump(mode="json")}))
    code, _, error = run(capsys, "evaluate-now", "--run", "first")
    assert (code, error.count("\n")) == (2, 1)
    assert "launched without evaluation.every_env_steps" in error
    assert backend.registry.requests("0") == []
