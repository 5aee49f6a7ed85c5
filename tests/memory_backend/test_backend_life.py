"""backend: the life of a run, and that the table in keys.py tells the whole truth."""

import re

import pytest
import redis

import distrl
from distrl.config.schedules import Progress
from distrl.errors import ConfigError, FencedError, MemoryBackendError, MissingRunError
from distrl.memory_backend import backend as backends
from distrl.memory_backend.backend import connect
from distrl.memory_backend.keys import PROTOCOL_VERSION, TABLE
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.records import Evaluation, Request, RoleStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.types import PolicyBundle, UnrollHeader

CAPS = QueueCaps(8, 1000)


def test_fences_count_up(run):
    assert [each.become_learner().fence.number for each in (run.backend, run.connect(), run.backend)] == [1, 2, 3]


def test_a_run_is_created_once(run):
    with pytest.raises(MemoryBackendError, match=f"run {run.run_id} exists already"):
        run.connect().create("{}")
    assert run.connect().config_json() == '{"seed": 1}'


def test_a_deleted_run_is_gone_and_can_be_made_anew(run):
    backend = run.backend
    backend.unrolls.push(UnrollHeader(0, 1, 0, 0, 1), b"x")
    backend.become_learner().weights.publish(1, b"w", Progress())
    backend.delete()
    with pytest.raises(MemoryBackendError, match=f"no run {run.run_id}"):
        backend.config_json()
    backend.create("{}")
    assert backend.ledger.counts().produced == 0
    assert backend.weights.fetch() is None
    assert backend.unrolls.take(1, 0.0) == []


def use_every_noun(backend):
    learner, incarnation = backend.become_learner(), backend.registry.register_actor(0)
    backend.registry.beat(RoleStatus("actor", 0, incarnation, "host", 1, "acting"))
    backend.registry.set_control(paused=True, stop="x", target_actors=1)
    backend.registry.add_request(Request("ada, test", "pause"))
    backend.registry.add_snapshot({"updates": 1})
    evaluator = backend.registry.register("evaluator")
    backend.registry.add_evaluation(Evaluation(1, 100, 20, 1.0, 0.0, 1.0, 1.0, 1.0, 0.5), b"w", evaluator)
    backend.weights.put_bundle(PolicyBundle(b"g", "{}"))
    learner.weights.publish(1, b"w", Progress())
    learner.tickets.issue(3)
    for sequence in range(4):
        backend.unrolls.push(UnrollHeader(0, 1, sequence, 1, 1), b"x")
    taken = backend.unrolls.take(2, 0.0)
    backend.unrolls.suspect(taken[0].entry_id)
    learner.unrolls.settle([taken[0]], EntryOutcome.SCHEMA)
    learner.unrolls.settle(taken[1:], EntryOutcome.TRAINED)
    backend.tickets.take((0, 1), 0.0)


@pytest.mark.redis
def test_every_key_in_redis_is_a_row_of_the_table_and_of_its_type(redis_run):
    use_every_noun(redis_run.backend)
    prefix = f"{redis_run.prefix}"
    with redis.Redis.from_url(redis_run.url) as client:
        found = {key.decode().removeprefix(prefix): client.type(key).decode() for key in client.scan_iter(prefix + "*")}
        expiring = [key for key in client.scan_iter(prefix + "*") if client.ttl(key) != -1]
    patterns = {row.name: re.sub(r"\\{\w+\\}", r"\\d+", re.escape(row.name)) for row in TABLE}
    used = set()
    for key, kind in found.items():
        (row,) = [row for row in TABLE if re.fullmatch(patterns[row.name], key)]
        assert kind == row.type
        used.add(row.name)
    assert used == {row.name for row in TABLE}
    assert expiring == []


@pytest.mark.redis
def test_delete_leaves_other_runs_alone(redis_run):
    other = connect(redis_run.url, redis_run.run_id + "0", CAPS, name="other", give_up_s=1.0)
    other.create("other")
    use_every_noun(redis_run.backend)
    redis_run.backend.delete()
    assert other.config_json() == "other"
    other.delete()
    with redis.Redis.from_url(redis_run.url) as client:
        assert list(client.scan_iter(f"distrl:default:{{{redis_run.run_id}*")) == []
    other.close()


def test_runs_of_two_namespaces_do_not_see_each_other(run):
    mark = "&" if "?" in run.url else "?"
    other = connect(f"{run.url}{mark}namespace=team-a", run.run_id, CAPS, name="test", give_up_s=1.0)
    with pytest.raises(MemoryBackendError, match="no run"):
        other.config_json()
    other.create("other")
    run.backend.unrolls.push(UnrollHeader(0, 1, 0, 0, 1), b"x")
    assert (run.connect().config_json(), other.config_json()) == ('{"seed": 1}', "other")
    assert (run.backend.ledger.counts().produced, other.ledger.counts().produced) == (1, 0)
    other.delete()
    assert run.backend.ledger.counts().produced == 1
    other.close()


