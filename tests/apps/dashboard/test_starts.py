"""Trainings that a page starts: a real one by POST; and everything that is refused."""

import contextlib
import itertools
import json
import logging
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from starlette.testclient import TestClient

from distrl.apps.dashboard import starts
from distrl.apps.dashboard.app import make_app
from distrl.apps.dashboard.files import id_of
from distrl.apps.web.access import Access
from distrl.errors import ConfigError
from tests.waiting import wait_until

TOKEN, LOOKING = "t" * 20, "r" * 20
ACTS = {"Authorization": f"Bearer {TOKEN}", "X-Distrl": "1"}
SHORT = """environment: {id: CartPole-v1}
actors: {count: 0, environments: 1, unroll_length_steps: 8}
learner: {batch_size: 1}
algorithm: {minibatches: 1}
stop: {updates: 2}
"""
PATIENCE_S = 240.0


@pytest.fixture
def client(root, monkeypatch):
    for name in ("FRESH_S", "RESTS"):
        monkeypatch.setattr(f"distrl.apps.dashboard.index.{name}", 0.0)
    app = make_app(root, Access("127.0.0.1", TOKEN, LOOKING), may_start=True)
    with TestClient(app, base_url="http://127.0.0.1:8720") as found:
        yield found


@pytest.fixture
def sleeping(monkeypatch):
    """In place of trainings: processes that wait until they are killed, or end with a line."""
    begun, lock = [], threading.Lock()
    popen = starts.subprocess.Popen

    def start(command, **options):
        with lock:
            begun.append((command, options))
        script = "import signal; signal.pause()"
        process = popen([command[0], "-c", script], **options)
        begun[-1] = (command, options, process)
        return process

    monkeypatch.setattr(starts.subprocess, "Popen", start)
    yield begun
    for _, _, process in begun:
        process.kill()


def post(client, path, body, **headers):
    return client.post(f"/api/{path}", json=body, headers=ACTS | headers)


def outcome(client, run, *states):
    def told():
        found = client.get(f"/api/starts/{run}", headers=ACTS).json()
        return found if found["state"] in states else None

    return wait_until(told, f"{run} is {' or '.join(states)}")


@pytest.mark.long
def test_a_training_is_started_by_a_request_and_resumed(client, root):
    answer = post(client, "start", {"name": "first", "config": SHORT, "deadline": time.time() + 60})
    assert answer.status_code == 200, answer.text
    run = answer.json()["id"]
    assert run == id_of("first")
    assert outcome(client, run, "ended", "failed") == {"id": run, "name": "first", "state": "ended", "problem": None}
    folder = root / "first"
    assert json.loads((folder / "summary.json").read_text())["updates"] == 2
    assert (folder / "draft.yaml").read_text() == SHORT
    assert (folder / "draft.yaml").stat().st_mode & 0o777 == 0o600
    assert "the budget of updates is spent" in (folder / "logs" / "launch.log").read_text()

    (folder / "config.yaml").write_text((folder / "config.yaml").read_text().replace("updates: 2", "updates: 3"))
    assert post(client, "resume", {"run": run}).status_code == 200
    assert outcome(client, run, "ended", "failed")["state"] == "ended"
    assert json.loads((folder / "summary.json").read_text())["updates"] == 3


def test_what_ends_before_it_is_a_run_tells_its_last_line_and_leaves_nothing(client, root):
    draft = {"name": "first", "config": "environment: {id: NoSuchThing-v9}\n"}
    run = post(client, "start", draft).json()["id"]
    told = outcome(client, run, "failed")
    assert "NoSuchThing" in told["problem"]
    assert not (root / "first").exists()


def open_files(pid):
    """Files that a process has open; those that it opens and closes meanwhile may be missing."""
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def test_a_process_has_its_own_session_and_no_token(client, root, sleeping, monkeypatch):
    for name in ("DISTRL_DASHBOARD_TOKEN", "DISTRL_DASHBOARD_READ_ONLY_TOKEN", "DISTRL_ALERTS_TOKEN"):
        monkeypatch.setenv(name, "s3cret")
    read, write = os.pipe()
    os.set_inheritable(write, True)
    assert post(client, "start", {"name": "first", "config": SHORT}).json()["state"] == "starting"
    ((command, options, process),) = sleeping
    assert command[1:] == [
        *("-P", "-m", "distrl", "train", f"{root}/first/draft.yaml"),
        *("--run-dir", f"{root}/first", "--dated"),
    ]
    assert os.getsid(process.pid) == process.pid
    assert "s3cret" not in options["env"].values()
    inherited = {os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (0, 1, 2)}
    assert inherited == {"/dev/null", f"{root}/first/logs/launch.log"}
    assert os.readlink(f"/proc/self/fd/{write}") not in open_files(process.pid)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("path", ["start", "draft/check", "resume"])
