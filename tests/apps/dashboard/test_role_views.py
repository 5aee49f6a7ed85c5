"""The addresses of one role: its history, and stacks that its heartbeat tells only while they are asked for."""

import threading
import time

import pytest

from distrl.apps.dashboard import role_views
from distrl.apps.dashboard.files import id_of
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.stream import QueueCaps
from tests.waiting import wait_until

ACTING = {"X-Distrl": "1"}
pytestmark = pytest.mark.redis


@pytest.fixture
def job(make_run, alive, redis_url):
    """A running job with actor 3, and its backend."""
    make_run("job", ended=False, pid=alive, redis_url=redis_url, run_id="role-views")
    backend = connect(redis_url, "role-views", QueueCaps(8, 1000), name="test", give_up_s=1.0)
    backend.create("{}")
    backend.registry.beat(RoleStatus("actor", 3, 1, "hera", 5, "acting", env_steps_per_s=7.0))
    yield backend
    backend.delete()
    backend.close()


def address(what, role="actor/3", run="job"):
    return f"/api/runs/{id_of(run)}/roles/{role}/{what}"


def test_the_history_begins_with_the_first_look_of_a_page(page, job):
    client = page()
    assert client.get(address("history")).json()["at"] == []
    client.get(f"/api/runs/{id_of('job')}")
    told = client.get(address("history")).json()
    assert (len(told["at"]), told["env_steps_per_s"]) == (1, [7.0])
    assert told["at"][0] == pytest.approx(time.time(), abs=60.0)


def test_stacks_are_those_of_a_heartbeat_after_they_were_asked_for(page, job):
    registry, asked = job.registry, []
    registry.beat(RoleStatus("actor", 3, 1, "hera", 5, "acting", stacks="old ones"))

    def answer():
        wait_until(lambda: registry.control().stacks)
        asked.append(registry.control().stacks)
        registry.beat(RoleStatus("actor", 3, 1, "hera", 5, "acting", stacks="thread MainThread: here"))

    role = threading.Thread(target=answer, daemon=True)
    role.start()
    answer = page().post(address("stacks"), json={}, headers=ACTING)
    role.join(10.0)
    assert (answer.status_code, answer.json()) == (200, {"stacks": "thread MainThread: here"})
    assert (asked, registry.control().stacks) == (["actor:3"], "")


def test_a_role_that_hangs_or_is_not_there_is_told_and_nobody_is_asked_any_more(page, job, monkeypatch):
    monkeypatch.setattr(role_views, "STACKS_S", 0.3)
    client = page()
    hangs = client.post(address("stacks"), json={}, headers=ACTING)
    assert (hangs.status_code, hangs.json()["error"]) == (
        400,
        "actor 3 has sent no heartbeat with stacks within 0.3 s; it may hang",
    )
    assert job.registry.control().stacks == ""
    absent = client.post(address("stacks", "actor/4"), json={}, headers=ACTING)
    assert (absent.status_code, absent.json()["error"]) == (404, "the run has no actor 4, or it has not reported yet")


@pytest.mark.parametrize("role", ["cook/0", "actor/-1", "actor/x", "actor/99999999999999999999"])
def test_what_is_no_role_is_refused(page, job, role):
    assert page().get(address("history", role)).status_code == 404


def test_a_run_that_does_not_run_has_no_roles(page, make_run):
    make_run("over")
    for answer in (
        page().get(address("history", run="over")),
        page().post(address("stacks", run="over"), json={}, headers=ACTING),
    ):
        assert (answer.status_code, answer.json()["error"]) == (400, "over does not run")


def test_stacks_want_the_right_to_act(page, job):
    client = page("0.0.0.0", token="a" * 32, read_only_token="b" * 32)
    reading = {"Authorization": f"Bearer {'b' * 32}"}
    assert client.get(address("history"), headers=reading).status_code == 200
    assert client.post(address("stacks"), json={}, headers=reading | ACTING).status_code == 403
    acting = {"Authorization": f"Bearer {'a' * 32}"}
    assert client.post(address("stacks"), json={}, headers=acting).status_code == 403  # without the header
