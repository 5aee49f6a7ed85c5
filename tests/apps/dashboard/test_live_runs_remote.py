"""Runs that Redis alone knows of: found, shown, steered, and gone when they are."""

import json
import time
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from distrl.apps.config.configuration import Configuration, load_text
from distrl.apps.dashboard import drafts
from distrl.apps.dashboard.app import make_app
from distrl.apps.dashboard.live_runs import SCAN_S, LiveRuns, check_reachable
from distrl.apps.web.access import Access
from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend.backend import connect, connect_engine
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.redis_client import RedisClient
from distrl.memory_backend.stream import QueueCaps
from distrl.roles.description import RunDescription
from distrl.runs.reading import SILENT_FOR_S
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

pytestmark = pytest.mark.redis

RUN = "20260102-030405-abc"
CONFIG = Configuration.model_validate(
    {"seed": 7, "environment": {"kwargs": {"api_key": "s3cret", "t": "😀"}}, "slurm": {"python": "python3"}}
)
SPEC = EnvSpec("X", {"a": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(3)})
DESCRIPTION = RunDescription(run_id=RUN, run_dir="/elsewhere", config=CONFIG, spec=SPEC).published()
LEARNER = RoleStatus("learner", 0, 1, "host", 5, "training", beat=1)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def job(redis_url):
    backend = connect(redis_url, RUN, QueueCaps(8, 1000), name="test", give_up_s=1.0)
    backend.create(DESCRIPTION)
    backend.registry.beat(LEARNER)
    yield backend
    backend.delete()
    backend.close()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def remote_runs(redis_url, clock):
    made = LiveRuns([redis_url], clock)
    yield made
    made.close()


def looked(remote_runs):
    remote_runs.scan()
    return {found.record.run_id: found for found in remote_runs.found()}


def beat(job, number):
    job.registry.beat(replace(LEARNER, beat=number))


def test_a_run_that_was_launched_again_is_shown_with_its_new_settings(job, remote_runs, clock):
    looked(remote_runs)
    job.delete()
    again = json.loads(DESCRIPTION)
    again["config"]["seed"] = 8
    job.create(json.dumps(again))
    beat(job, 2)
    clock.now += SCAN_S
    assert looked(remote_runs)[RUN].settings["seed"].value == 8


def test_a_run_is_found_when_it_has_given_a_sign_of_life(job, remote_runs, clock, redis_url):
    assert remote_runs.found() == ()
    assert looked(remote_runs) == {}  # its keys may be left of one that died
    clock.now += SCAN_S
    beat(job, 2)
    found = looked(remote_runs)[RUN]
    assert (found.record.run_id, found.record.redis_url) == (RUN, redis_url)
    values = {path: setting.value for path, setting in found.settings.items()}
    assert (values["seed"], values["environment.kwargs.api_key"], values["environment.kwargs.t"]) == (7, "•••", "😀")
    assert values["slurm.python"] == "python3"
    assert found.record.started > 0


def test_it_is_not_there_when_it_is_silent_and_back_when_it_is_not(job, remote_runs, clock):
    looked(remote_runs)
    beat(job, 2)
    for later, there in ((SCAN_S, True), (SILENT_FOR_S - 0.1, True), (SCAN_S, False)):
        clock.now += later
        assert (RUN in looked(remote_runs)) is there
    beat(job, 3)
    clock.now += SCAN_S
    assert RUN in looked(remote_runs)


def test_one_that_has_ended_is_not_there(job, remote_runs, clock):
    looked(remote_runs)
    beat(job, 2)
    assert RUN in looked(remote_runs)
    job.delete()
    assert RUN not in looked(remote_runs)