def test_without_the_flag_nothing_is_started(root, path):
    with TestClient(make_app(root, Access("127.0.0.1", TOKEN)), base_url="http://127.0.0.1:8720") as client:
        answer = post(client, path, {"name": "first", "config": SHORT})
        assert answer.status_code == 403
        assert "--allow-start" in answer.json()["error"]
        assert client.get("/api/draft", headers=ACTS).status_code == 403
        assert client.get("/api/session", headers=ACTS).json()["may_start"] is False
    assert [*root.glob("first*")] == []


def test_the_flag_needs_a_token(root):
    with pytest.raises(ConfigError, match="--allow-start lets pages run code as you, and there is no token"):
        make_app(root, Access("127.0.0.1"), may_start=True)
    with pytest.raises(ConfigError, match="--allow-start"):
        make_app(root, Access("127.0.0.1", None, LOOKING), may_start=True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": f"Bearer {LOOKING}"}, 403),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"X-Distrl": "0"}, 403),
        ({"Content-Type": "text/plain"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_without_right_header_or_origin_nothing_is_started(client, root, sleeping, headers, status):
    assert post(client, "start", {"name": "first", "config": SHORT}, **headers).status_code == status
    assert not sleeping
    assert not (root / "first").exists()


def test_who_may_only_look_sees_neither_drafts_nor_starts(client):
    looks = {"Authorization": f"Bearer {LOOKING}"}
    assert client.get("/api/draft", headers=looks).status_code == 403
    assert client.get("/api/starts/ab", headers=looks).status_code == 403
    assert client.get("/api/session", headers=looks).json()["may_start"] is False
    assert client.get("/api/session", headers=ACTS).json()["may_start"] is True


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({"name": "../x"}, 400, "a name has 1 to 80 letters"),
        ({"name": "there"}, 400, "there is there already"),
        ({"config": "actors: {cuont: 1}"}, 400, "unknown key actors.cuont"),
        ({"config": f"{SHORT}memory: {{url: 'redis://u:pass@h'}}\n"}, 400, "memory.url"),
        ({"deadline": 1.0}, 409, "too late"),
        ({"config": 3}, 400, "config: "),
        ({"command": "rm"}, 400, "command: "),
        ({"config": "x" * 10_000_000}, 413, "the body is longer than"),
    ],
)
def test_a_bad_draft_is_refused_in_one_line(client, root, sleeping, changes, status, told):
    (root / "there").mkdir()
    answer = post(client, "start", {"name": "first", "config": SHORT} | changes)
    assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text
    assert "\n" not in answer.json()["error"]
    assert not sleeping
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["there"]


def test_a_long_draft_is_started_and_logged(client, root, sleeping, caplog):
    caplog.set_level(logging.INFO, "distrl.apps.dashboard")
    answer = post(client, "start", {"name": "first", "config": SHORT + "# " + "a" * 40_000})
    assert answer.status_code == 200, answer.text
    assert caplog.messages == ["started by testclient: first"]


def test_of_two_at_once_with_the_same_name_one_is_started(client, sleeping):
    with ThreadPoolExecutor(2) as threads:
        answers = [*threads.map(lambda _: post(client, "start", {"name": "first", "config": SHORT}), range(2))]
    assert sorted(answer.status_code for answer in answers) == [200, 400]
    assert len(sleeping) == 1


def test_only_so_many_run_at_once(client, sleeping, monkeypatch):
    monkeypatch.setattr(starts, "MOST_AT_ONCE", 2)
    for name in ("a", "b"):
        assert post(client, "start", {"name": name, "config": SHORT}).status_code == 200
    answer = post(client, "start", {"name": "c", "config": SHORT})
    assert answer.json()["error"].startswith("2 trainings that were started here run; stop one")


@pytest.mark.parametrize("ignores", [False, True])
def test_a_training_that_hangs_before_it_is_a_run_is_ended_and_leaves_its_place(client, root, monkeypatch, ignores):
    for name, value in (("MOST_SILENT_S", 2.0), ("TERMINATING_S", 2.0), ("LOOK_S", 0.1), ("MOST_AT_ONCE", 1)):
        monkeypatch.setattr(starts, name, value)
    monkeypatch.setattr(starts, "_size", lambda log: time.monotonic() if not (root / "child").exists() else 7)
    script = "import os, signal, subprocess, sys; print('imports', flush=True); "
    script += "signal.signal(signal.SIGTERM, signal.SIG_IGN); " * ignores
    script += "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "
    script += f"open('new', 'w').write(str(child.pid)); os.rename('new', {str(root / 'child')!r}); signal.pause()"
    popen, begun = starts.subprocess.Popen, []

    def start(command, **options):
        begun.append(popen([command[0], "-c", script], **options, cwd=root))
        return begun[-1]

    monkeypatch.setattr(starts.subprocess, "Popen", start)
    run = post(client, "start", {"name": "hangs", "config": SHORT}).json()["id"]
    assert outcome(client, run, "failed")["problem"] == "ended after 2 s without output; its last line: imports"
    assert not (root / "hangs").exists()
    wait_until(lambda: not lives(int((root / "child").read_text())), "the child has ended")
    assert post(client, "start", {"name": "again", "config": SHORT}).status_code == 200
    os.killpg(begun[-1].pid, signal.SIGKILL)


def lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_training_that_reports_progress_before_it_is_a_run_is_not_ended(client, root, sleeping, monkeypatch):
    monkeypatch.setattr(starts, "MOST_SILENT_S", 0.5)
    monkeypatch.setattr(starts, "LOOK_S", 0.05)
    sizes = itertools.count()
    monkeypatch.setattr(starts, "_size", lambda log: next(sizes))
    run = post(client, "start", {"name": "fetches", "config": SHORT}).json()["id"]
    wait_until(lambda: next(sizes) >= 40, "its log was looked at often")
    assert client.get(f"/api/starts/{run}", headers=ACTS).json()["state"] == "starting"
    sleeping[0][2].kill()
    assert outcome(client, run, "failed")["problem"] == "distrl train ended with -9 and wrote nothing"


def test_drafts_are_checked_while_they_are_typed(client, root):
    (root / "there").mkdir()
    found = post(client, "draft/check", {"name": "there", "config": "actors:\n  cuont: 1\n"}).json()
    assert found["summary"] is None
    assert found["problems"]["config"]["line"] == 2
    assert found["problems"]["name"]["text"] == "there is there already; choose another name"
    found = post(client, "draft/check", {"name": "first", "config": SHORT}).json()
    assert found == {"problems": {}, "summary": {"env": "CartPole-v1", "algorithm": "impala", "actors": 0}}


def test_drafts_of_presets_and_runs(client, make_run):
    make_run("old")
    found = client.get(f"/api/draft?run={id_of('old')}", headers=ACTS).json()
    assert "id: CartPole-v1" in found["config"]
    assert "cartpole-ppo" in found["presets"]
    assert "name: ppo" in client.get("/api/draft?preset=cartpole-ppo", headers=ACTS).json()["config"]
    assert client.get("/api/draft", headers=ACTS).json()["config"] == ""
    assert client.get("/api/draft?preset=cartpole-po", headers=ACTS).status_code == 400
    assert client.get("/api/draft?run=00", headers=ACTS).status_code == 404


def test_only_a_run_that_does_not_run_is_resumed(client, make_run, sleeping, alive, root):
    make_run("running", ended=False, pid=alive)
    make_run("gone", ended=False)
    answer = post(client, "resume", {"run": id_of("running")})
    assert answer.json()["error"] == "running is running; only a run that has ended or is gone can be resumed"
    assert post(client, "resume", {"run": "ab"}).status_code == 404
    assert not sleeping
    assert post(client, "resume", {"run": id_of("gone")}).json()["state"] == "starting"
    assert sleeping[0][0][4:] == ["train", "--resume", f"{root}/gone", "--dated"]
    answer = post(client, "resume", {"run": id_of("gone")})
    assert answer.json()["error"] == "gone is being started already"


LINKS = ("logs", "checkpoints", "policy", "tensorboard", "logs/events.log", "logs/learner.log", "run.lock", "deep/er/a")


@pytest.mark.parametrize("place", LINKS)
def test_a_run_that_would_write_through_a_link_is_not_resumed(client, make_run, sleeping, root, tmp_path, place):
    path = make_run("linked", ended=False) / place
    if path.is_dir():
        path.rmdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(tmp_path / "elsewhere")
    told = post(client, "resume", {"run": id_of("linked")}).json()["error"]
    assert told.startswith(f"linked holds a link that leads out of it, {place}; look at its configuration")
    assert not (tmp_path / "elsewhere").exists()
    assert not sleeping


def test_a_run_behind_a_link_is_not_resumed(client, make_run, sleeping, root, tmp_path):
    folder = make_run("moved", ended=False)
    assert client.get("/api/runs", headers=ACTS).json()["total"] == 1
    folder.rename(tmp_path / "outside")
    folder.symlink_to(tmp_path / "outside")
    assert post(client, "resume", {"run": id_of("moved")}).status_code in (400, 404)
    assert not sleeping


def test_links_within_a_run_do_no_harm(client, make_run, sleeping):
    folder = make_run("linked", ended=False)
    (folder / "best").symlink_to("logs")
    (folder / "itself").symlink_to(folder)
    assert post(client, "resume", {"run": id_of("linked")}).json()["state"] == "starting"


@pytest.mark.parametrize("place", ["", "config.yaml"])
def test_a_run_that_another_user_can_change_is_not_resumed(client, make_run, sleeping, monkeypatch, place):
    """Its configuration names code, which would run as the dashboard's user."""
    path = make_run("shared", ended=False) / place
    path.chmod(path.stat().st_mode | 0o002)
    told = post(client, "resume", {"run": id_of("shared")}).json()["error"]
    assert told.startswith("shared belongs to another user, or others can write to it; look at")
    path.chmod(path.stat().st_mode & ~0o002)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert "belongs to another user" in post(client, "resume", {"run": id_of("shared")}).json()["error"]
    assert not sleeping


def test_a_run_of_very_many_files_is_not_resumed(client, make_run, sleeping, monkeypatch):
    monkeypatch.setattr(starts, "MOST_FILES", 3)
    make_run("many", ended=False)
    assert "has more than 3 files" in post(client, "resume", {"run": id_of("many")}).json()["error"]


def test_others_start_while_the_files_of_a_run_are_looked_at(client, make_run, sleeping, monkeypatch):
    make_run("slow", ended=False)
    look, told = starts._leading_out, []

    def slowly(folder):
        with ThreadPoolExecutor(1) as threads:
            begun = threads.submit(post, client, "start", {"name": "first", "config": SHORT}).result(60)
            told.append((begun.status_code, client.get(f"/api/starts/{begun.json()['id']}", headers=ACTS).status_code))
        return look(folder)

    monkeypatch.setattr(starts, "_leading_out", slowly)
    assert post(client, "resume", {"run": id_of("slow")}).json()["state"] == "starting"
    assert told == [(200, 200)]


def test_a_resumption_that_comes_late_after_a_slow_look_is_refused(client, make_run, sleeping, monkeypatch):
    make_run("slow", ended=False)
    limit = time.time() + 3600
    monkeypatch.setattr(starts, "_leading_out", lambda folder: monkeypatch.setattr(time, "time", lambda: limit + 1))
    assert post(client, "resume", {"run": id_of("slow"), "deadline": limit}).status_code == 409
    assert not sleeping


def test_a_run_that_begins_while_its_files_are_looked_at_is_not_resumed(client, make_run, sleeping, alive, monkeypatch):
    make_run("slow", ended=False)

    def begins(folder):
        shutil.rmtree(folder)
        make_run("slow", ended=False, pid=alive)

    monkeypatch.setattr(starts, "_leading_out", begins)
    told = post(client, "resume", {"run": id_of("slow")}).json()["error"]
    assert told.startswith("slow is running; only a run")
    assert not sleeping


def test_a_run_that_is_deleted_while_it_is_resumed_leaves_room(client, make_run, sleeping, monkeypatch):
    monkeypatch.setattr(starts, "MOST_AT_ONCE", 1)
    run = id_of("gone")
    make_run("gone", ended=False)
    assert post(client, "resume", {"run": run}).status_code == 200
    assert post(client, "remove", {"ids": [run]}).json()["done"] == [run]
    assert client.get(f"/api/starts/{run}", headers=ACTS).json()["state"] == "starting"
    sleeping[0][2].terminate()
    assert outcome(client, run, "failed")["problem"] == "distrl train ended with -15 and wrote nothing"
    assert post(client, "start", {"name": "next", "config": SHORT}).status_code == 200


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{}", b"[" * 9000, b'{"pid": 1}'])
def test_a_damaged_description_of_a_resumed_run_is_no_error(client, make_run, sleeping, content):
    run, folder = id_of("gone"), make_run("gone", ended=False)
    assert post(client, "resume", {"run": run}).status_code == 200
    (folder / "run.json").write_bytes(content)
    assert client.get(f"/api/starts/{run}", headers=ACTS).json()["state"] == "starting"
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    assert client.get(f"/api/starts/{run}", headers=ACTS).json()["state"] == "starting"


CHANGES = sorted(
    route.path.replace("{id}", "ab").replace("{role}", "learner").replace("{number}", "0")
    for route in make_app(Path("/nonexistent"), Access("127.0.0.1", TOKEN), may_start=True).routes
    if "POST" in (getattr(route, "methods", None) or ()) and route.path not in ("/login", "/logout")
)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": f"Bearer {LOOKING}"}, 403),
        ({"Authorization": "Basic dDp0"}, 401),
        ({"Authorization": ""}, 401),
        ({"X-Distrl": ""}, 403),
        ({"Content-Type": "text/plain;application/json"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ],
)
def test_every_request_that_changes_something_needs_right_header_and_origin(client, headers, status):
    assert len(CHANGES) >= 7
    told = {path: client.post(path, json={}, headers=ACTS | headers).status_code for path in CHANGES}
    assert told == dict.fromkeys(CHANGES, status)
