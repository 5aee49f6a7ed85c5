"""registry: incarnations, heartbeats, control and snapshots; on every backend."""

import json
import logging
from dataclasses import asdict, replace

import pytest
import redis

from distrl.errors import ConfigError, FencedError
from distrl.memory_backend.records import (
    BestEvaluation,
    Control,
    Demand,
    Estimate,
    Evaluation,
    GpuLoad,
    HostLoad,
    Request,
    RoleStatus,
    SupervisorStatus,
    rates_while_paused,
    time_shares,
)
from distrl.memory_backend.registry import SNAPSHOTS
from tests.faults.failover import promote, replica_of

ACTOR = RoleStatus(
    role="actor",
    id=2,
    incarnation=3,
    host="host",
    pid=4711,
    state="waiting: queue",
    beat=9,
    env_steps=10**12,
    env_steps_per_s=123456.5,
    weights_version=17,
    last_step_age_s=0.25,
    rss_mb=100.5,
    peak_rss_mb=120.0,
    machine=HostLoad(2.5, 0.25, 4000.0, 1000.5, (GpuLoad("NVIDIA H100", 0.5, 80_000.0, 10.0),)),
)
LEARNER = RoleStatus(role="learner", id=0, incarnation=1, host="host", pid=1, state="training")


def test_incarnations_count_up_from_1_for_each_actor(backend):
    registered = [backend.registry.register_actor(actor) for actor in (0, 0, 5, 0, 5)]
    assert registered == [1, 2, 1, 3, 2]


def test_ids_of_actors_that_join_are_each_given_once(run):
    first, second = run.backend.registry, run.connect().registry
    assert [first.claim_actor(), second.claim_actor(), first.claim_actor()] == [10_000, 10_001, 10_002]
    assert second.register_actor(10_001) == 1  # an id is no incarnation


def test_an_id_whose_claim_a_fail_over_has_lost_is_not_given_again_to_another(backend):
    for _ in range(2):
        backend.registry.beat(replace(ACTOR, id=backend.registry.claim_actor()))
    backend.engine.call("HDEL", backend.registry._keys.incarnations, "joined")
    assert backend.registry.claim_actor() == 10_002


def test_heartbeats_of_some_roles_are_read_alone(backend):
    for actor in (1, 2, 3):
        backend.registry.beat(replace(ACTOR, id=actor))
    assert [status.id for status in backend.registry.heartbeats(["actor:3", "actor:9", "actor:1"])] == [3, 1]
    assert backend.registry.heartbeats([]) == []


@pytest.mark.parametrize("actor", [-1, 10**18, 2**63, 10**23])
def test_an_actor_id_that_no_header_can_carry_is_refused(backend, actor):
    """Every unroll of it would be refused after it had been counted."""
    with pytest.raises(ConfigError, match=rf"actor id {actor} is not allowed; use a number from 0 to "):
        backend.registry.register_actor(actor)
    assert backend.registry.register_actor(10**18 - 1) == 1


def test_only_what_was_handed_out_is_registered(backend):
    backend.registry.register_actor(0)
    backend.registry.register_actor(0)
    known = {(0, 1), (0, 2)}
    for producer in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (0, 10**18 - 1), (10**18 - 1, 1)]:
        assert backend.registry.is_registered(producer) == (producer in known)


def test_a_heartbeat_is_replaced_by_the_next(run):
    registry = run.backend.registry
    assert registry.roles() == []
    registry.beat(ACTOR)
    registry.beat(LEARNER)
    registry.beat(replace(ACTOR, id=10))
    newer = replace(ACTOR, beat=10, state="acting")
    registry.beat(newer)
    assert run.connect().registry.roles() == [newer, replace(ACTOR, id=10), LEARNER]


def test_a_retired_actor_is_forgotten_and_its_incarnations_are_not(backend):
    incarnation = backend.registry.register_actor(2)
    backend.registry.beat(ACTOR)
    backend.registry.forget("actor:2")
    backend.registry.forget("actor:3")
    assert backend.registry.roles() == []
    assert backend.registry.is_registered((2, incarnation))
    assert backend.registry.register_actor(2) == incarnation + 1