@pytest.mark.parametrize(("version", "named"), [("9.8", r"protocol 99 \(distrl 9\.8\)"), (None, "protocol 99")])
def test_another_protocol_version_is_refused_by_a_line_that_names_both(run, version, named):
    backend, key = run.backend, run.backend._run.keys.run
    assert backend.engine.call("HGET", key, "distrl_version") == distrl.__version__.encode()
    backend.engine.call("HDEL", key, "distrl_version")
    backend.engine.call("HSET", key, "protocol", 99, *(() if version is None else ("distrl_version", version)))
    own = rf"this distrl {re.escape(distrl.__version__)} speaks {PROTOCOL_VERSION}"
    match = rf"run {run.run_id} speaks {named}, {own}; use one version"
    with pytest.raises(MemoryBackendError, match=match) as caught:
        backend.config_json()
    assert "\n" not in str(caught.value)


@pytest.mark.redis
def test_the_connection_is_named_after_its_role(redis_run):
    with redis.Redis.from_url(redis_run.url) as client:
        assert "distrl:test-0" in {entry["name"] for entry in client.client_list()}


@pytest.mark.redis
def test_a_bad_run_id_is_refused_before_anything_is_opened():
    with pytest.raises(ConfigError, match="run id"):
        connect("unix:///nowhere", "a b", CAPS, name="x", give_up_s=1.0)


@pytest.mark.redis
def test_a_run_that_was_deleted_under_a_role_is_one_line(redis_run):
    redis_run.backend.delete()
    with pytest.raises(MemoryBackendError, match="the run's data is gone") as caught:
        redis_run.backend.unrolls.take(1, 0.0)
    assert "\n" not in str(caught.value)


def late_writes(backend, learner):
    """Every kind of write that a role may still send after its launch has ended."""
    evaluation = Evaluation(1, 100, 20, 1.0, 0.0, 1.0, 1.0, 1.0, 0.5)
    return [
        lambda: backend.unrolls.push(UnrollHeader(0, 1, 9, 1, 1), b"x"),
        lambda: backend.unrolls.admission(),
        lambda: backend.registry.beat(RoleStatus("actor", 0, 1, "host", 1, "acting")),
        lambda: backend.registry.register_actor(0),
        lambda: backend.registry.forget("actor:0"),
        lambda: backend.registry.register("evaluator"),
        lambda: backend.registry.add_snapshot({"updates": 2}),
        lambda: backend.registry.set_control(stop="updates"),
        lambda: backend.weights.put_bundle(PolicyBundle(b"g", "{}")),
        lambda: backend.weights.get_bundle(),
        lambda: backend.become_learner(),
        lambda: backend.registry.add_evaluation(evaluation, b"w", 1),
        lambda: learner.tickets.issue(1),
        lambda: learner.unrolls.raise_highest({(0, 1): 0}),
    ]


@pytest.mark.redis
def test_what_comes_after_the_end_of_a_run_makes_no_key_of_it_anew(redis_run):
    """A role that was cut off while the run ended goes on with it when the network is back."""
    backend = redis_run.backend
    use_every_noun(backend)
    writes = late_writes(backend, backend.become_learner())
    redis_run.connect().delete()
    for write in writes:
        with pytest.raises(MissingRunError, match=f"run {redis_run.run_id} is gone from"):
            write()
    with redis.Redis.from_url(redis_run.url) as client:
        assert list(client.scan_iter(f"{redis_run.prefix}*")) == []


@pytest.mark.parametrize("broken", [0, 1])
def test_a_run_whose_keys_vanish_has_ended_unless_the_connection_broke_since_it_was_last_there(run, broken):
    role = run.backend.of_standing_launch()
    role.engine.interruptions += 1  # survived by the next look
    role.check_launch()
    role.engine.interruptions += broken
    run.connect().delete()
    with pytest.raises(MissingRunError) as caught:
        role.check_launch()
    assert caught.value.ended == (not broken)


def launched(run, launch):
    backend = connect(run.url, run.run_id, CAPS, launch=launch, name="test", give_up_s=1.0)
    run.opened.append(backend)
    return backend


def snapshot(backend):
    """All that the run's keys hold."""
    keys = backend._run.keys
    hashes = [keys.run, keys.control, keys.actors, keys.incarnations, keys.ledger, keys.bundle, keys.evaluated]
    streams = [keys.unrolls, keys.metrics, keys.evaluations]
    told = [backend.engine.call("HGETALL", key) for key in hashes]
    return [*told, *[backend.engine.call("XLEN", key) for key in streams], backend.tickets.counts()]


def test_a_role_of_an_earlier_launch_changes_nothing_of_a_later_one(run):
    """The later launch has the same run id, incarnations and fences."""
    run.backend.delete()
    earlier = launched(run, "first")
    earlier.create("{}")
    use_every_noun(earlier)
    writes = late_writes(earlier, earlier.become_learner())
    run.connect().delete()
    later = launched(run, "second")
    later.create("{}")
    use_every_noun(later)
    later.become_learner()
    before = snapshot(later)
    for write in [*writes, lambda: earlier.tickets.reclaim((0, 1)), earlier.config_json, earlier.delete]:
        with pytest.raises(FencedError, match="was launched again, and this role belongs to an earlier") as caught:
            write()
        assert "\n" not in str(caught.value)
    assert snapshot(later) == before