def test_an_outage_is_no_end(job, remote_runs, clock, monkeypatch, caplog):
    looked(remote_runs)
    beat(job, 2)
    assert RUN in looked(remote_runs)

    def gone(*_):
        raise MemoryBackendError("Redis is loading")

    with monkeypatch.context() as patch:
        patch.setattr(RedisClient, "keys", gone)
        for _ in range(3):
            clock.now += 60.0
            assert RUN in looked(remote_runs)
    assert sum("runs cannot be looked for" in record.message for record in caplog.records) == 1
    beat(job, 3)
    clock.now += 60.0
    assert RUN in looked(remote_runs)


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("distrl:default:{odd}:run", ("protocol", 3, "config", "no JSON")),
        ("distrl:default:{older}:run", ("protocol", 1, "config", DESCRIPTION)),
        ("distrl:default:{without}:run", ("protocol", 3, "config", "{}")),
        ("distrl:default:{bad id}:run", ("protocol", 3, "config", DESCRIPTION)),
        ("distrl:default:{deep}:run", ("protocol", 3, "config", "[" * 100_000)),
        ("distrl:default:{halves}:run", ("protocol", 3, "config", r'{"config": {"a": "\ud83d"}}')),
    ],
)
def test_what_no_distrl_of_this_version_has_written_is_passed_over(job, remote_runs, redis_url, key, fields):
    client = connect_engine(redis_url, name="test", give_up_s=1.0)
    client.call("HSET", key, "launch", "x", *fields)
    actors = f"{key.removesuffix('run')}actors"
    try:
        looked(remote_runs)
        beat(job, 2)
        client.call("HSET", actors, "learner:0", "{}")
        assert [*looked(remote_runs)] == [RUN]
    finally:
        client.call("DEL", key, actors)
        client.close()


@pytest.mark.parametrize(
    "url", ["local:", "local:runs", "redis://127.0.0.1:1?namespace=*", "redis://127.0.0.1:1?namespace="]
)
def test_a_url_that_is_no_redis_or_names_no_namespace_is_refused_at_the_start(url):
    with pytest.raises(ConfigError):
        check_reachable([url])


def test_a_redis_that_is_not_there_is_asked_again_ever_more_rarely(clock, monkeypatch):
    asked = []

    def refuse(*_, **__):
        asked.append(clock.now)
        raise MemoryBackendError("unreachable")

    monkeypatch.setattr("distrl.apps.dashboard.live_runs.connect_engine", refuse)
    remote_runs = LiveRuns(["redis://127.0.0.1:1"], clock)
    for later in (0.0, 1.9, 0.2, 3.9, 0.2):
        clock.now += later
        assert looked(remote_runs) == {}
    assert asked == pytest.approx([100.0, 102.1, 106.2])