def test_an_evaluators_incarnations_are_its_own(backend):
    assert [backend.registry.register("evaluator") for _ in range(3)] == [1, 2, 3]
    assert backend.registry.register_actor(0) == 1
    assert not backend.registry.is_registered((0, 2))


def test_evaluations_are_read_from_where_one_stopped(run):
    registry = run.backend.registry
    assert registry.evaluations("0") == []
    early = Evaluation(7, 100_290, 20, 478.25, 12.5, 440.0, 500.0, 478.25, 1.5)
    late = replace(early, weights_version=9, env_steps=200_000, mean_return=-1.0)
    incarnation = registry.register("evaluator")
    assert registry.best_evaluation() is None
    registry.add_evaluation(early, b"seven", incarnation)
    registry.add_evaluation(late, b"nine", incarnation)
    (first, one), (second, two) = run.connect().registry.evaluations("0")
    assert (one, two) == (early, late)
    assert registry.evaluations(first) == [(second, late)]
    assert registry.evaluations(second) == []


def test_an_evaluation_has_its_results_in_other_environments_and_its_estimates(run):
    registry = run.backend.registry
    there = Evaluation(7, 100, 20, -3.0, 12.5, 440.0, 500.0, 478.25, 1.5, metrics={"x": None})
    estimates = (Estimate("fqe", 1e30, -1e30, 1e31), Estimate("wis", problem="no\x1b[2J"))
    own = replace(there, mean_return=5.0, others={"hard": there, "far": there}, mean_discounted_return=4.5)
    own = replace(own, estimates=estimates)
    registry.add_evaluation(own, b"seven", registry.register("evaluator"))
    ((_, found),) = run.connect().registry.evaluations("0")
    own = replace(own, estimates=(estimates[0], Estimate("wis", problem="no?[2J")))
    assert found == own
    assert registry.best_evaluation() == BestEvaluation(own, b"seven")
    assert registry.best_score() == 5.0


def test_the_weights_of_the_best_evaluation_are_kept(run):
    registry = run.backend.registry
    incarnation = registry.register("evaluator")
    told = [Evaluation(v, 10 * v, 20, value, 0.0, value, value, 1.0, 0.1) for v, value in enumerate((0.1, 0.3, 0.2))]
    for one in (*told, replace(told[1], weights_version=5)):  # as good is not better
        registry.add_evaluation(one, b"%d" % one.weights_version, incarnation)
    assert run.connect().registry.best_evaluation() == BestEvaluation(told[1], b"1")


def test_the_best_evaluation_may_be_judged_by_a_metric(run):
    registry = run.backend.registry
    incarnation = registry.register("evaluator")
    told = [
        Evaluation(v, 10 * v, 20, ret, 0.0, ret, ret, 1.0, 0.1, metrics={"goals": goals}, best_by="goals")
        for v, (ret, goals) in enumerate([(9.0, None), (1.0, 2.0), (7.0, 1.0), (0.0, 3.0), (8.0, 3.0)])
    ]
    registry.add_evaluation(told[0], b"0", incarnation)
    assert (registry.best_evaluation(), registry.best_score()) == (None, None)
    for one in told[1:]:
        registry.add_evaluation(one, b"%d" % one.weights_version, incarnation)
    assert run.connect().registry.best_evaluation() == BestEvaluation(told[3], b"3")
    assert registry.best_score() == 3.0


def test_an_evaluator_that_another_has_followed_tells_nothing(run):
    old, new = run.backend.registry, run.connect().registry
    first, second = old.register("evaluator"), new.register("evaluator")
    assert (first, second) == (1, 2)
    old.check_evaluator(second)
    with pytest.raises(FencedError, match=r"another evaluator has taken over \(incarnation 2, ours 1\)"):
        old.check_evaluator(first)
    told = Evaluation(7, 100, 20, 1.0, 0.0, 1.0, 1.0, 1.0, 0.1)
    with pytest.raises(FencedError, match=r"another evaluator has taken over \(incarnation 2, ours 1\)"):
        old.add_evaluation(told, b"", first)
    assert (old.evaluations("0"), old.best_evaluation(), old.evaluated_env_steps()) == ([], None, 0)
    new.add_evaluation(told, b"", second)
    assert [one for _, one in old.evaluations("0")] == [told]


