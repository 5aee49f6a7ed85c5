"""Shared parts of roles: heartbeats that continue whatever the role does, and that learn of a stop."""

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

import distrl
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.errors import ConfigError, EnvironmentFailedError, MemoryBackendError
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.roles import join
from distrl.roles.description import RunAddress, RunDescription
from distrl.roles.join import Heartbeat, make_environment, memory_mb
from distrl.roles.plan import Role
from distrl.roles.trust import Trust
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec
from tests.waiting import wait_until

SPEC = EnvSpec("X", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})


def config(**sections):
    return RunConfig.model_validate(sections)


@pytest.fixture
def heartbeat(backend, monkeypatch):
    monkeypatch.setattr(join, "HEARTBEAT_S", 0.01)
    stop = threading.Event()
    status = RoleStatus("actor", 3, 2, "host", 1, "acting", env_steps=5)
    beats = Heartbeat(backend, lambda: status, stop, RunConfig(), lambda _: None)
    yield beats, stop
    beats._end.set()


@pytest.fixture
def another_version(tmp_path):
    """A run that distrl 9.9 has launched: its address, and a function that changes a field of the key `run`."""
    address = RunAddress(f"local:{tmp_path.name}", "r", Trust())
    description = RunDescription(run_id="r", run_dir=str(tmp_path), config=RunConfig(), spec=SPEC)
    backend = connect(address.redis_url, "r", launch=description.launch, name="test", give_up_s=1.0)
    backend.create(description.published())

    def change(field, value):
        backend.engine.call("HSET", backend.registry._keys.run, field, value)

    change("distrl_version", "9.9")
    return address, change


def test_a_role_that_joins_a_run_of_another_version_names_both(another_version, caplog):
    backend, run = join.join(another_version[0], Role("actor"))
    backend.close()
    assert run.description.spec == SPEC
    assert caplog.messages == [f"run r is of distrl 9.9, this is distrl {distrl.__version__}"]


def test_a_description_that_this_version_does_not_know_is_refused_by_a_line_with_both(another_version):
    address, change = another_version
    change("config", '{"more": 1}')
    with pytest.raises(
        MemoryBackendError, match=rf"of distrl 9\.9 is not described .*, which is {distrl.__version__}; use"
    ):
        join.join(address, Role("actor"))


def test_a_description_that_is_no_json_is_refused_without_an_empty_field(another_version):
    address, change = another_version
    change("config", "nothing of distrl")
    with pytest.raises(MemoryBackendError, match=r"is not described as this distrl does \(Invalid JSON: "):
        join.join(address, Role("actor"))


@pytest.mark.parametrize(("incarnation", "error"), [(1, ConfigError), (2, EnvironmentFailedError)])
def test_what_could_be_made_before_is_worth_another_try(incarnation, error):
    with pytest.raises(error, match="NoSuchEnvironment-v0"):
        make_environment(EnvironmentConfig(id="NoSuchEnvironment-v0"), 1, incarnation)


def test_stacks_are_told_while_somebody_asks_for_them(heartbeat, backend):
    beats, _ = heartbeat
    beats.start()
    assert backend.registry.roles()[0].stacks == ""
    for whose in ("all", backend.registry.roles()[0].key):
        backend.registry.set_control(stacks=whose)
        wait_until(lambda: "thread heartbeat:\n" in backend.registry.roles()[0].stacks)
        backend.registry.set_control(stacks="another:7")
        wait_until(lambda: backend.registry.roles()[0].stacks == "")


@pytest.mark.row("D47")
def test_what_operators_change_is_told_once_and_the_log_level_holds(backend, monkeypatch):
    monkeypatch.setattr(join, "HEARTBEAT_S", 0.01)
    told, before = [], logging.getLogger().level
    status = RoleStatus("actor", 3, 2, "host", 1, "acting")
    given = config(launch={"log_level": "warning"})
    backend.registry.set_control(settings={"network.learning_rate": 0.5})
    beats = Heartbeat(backend, lambda: status, threading.Event(), given, told.append)
    try:
        beats.start()
        assert [one.network.learning_rate for one in told] == [0.5]  # before anything else is done
        assert logging.getLogger().level == logging.WARNING
        backend.registry.set_control(settings={"launch.log_level": "debug"})
        wait_until(lambda: len(told) == 2)
        assert (told[1].network.learning_rate, told[1].launch.log_level) == (0.5, "debug")
        assert logging.getLogger().level == logging.DEBUG
        backend.registry.set_control(settings={"network.learning_rate": -1.0})  # past all that checks it
        beat = backend.registry.roles()[0].beat
        wait_until(lambda: backend.registry.roles()[0].beat > beat + 1)
        assert len(told) == 2
    finally:
        beats._end.set()
        logging.getLogger().setLevel(before)


def test_a_notice_of_the_last_moment_is_in_one_more_beat(backend, monkeypatch):
    monkeypatch.setattr(join, "HEARTBEAT_S", 60.0)
    status = RoleStatus("actor", 3, 2, "h", 1, "acting")
    for notice, beats_in_all in (("", 1), ("12 episodes are recorded", 2)):
        found = [status]
        beats = Heartbeat(backend, lambda found=found: found[-1], threading.Event(), RunConfig(), lambda _: None)
        beats.start()
        found.append(replace(status, notice=notice))
        beats._end.set()
        beats._thread.join()
        (last,) = backend.registry.roles()
        assert (last.notice, last.beat) == (notice, beats_in_all)


