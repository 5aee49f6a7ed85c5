"""stored_runs: what a Redis holds of runs, living, dead and odd ones."""

import json
from contextlib import closing

import pytest

from distrl.errors import ConfigError, MissingRunError
from distrl.launch import stored_runs as stored
from distrl.launch.stored_runs import RunInRedis, remove_run, stored_runs
from distrl.memory_backend.backend import connect, connect_engine
from distrl.memory_backend.records import RoleStatus, SupervisorStatus

pytestmark = [pytest.mark.redis, pytest.mark.row("S14")]
DESCRIPTION = json.dumps(
    {"run_dir": "/runs/a", "config": {"environment": {"id": "X-v1"}, "algorithm": {"name": "ppo"}}}
)


@pytest.fixture
def make(redis_url):
    """Makes runs in the module's Redis, and removes them."""
    made = []

    def create(run_id, namespace="default", description=DESCRIPTION):
        backend = connect(f"{redis_url}?namespace={namespace}", run_id, name="test", give_up_s=1.0)
        made.append(backend)
        backend.create(description)
        return backend

    yield create
    for backend in made:
        backend.delete()
        backend.close()


def listed(url):
    """The runs, all of which can be read."""
    told = []
    found = [*stored_runs(url, told.append)]
    assert told == []
    return found


def test_each_run_is_listed_with_its_heartbeats_and_its_end(redis_url, make):
    live, dead = make("live"), make("dead", "team-a")
    live.registry.beat_supervisor(SupervisorStatus("h", 1, 1))
    for number in range(2):
        live.registry.beat(RoleStatus("actor", number, 1, "h", 2, "acting"))
    dead.engine.call("EXPIRE", dead._run.keys.run, 500)
    of_the_dead, of_the_live = sorted(listed(redis_url), key=lambda one: one.run_id)
    assert of_the_live.supervisor_age_s < 60.0
    assert (of_the_live.state, of_the_live.learner_age_s, of_the_live.actors) == ("running", None, 2)
    assert of_the_live.expires_s is None
    assert 0 < of_the_dead.expires_s <= 500
    silent = RunInRedis("team-a", "dead", "/runs/a", "X-v1", "ppo", "silent", None, None, 0, of_the_dead.expires_s)
    assert of_the_dead == silent
    assert [one.run_id for one in listed(f"{redis_url}?namespace=team-a")] == ["dead"]


@pytest.mark.parametrize(
    "description", ["", "{", "[]", "[" * 100_000, '{"config": 3}', '{"config": {"environment": []}}']
)
def test_a_description_of_another_program_is_no_error(redis_url, make, description):
    make("odd", description=description)
    (found,) = listed(redis_url)
    assert (found.run_id, found.env, found.algorithm) == ("odd", "", "")


@pytest.mark.parametrize("key", ["run", "actors"])
def test_a_run_that_cannot_be_read_hides_no_other(redis_url, make, key):
    make("fine")
    with closing(connect_engine(redis_url, name="test", give_up_s=1.0)) as engine:
        engine.call("HSET", "distrl:default:{a}:run", "launch", "1")
        odd = f"distrl:default:{{a}}:{key}"
        engine.transaction([("UNLINK", odd), ("RPUSH", odd, "x")])
        told = []
        assert [one.run_id for one in stored_runs(redis_url, told.append)] == ["fine"]
        engine.call("UNLINK", odd, "distrl:default:{a}:run")
    (line,) = told
    assert odd in line
    assert "WRONGTYPE" in line


def test_a_run_that_lives_is_not_removed(redis_url, make, monkeypatch):
    backend = make("live")
    monkeypatch.setattr(stored, "living", lambda _: "learner, process 7 on host h")
    with pytest.raises(ConfigError, match="run live goes on: learner, process 7 on host h, sends heartbeats; stop it"):
        remove_run(redis_url, "live")
    assert backend.config_json() == DESCRIPTION


def test_a_dead_run_is_removed_from_its_namespace_alone(redis_url, make):
    here, there = make("r"), make("r", "team-a")
    remove_run(redis_url, "r")
    assert there.config_json() == DESCRIPTION
    assert here.engine.keys(f"{here._run.keys.prefix}*") == []
    with pytest.raises(MissingRunError, match="no run r at"):
        remove_run(redis_url, "r")


@pytest.mark.parametrize("spoilt", ["run", "actors", "incarnations"])
def test_keys_whose_type_is_another_programs_are_removed(redis_url, make, spoilt):
    backend = make("odd")
    backend.registry.beat(RoleStatus("actor", 3, 1, "h", 2, "acting"))
    key = backend._run.keys.prefix + spoilt
    backend.engine.transaction([("UNLINK", key), ("RPUSH", key, "x")])
    remove_run(redis_url, "odd")
    assert backend.engine.keys(f"{backend._run.keys.prefix}*") == []


def test_a_run_without_a_launch_is_listed_and_removed(redis_url):
    """Another program has written its key, or another version of distrl."""
    with closing(connect_engine(redis_url, name="test", give_up_s=1.0)) as engine:
        engine.call("HSET", "distrl:default:{odd}:run", "protocol", "7")
        engine.call("HSET", "distrl:default:{odd}:ledger", "produced", "7")
        assert [one.run_id for one in listed(redis_url)] == ["odd"]
        remove_run(redis_url, "odd")
        assert engine.keys("*{odd}*") == []
    assert listed(redis_url) == []