def test_how_far_a_training_was_evaluated_outlives_a_launch(run):
    registry = run.backend.registry
    registry.restore_evaluated(250)
    assert run.connect().registry.evaluated_env_steps() == 250
    assert registry.best_score() is None
    registry.add_evaluation(Evaluation(1, 300, 1, 0.0, 0.0, 0.0, 0.0, 1.0, 0.1), b"", registry.register("evaluator"))
    assert registry.evaluated_env_steps() == 300
    assert registry.best_score() == 0.0
    registry.restore_evaluated(250, 0.25)  # a learner that starts again
    assert run.connect().registry.evaluated_env_steps() == 300
    assert run.connect().registry.best_score() == 0.25


def test_control_changes_what_is_given_and_leaves_the_rest(backend):
    registry = backend.registry
    assert registry.control() == Control(paused=False, stop=None, target_actors=None)
    registry.set_control()
    registry.set_control(target_actors=4)
    registry.set_control(paused=True)
    assert registry.control() == Control(paused=True, stop=None, target_actors=4)
    registry.set_control(paused=False, stop="asked by an operator")
    registry.set_control(target_actors=0)
    assert registry.control() == Control(paused=False, stop="asked by an operator", target_actors=0)
    registry.set_control(autoscale=True, min_actors=2, max_actors=8)
    registry.set_control(autoscale=False)
    control = registry.control()
    assert (control.autoscale, control.min_actors, control.max_actors) == (False, 2, 8)


def test_settings_change_one_by_one_and_keep_their_types(run):
    registry = run.backend.registry
    assert registry.control().settings == {}
    registry.set_control(settings={"network.learning_rate": 1e-3, "launch.log_level": "debug"})
    registry.set_control(settings={"network.learning_rate": 5e-4, "algorithm.max_staleness_updates": 3})
    registry.set_control(paused=True)
    control = run.connect().registry.control()
    assert control.paused
    assert control.settings == {
        "network.learning_rate": 5e-4,
        "launch.log_level": "debug",
        "algorithm.max_staleness_updates": 3,
    }
    assert type(control.settings["algorithm.max_staleness_updates"]) is int


def test_an_errand_is_pending_until_it_was_run_for_all_who_asked(run):
    registry, role = run.backend.registry, run.connect().registry
    assert (registry.control().checkpoint, registry.control().checkpoint.pending) == (Demand(0, 0), False)
    assert [registry.demand("checkpoint") for _ in range(3)] == [1, 2, 3]
    assert role.control().checkpoint == Demand(3, 0)
    assert role.control().evaluation == Demand(0, 0)
    role.fulfil("checkpoint", 2)  # the third came while it was being written
    assert registry.control().checkpoint == Demand(3, 2)
    assert registry.control().checkpoint.pending
    role.fulfil("checkpoint", 3)
    assert not registry.control().checkpoint.pending
    assert registry.demand("evaluation") == 1
    assert registry.control().evaluation == Demand(1, 0)


def test_requests_are_read_from_where_one_stopped(run):
    registry = run.backend.registry
    assert registry.requests("0") == []
    registry.add_request(Request("ada@host, command line", "pause"))
    registry.add_request(Request("Zoë, dashboard", "actors: 4"))
    (first, one), (second, two) = run.connect().registry.requests("0")
    assert (one, two) == (Request("ada@host, command line", "pause"), Request("Zoë, dashboard", "actors: 4"))
    assert registry.requests(first) == [(second, two)]
    assert registry.requests(second) == []