def test_a_heartbeat_tells_the_processor_time_of_its_interval(backend, monkeypatch):
    now = {"monotonic": 10.0, "process_time": 3.0}
    monkeypatch.setattr(join, "time", SimpleNamespace(**{name: lambda name=name: now[name] for name in now}))
    status = RoleStatus("actor", 3, 2, "h", 1, "acting", waits={"waiting: room": 0.12345})
    beats = Heartbeat(backend, lambda: status, threading.Event(), RunConfig(), lambda _: None)
    now |= {"monotonic": 12.0, "process_time": 4.5}
    beats.beat()
    assert backend.registry.roles()[0].cpu_share == 0.75
    assert backend.registry.roles()[0].waits == {"waiting: room": 0.123}
    now |= {"monotonic": 13.0, "process_time": 4.5}
    beats.beat()
    assert backend.registry.roles()[0].cpu_share == 0.0


def test_the_first_beat_is_out_when_start_returns_and_more_follow(heartbeat, backend):
    beats, stop = heartbeat
    beats.start()
    (status,) = backend.registry.roles()
    assert (status.role, status.id, status.incarnation, status.env_steps) == ("actor", 3, 2, 5)
    assert 10.0 < status.rss_mb <= status.peak_rss_mb
    wait_until(lambda: backend.registry.roles()[0].beat >= 3)
    assert not stop.is_set()
    beats.close()
    newest = backend.registry.roles()[0].beat
    assert not beats._thread.is_alive()
    assert backend.registry.roles()[0].beat == newest


def test_the_role_hears_of_a_stop_through_its_heartbeat(heartbeat, backend):
    beats, stop = heartbeat
    beats.start()
    backend.registry.set_control(stop="asked")
    assert stop.wait(10)
    beats.close()


def test_a_missed_beat_is_logged_and_the_next_one_tried(heartbeat, backend, monkeypatch, caplog):
    beats, _ = heartbeat
    beats.start()
    goes, failures = backend.registry.beat, iter([MemoryBackendError("Redis is away")])

    def flaky(status):
        for error in failures:
            raise error
        goes(status)

    with caplog.at_level(logging.WARNING, logger="distrl"):
        monkeypatch.setattr(backend.registry, "beat", flaky)
        wait_until(lambda: "heartbeat: Redis is away" in caplog.text)
        seen = backend.registry.roles()[0].beat
        wait_until(lambda: backend.registry.roles()[0].beat > seen)
    beats.close()


def test_queue_caps_are_batches_or_bytes():
    caps = QueueCaps.of(config(memory={"queue_batches": 3, "queue_bytes": 70000}, learner={"batch_size": 4}))
    assert (caps.entries, caps.bytes) == (12, 70000)
    alone = QueueCaps.of(config(algorithm={"name": "a3c"}, actors={"count": 8}))
    assert alone.entries == 2  # fresh gradients matter more than a full queue


@pytest.mark.parametrize("workers", [1, 1000])
def test_nothing_but_the_round_bounds_a_round(workers):
    caps = QueueCaps.of(config(algorithm={"name": "a2c"}, actors={"count": workers}))
    assert min(caps.entries, caps.bytes) > 10**15


def test_memory_is_that_of_this_process_not_of_the_one_that_forked_it():
    ballast = bytearray(200 * 10**6)
    ballast[::4096] = b"x" * len(ballast[::4096])
    assert memory_mb()[1] > 200.0
    code = "from distrl.roles.join import memory_mb; print(memory_mb()[1])"
    assert float(subprocess.check_output([sys.executable, "-c", code])) < 150.0


def test_a_role_has_a_title_and_ends_when_asked():
    code = "import threading, sys; from distrl.roles.join import become; stop = threading.Event()\n"
    code += "become('actor 7', stop); print('up', flush=True); sys.exit(0 if stop.wait(30) else 1)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        title = subprocess.check_output(["ps", "-o", "args=", "-p", str(process.pid)], text=True)
        assert title.strip() == "distrl: actor 7"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


def test_the_learner_goes_first(monkeypatch):
    lowered = []
    monkeypatch.setattr(os, "nice", lambda by: lowered.append(by) or by)
    for kind in ("learner", "actor", "evaluator"):
        join.give_way(Role(kind))
    assert lowered == [10, 10]


def test_who_asks_the_terminal_gets_an_error_and_is_not_stopped(tmp_path):
    """In the background of a terminal, as a role is."""
    role = "import threading; from distrl.roles.join import become; become('actor 7', threading.Event())\n"
    role += "try: open('/dev/tty').read(1)\nexcept OSError as error: print(error.errno)"
    terminal = "import os, pty, subprocess, sys; pid, _ = pty.fork()\n"
    terminal += "if pid: sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    terminal += f"command, answer = [sys.executable, '-c', {role!r}], open({str(tmp_path / 'answer')!r}, 'wb')\n"
    terminal += "child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=answer, process_group=0)\n"
    terminal += "try: child.wait(60)\nfinally: child.kill()"
    subprocess.run([sys.executable, "-c", terminal], check=True)
    assert (tmp_path / "answer").read_text() == f"{errno.EIO}\n"


@pytest.mark.parametrize(
    ("role", "url", "kept"),
    [("learner", "redis://h", [86400]), ("learner", None, []), ("actor", "redis://h", [])],
)
def test_the_learner_keeps_the_keys_of_a_run_in_a_redis_of_its_operators(backend, monkeypatch, role, url, kept):
    asked = []
    monkeypatch.setattr(backend, "keep", asked.append)
    status = RoleStatus(role, 0, 1, "host", 1, "training")
    Heartbeat(backend, lambda: status, threading.Event(), config(memory={"url": url}), lambda _: None).beat()
    assert asked == kept