@pytest.fixture
def client(root, redis_url, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.index.FRESH_S", 0.0)
    monkeypatch.setattr("distrl.apps.dashboard.index.RESTS", 0.0)
    monkeypatch.setattr("distrl.apps.dashboard.live_runs.LOOK_S", 0.0)
    app = make_app(root, Access("127.0.0.1"), redis_urls=[redis_url])
    with TestClient(app, base_url="http://127.0.0.1:8720") as made:
        made.live = app.state.runs.live
        yield made


def listed(client, job):
    """As it is after two looks, between which the job's learner has given a sign of life."""
    client.live.scan()
    beat(job, time.monotonic_ns())
    client.live.scan()
    return {row["name"]: row for row in client.get("/api/runs").json()["runs"]}


def test_its_page_has_what_redis_knows(job, client):
    for updates in (1, 2, 3):
        job.registry.add_snapshot({"updates": updates, "env_steps": 10 * updates, "loss": 0.5, "bottleneck": "-"})
    row = listed(client, job)[RUN]
    assert (row["state"], row["algorithm"], row["seed"], row["numbers"]["updates"]) == ("running", "impala", 7, 3)
    base = f"/api/runs/{row['id']}"
    shown = client.get(base).json()
    assert (shown["snapshot"]["updates"], shown["logs"]) == (3, [])
    assert [role["role"] for role in shown["live"]["roles"]] == ["learner"]
    assert {"updates", "loss"} <= set(shown["columns"])
    line = client.get(f"{base}/curve?metric=loss&metric=updates&over=steps&points=10").json()["curves"]
    assert line["loss"] == {"x": [10.0, 20.0, 30.0], "y": [0.5, 0.5, 0.5]}
    values = {leaf["path"]: leaf["value"] for leaf in client.get(f"{base}/config").json()["values"]}
    assert (values["seed"], values["environment.kwargs.api_key"]) == (7, "•••")
    assert client.get(f"{base}/events").json() == {"events": []}
    assert client.get(f"{base}/logs/learner").status_code == 404
    assert client.get(f"{base}/video").status_code == 404
    assert [one["name"] for one in client.get("/api/fleet").json()["redis"]] == [RUN]
    assert b"distrl_updates" in client.get("/metrics").content


def test_a_clone_has_what_redis_knows(job, client):
    index = client.app.state.runs.index
    text = drafts.of_run(index.leaves(index.entry(listed(client, job)[RUN]["id"])))
    assert load_text(text.replace("•••", "s3cret"), "x").config == CONFIG
    assert "s3cret" not in text


def test_it_is_steered(job, client):
    row = listed(client, job)[RUN]
    headers = {"X-Distrl": "1"}
    answer = client.post(f"/api/runs/{row['id']}/control", json={"action": "pause"}, headers=headers)
    assert answer.status_code == 200
    assert job.registry.control().paused


def test_a_run_whose_directory_is_here_is_listed_once(job, client, make_run, alive, redis_url):
    make_run("here", ended=False, pid=alive, redis_url=redis_url, run_id=RUN)
    assert [(name, row["state"]) for name, row in listed(client, job).items()] == [("here", "running")]


def test_what_looks_gone_from_here_runs_on_another_machine(job, client, make_run):
    make_run("shared", ended=False, redis_url="unix:///nowhere", run_id=RUN, rows=2)
    job.registry.add_snapshot({"updates": 9, "env_steps": 90})
    row = listed(client, job)["shared"]
    assert (row["state"], row["numbers"]["updates"], row["path"]) == ("running", 9, "shared")
    curves = client.get(f"/api/runs/{row['id']}/curve?metric=updates&over=steps&points=10").json()["curves"]
    assert curves["updates"]["y"] == [1.0, 2.0]  # its own file knows all of it


def test_runs_of_two_namespaces_with_one_id_are_two_runs(job, client, redis_url):
    other = connect(f"{redis_url}?namespace=team-a", RUN, QueueCaps(8, 1000), name="test", give_up_s=1.0)
    other.create(DESCRIPTION)
    try:
        other.registry.beat(LEARNER)
        client.live.scan()
        other.registry.beat(replace(LEARNER, beat=2))
        job.registry.add_snapshot({"updates": 1})
        other.registry.add_snapshot({"updates": 2})
        rows = listed(client, job)
        assert {row["namespace"]: row["numbers"]["updates"] for row in rows.values()} == {"default": 1, "team-a": 2}
        assert sorted(rows) == [f"redis/{RUN}", f"team-a/{RUN}"]
        url = f"/api/runs/{rows[f'team-a/{RUN}']['id']}/control"
        assert client.post(url, json={"action": "pause"}, headers={"X-Distrl": "1"}).status_code == 200
        assert (job.registry.control().paused, other.registry.control().paused) == (False, True)
    finally:
        other.delete()
        other.close()


def test_a_directory_here_is_not_the_run_of_another_namespace(job, client, make_run, redis_url):
    make_run("here", ended=False, redis_url=f"{redis_url}?namespace=team-a", run_id=RUN)
    told = ("namespace", "state", "has_directory")
    found = {name: tuple(row[key] for key in told) for name, row in listed(client, job).items()}
    assert found == {"here": ("team-a", "gone", True), RUN: ("default", "running", False)}


def test_it_is_no_longer_listed_when_redis_has_forgotten_it(job, client):
    row = listed(client, job)[RUN]
    job.delete()
    client.live.scan()
    assert client.get("/api/runs").json()["runs"] == []
    assert client.get(f"/api/runs/{row['id']}").status_code == 404