def test_snapshots_are_read_from_where_one_stopped(backend):
    registry = backend.registry
    assert registry.snapshots("0") == []
    registry.add_snapshot({"updates": 1, "mean_return": None, "bottleneck": "actors"})
    registry.add_snapshot({"updates": 2, "mean_return": 21.5})
    (first, one), (second, two) = registry.snapshots("0")
    assert one == {"updates": 1, "mean_return": None, "bottleneck": "actors"}
    assert two == {"updates": 2, "mean_return": 21.5}
    assert registry.snapshots(first) == [(second, two)]
    assert registry.snapshots(second) == []


def test_snapshots_are_capped(backend):
    for update in range(SNAPSHOTS + 150):
        backend.registry.add_snapshot({"updates": update})
    kept = [snapshot["updates"] for _id, snapshot in backend.registry.snapshots("0")]
    assert SNAPSHOTS <= len(kept) < SNAPSHOTS + 150  # Redis trims whole nodes of 100
    assert kept == list(range(SNAPSHOTS + 150 - len(kept), SNAPSHOTS + 150))


def heartbeat(**changes):
    return json.dumps({**asdict(ACTOR), **changes})


MACHINES = [
    {"machine": machine}
    for machine in (
        7,
        {"cores": 1},
        {**asdict(ACTOR.machine), "busy_share": 1e30},
        {**asdict(ACTOR.machine), "gpus": [{**asdict(ACTOR.machine.gpus[0]), "memory_mb": 1e30}]},
    )
]


@pytest.mark.redis
@pytest.mark.parametrize(
    ("field", "text"),
    [
        *[("actor:0", text) for text in ("", "{}", "[1]", '{"role": "cook", "id": 1}', '{"role": "actor"}', b"\xff")],
        ("actor:0", heartbeat()),  # of actor 2
        ("learner:5", heartbeat(role="learner", id=5)),
        *[
            ("actor:2", heartbeat(**odd))
            for odd in ({"rss_mb": 1e999}, {"pid": 10**30}, {"waits": {"a": float("nan")}}, *MACHINES)
        ],
        ("actor:-3", heartbeat(id=-3)),
    ],
)
def test_a_heartbeat_that_distrl_has_not_written_is_ignored_and_counted_once(redis_run, field, text):
    registry = redis_run.backend.registry
    registry.beat(LEARNER)
    with redis.Redis.from_url(redis_run.url) as client:
        client.hset(f"{redis_run.prefix}actors", field, text)
        assert [registry.roles() for _ in range(3)] == [[LEARNER]] * 3
        assert registry.ignored == {"a heartbeat": 1}
        registry.beat(replace(ACTOR, id=2))  # the role's own takes its place
        client.hset(f"{redis_run.prefix}actors", "nonsense", "x")
        registry.roles()
    assert registry.ignored == {"a heartbeat": 2}


def evaluated(**changes):
    """The text of an evaluation of which something is other than distrl writes it."""
    return json.dumps({**asdict(Evaluation(1, 1, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)), **changes})


STREAMS = {
    "metrics": ("snapshots", "numbers"),
    "evaluations": ("evaluations", "an evaluation"),
    "requests": ("requests", "a request"),
}