def test_an_operators_command_follows_the_launch_that_it_has_found(run):
    """Before, it takes any; afterwards, its requests are meant for no other one."""
    run.backend.registry.set_control(paused=True)
    bound = run.connect().of_standing_launch()
    assert bound.launch == run.backend.engine.call("HGET", run.backend._run.keys.run, "launch").decode()
    run.backend.delete()
    with pytest.raises(MissingRunError, match=f"run {run.run_id} is gone"):
        run.backend.of_standing_launch()
    run.backend.create("{}")
    with pytest.raises(FencedError, match="launched again"):
        bound.registry.set_control(paused=True)
    run.backend.registry.set_control(paused=True)


@pytest.mark.redis
def test_nothing_of_a_run_whose_keys_were_left_behind_comes_into_the_next_one(redis_run):
    backend, keys = redis_run.backend, redis_run.backend._run.keys
    use_every_noun(backend)
    backend.engine.call("UNLINK", keys.run)
    launched(redis_run, "second").create("{}")
    assert sorted(backend.engine.keys(f"{keys.prefix}*")) == sorted([keys.applied, keys.run, keys.unrolls])
    backend.engine.call("UNLINK", keys.run)
    launched(redis_run, "third").delete()
    assert backend.engine.keys(f"{keys.prefix}*") == []


@pytest.mark.redis
def test_a_heartbeat_is_one_transaction_after_another(redis_run):
    """The look whether the run is there travels with what is written."""
    backend, asked = redis_run.backend, []
    status = RoleStatus("actor", 0, 1, "host", 1, "acting")
    backend.registry.beat(status)
    original = backend.engine._round_trip
    backend.engine._round_trip = lambda commands: asked.append(commands) or original(commands)
    backend.registry.beat(status)
    backend.unrolls.push(UnrollHeader(0, 1, 0, 1, 1), b"x")
    assert [commands[0][0] for commands in asked] == ["TIME", "MULTI", "MULTI"]


@pytest.mark.redis
def test_all_keys_of_a_run_end_together_after_the_last_renewal(redis_run, monkeypatch):
    backend, now = redis_run.backend, [1000.0]
    monkeypatch.setattr(backends.time, "monotonic", lambda: now[0])
    use_every_noun(backend)
    made = backend.engine.keys(f"{redis_run.prefix}*")

    def left_s():
        return {key.removeprefix(redis_run.prefix): backend.engine.call("TTL", key) for key in made}

    def renewed(after_s):
        """Keys that a call renews so long after the one before."""
        for key in made:
            backend.engine.call("EXPIRE", key, 100)
        now[0] += after_s
        backend.keep(5000)
        return {name for name, seconds in left_s().items() if seconds > 4000}

    backend.keep(5000)
    everything = set(left_s())
    assert set(left_s().values()) <= {4999, 5000}
    assert renewed(backends.RENEW_EVERY_S - 1.0) == set()
    assert renewed(1.0) == everything - {"run"}
    assert renewed(5000 / backends.RENEWALS) == everything
    assert backend.engine.call("TTL", backend._run.keys.held((5, 1))) == -2  # nothing is made for it


def test_a_server_that_evicts_what_has_an_end_keeps_the_keys_without_one(run):
    backend = run.backend
    backend.engine.keeps_expiring = False
    calls = []
    backend.engine.call = lambda *command: calls.append(command)
    backend.keep(5000)
    assert calls == []
    del backend.engine.call


@pytest.mark.redis
def test_keys_that_have_an_end_are_renewed_after_a_fail_over_to_a_server_that_evicts_them_first(redis_run, monkeypatch):
    backend, now = redis_run.backend, [1000.0]
    monkeypatch.setattr(backends.time, "monotonic", lambda: now[0])
    backend.keep(5000)
    backend.engine.keeps_expiring = False
    now[0] += 1000.0
    backend.keep(7000)
    assert backend.engine.call("TTL", backend._run.keys.run) > 5000


def test_an_earlier_launch_renews_nothing(run):
    earlier = launched(run, "first")
    with pytest.raises(FencedError, match="launched again"):
        earlier.keep(5000)


def test_a_replica_confirms_what_a_fail_over_must_not_take_away(run, monkeypatch, caplog):
    backend = run.connect()
    backend.delete()
    monkeypatch.setattr(type(backend.engine), "confirm", lambda engine: False)
    for write in (
        lambda: backend.create("{}"),
        backend.become_learner,
        lambda: backend.registry.register_actor(0),
        lambda: backend.registry.register("evaluator"),
        lambda: backend.registry.fulfil("checkpoint", 1),
    ):
        caplog.clear()
        write()
        (warning,) = caplog.messages
        assert warning.startswith("no replica of Redis has confirmed ")