@pytest.mark.redis
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(
    "fields",
    [
        {"nothing": ""},
        {"json": "", "by": "ada"},
        {"json": b"\xff\xfe"},
        {"json": "[1, 2]"},
        {"json": "[" * 100_000},
        {"json": '{"weights_version": "new"}'},
        {"json": '{"updates": 1e999, "env_steps": 1.5}'},
        {"json": '{"updates": 1' + 30 * "0" + "}"},
        {"json": '{"bottleneck": 7}'},
        {"json": evaluated(others={"hard": "best"})},
        {"json": evaluated(others={"hard": json.loads(evaluated(mean_return=float("inf")))})},
        {"json": evaluated(others={"hard": json.loads(evaluated(metrics={"x": float("nan")}))})},
        {"json": evaluated(estimates=[{"estimator": "fqe", "value": float("nan")}])},
        {"json": 500 * '{"others": {"hard": ' + "1" + 500 * "}}"},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_an_entry_that_distrl_has_not_written_is_ignored_and_counted_once(redis_run, stream, fields):
    registry, (method, what) = redis_run.backend.registry, STREAMS[stream]
    read = getattr(registry, method)
    with redis.Redis.from_url(redis_run.url) as client:
        client.xadd(f"{redis_run.prefix}{stream}", fields)
    registry.add_snapshot({"updates": 1})
    registry.add_request(Request("ada", "pause"))
    registry.add_evaluation(Evaluation(1, 1, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0), b"", registry.register("evaluator"))
    for _ in range(3):
        ((_, _),) = read("0")  # what distrl has written
    assert registry.ignored == {what: 1}


@pytest.mark.redis
def test_a_number_that_is_none_leaves_its_snapshot_as_it_is(redis_run):
    """An algorithm's own numbers may be anything."""
    redis_run.backend.registry.add_snapshot({"updates": 1, "own": float("nan"), "loss": float("inf"), "kl": 1e300})
    ((_, found),) = redis_run.backend.registry.snapshots("0")
    assert found == {"updates": 1, "own": None, "loss": None, "kl": 1e300}


@pytest.mark.redis
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("target_actors", value) for value in ("-3", "many", "1.5", "1" + 30 * "0", b"\xff")],
        *[(name, "soon") for name in ("min_actors", "max_actors")],
        *[("checkpoint.asked", value) for value in ("-1", "soon")],
        *[("set network.learning_rate", value) for value in ("", "{}", "[1]", "1e999", b"\xff", "[" * 100_000)],
    ],
    ids=str,
)
def test_what_operators_cannot_have_asked_is_ignored_and_counted_once(redis_run, field, value):
    registry = redis_run.backend.registry
    registry.set_control(paused=True, stop="asked", settings={"seed": 1})
    with redis.Redis.from_url(redis_run.url) as client:
        client.hset(f"{redis_run.prefix}control", field, value)
    for _ in range(3):
        assert registry.control() == Control(paused=True, stop="asked", settings={"seed": 1})
    assert registry.ignored == {"what operators ask": 1}


@pytest.mark.redis
def test_words_of_another_program_reach_no_terminal_as_commands(redis_run, caplog):
    """Escape sequences and halves of characters; and no library prints a line of its own between those of a view."""
    registry, escape = redis_run.backend.registry, "\x1b[31m"
    with redis.Redis.from_url(redis_run.url) as client:
        forged = heartbeat(host=escape, state=escape, waits={escape: 1.0})
        client.hset(f"{redis_run.prefix}actors", mapping={"actor:2": forged, "nonsense": "x"})
        client.hset(f"{redis_run.prefix}control", "stop", escape)
        client.xadd(f"{redis_run.prefix}metrics", {"json": json.dumps({"bottleneck": escape, "\ud800": 1.0})})
    (status,), ((_, snapshot),) = registry.roles(), registry.snapshots("0")
    assert (status.host, status.state, status.waits) == ("?[31m", "?[31m", {"?[31m": 1.0})
    assert snapshot == {"bottleneck": "?[31m", "?": 1.0}
    assert registry.control().stop == "?[31m"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.redis
def test_a_best_evaluation_that_distrl_has_not_written_is_ignored(redis_run):
    registry = redis_run.backend.registry
    with redis.Redis.from_url(redis_run.url) as client:
        fields = {"json": "{}", "blob": b"w", "mean_return": "best", "env_steps": "x", "restored_env_steps": "-1"}
        client.hset(f"{redis_run.prefix}evaluated", mapping=fields)
    assert [registry.best_evaluation() for _ in range(2)] == [None, None]
    assert (registry.evaluated_env_steps(), registry.ignored) == (0, {"the best evaluation": 1})
    told = Evaluation(1, 10, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    registry.add_evaluation(told, b"w", registry.register("evaluator"))
    assert registry.best_evaluation() == BestEvaluation(told, b"w")


def test_heartbeats_are_dated_by_the_registrys_clock(backend):
    before = backend.registry.clock()
    backend.registry.beat(replace(ACTOR, at=5.0))
    (first,) = backend.registry.roles()
    between = backend.registry.clock()
    backend.registry.beat(ACTOR)
    (second,) = backend.registry.roles()
    assert before <= first.at <= between <= second.at <= backend.registry.clock()


def test_rates_and_shares_of_a_paused_run():
    paused = [replace(ACTOR, id=number, state="paused") for number in range(2)]
    waiting = replace(LEARNER, state="waiting: unrolls")
    still = {"env_steps_per_s": 0.0, "episodes_per_s": 0.0, "wire_bytes_per_s": 0.0}
    assert rates_while_paused([*paused, waiting]) == still | {"updates_per_s": 0.0, "learner_wait_share": 1.0}
    assert rates_while_paused([*paused, LEARNER]) == still  # it learns from a replay memory
    assert rates_while_paused([paused[0], ACTOR, waiting]) == rates_while_paused([LEARNER]) == {}


def test_shares_of_time_are_means_over_the_roles_of_a_kind():
    roles = [
        replace(LEARNER, waits={"unrolls": 0.25, "update": 0.5}),
        replace(ACTOR, waits={"paused": 1.0}),
        replace(ACTOR, id=3, waits={"paused": 0.5, "waiting: room": 0.25}),
        replace(ACTOR, id=4),
        replace(ACTOR, id=5),
    ]
    assert time_shares(roles) == {
        "learner": {"unrolls": 0.25, "update": 0.5},
        "actor": {"paused": 0.375, "waiting: room": 0.0625},
    }
    assert time_shares([]) == {}


def test_producers_that_redis_has_forgotten_are_registered_again(backend):
    registry = backend.registry
    registry.register_actor(0)
    replica = replica_of(backend)
    registry.register_actor(0)
    registry.register_actor(1)
    promote(replica, [backend])
    registry.keep_registered([(0, 2), (1, 1), (0, 1)])
    registry.keep_registered([(0, 2), (1, 1), (0, 1)])
    assert registry.is_registered((0, 2))
    assert (registry.register_actor(0), registry.register_actor(1)) == (3, 2)
    registry.keep_registered([])


def test_an_evaluator_that_redis_has_forgotten_stays_the_evaluator(backend):
    registry, replica = backend.registry, replica_of(backend)
    incarnation = registry.register("evaluator")
    promote(replica, [backend])
    registry.check_evaluator(incarnation)
    registry.add_evaluation(Evaluation(1, 1, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0), b"w", incarnation)
    assert registry.register("evaluator") == incarnation + 1
    with pytest.raises(FencedError):
        registry.check_evaluator(incarnation)


def test_the_supervisor_is_no_role_and_its_heartbeat_is_dated(backend):
    assert backend.registry.supervisor() is None
    before = backend.registry.clock()
    status = SupervisorStatus("host", 42, 7, 2, True, 3, "the learner waits")
    backend.registry.beat_supervisor(replace(status, wanted_because="the \x1blearner waits"))
    found = backend.registry.supervisor()
    assert found == replace(status, wanted_because="the ?learner waits")
    assert before <= found.at <= backend.registry.clock()
    assert (backend.registry.roles(), backend.registry.ignored.total()) == ([], 0)


FORGED = '{"host": "h", "pid": 1, "beat": 1, "actors_wanted": 1e30}'


@pytest.mark.parametrize(
    "text", ["", "{", '{"host": "h", "pid": 1}', '{"host": "h", "pid": 1e30, "beat": 1}', "[]", FORGED]
)
def test_a_forged_heartbeat_of_the_supervisor_is_counted_and_not_believed(backend, text):
    backend.engine.call("HSET", backend._run.keys.actors, "supervisor", text)
    assert [backend.registry.supervisor(), backend.registry.supervisor()] == [None, None]
    assert backend.registry.ignored == {"the supervisor's heartbeat": 1}
