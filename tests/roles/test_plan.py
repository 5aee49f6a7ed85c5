"""The plan is data: one learner, as many actors as configured, an evaluator if it is."""

import os
from dataclasses import replace

import pytest

from distrl.config import RunConfig
from distrl.config.evaluation import EvaluationConfig
from distrl.config.load import load
from distrl.config.replay import ReplayParameters
from distrl.errors import ConfigError
from distrl.learner.replay_set_up import unroll_schema
from distrl.roles.plan import (
    Role,
    RoleNeed,
    check_queue,
    most_actors,
    oversubscription_warning,
    publication_note,
    replay_note,
    role_needs,
    roles_beside_actors,
)
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec


def config(actors: int, threads: int = 1) -> RunConfig:
    return RunConfig.model_validate({"actors": {"count": actors}, "learner": {"threads": threads}})


def test_roles_and_their_names():
    assert [role.name for role in roles_beside_actors(config(2))] == ["learner"]
    assert Role("actor", 3).name == "actor 3"
    assert Role("actor", 3).log_name == "actor-3.log"
    evaluating = RunConfig.model_validate({"actors": {"count": 1}, "evaluation": {"every_env_steps": 1000}})
    assert [role.name for role in roles_beside_actors(evaluating)] == ["learner", "evaluator"]
    assert Role("evaluator").log_name == "evaluator.log"


def test_a_host_without_the_environment_starts_neither_actors_nor_an_evaluator():
    launch = {"launch": {"start_actors": False}, "memory": {"url": "redis://h"}, "actors": {"count": 100}}
    evaluation = {"evaluation": {"every_env_steps": 1000}}
    joined = RunConfig.model_validate({**launch, **evaluation})
    assert joined.started_actors == 0
    assert oversubscription_warning(joined) is None
    assert [role.kind for role in roles_beside_actors(joined)] == ["learner", "evaluator"]
    without = RunConfig.model_validate({**launch, **evaluation, "environment": {"spec_file": "spec.json"}})
    assert [role.kind for role in roles_beside_actors(without)] == ["learner"]


@pytest.mark.parametrize(
    ("sets", "needs"),
    [
        ([], [RoleNeed("learner", 1, 1), RoleNeed("actor", 2, 1)]),
        (["actors.count=0"], [RoleNeed("learner", 1, 1)]),
        (
            ["learner.threads=4", "learner.device=gpu", "actors.count=32", "evaluation.every_env_steps=1000"],
            [RoleNeed("learner", 1, 4, 1), RoleNeed("actor", 32, 1), RoleNeed("evaluator", 1, 1)],
        ),
        # The server computes while its actors wait, with their cores, wherever they are.
        (["actors.inference=host"], [RoleNeed("learner", 1, 1), RoleNeed("actor", 2, 1)]),
        (
            ["launch.start_actors=false", "memory.url=redis://box:6379"],
            [RoleNeed("learner", 1, 1)],
        ),
        (
            [
                "learner.device=gpu",
                "learner.backend=jax",
                "learner.replicas=2",
                "algorithm.minibatches=1",
                "actors.environments=2",
            ],
            [RoleNeed("learner", 1, 1, 2), RoleNeed("actor", 2, 1)],
        ),
    ],
)
def test_the_needs_follow_from_the_configuration(sets, needs):
    assert role_needs(load("cartpole-impala", sets=sets).config) == needs


@pytest.mark.parametrize(
    ("sections", "most"),
    [
        ({}, 12),
        ({"actors": {"count": 20}}, 20),
        ({"actors": {"count": 2, "max_count": 2}}, 2),
        ({"actors": {"max_count": 500}}, 500),
        ({"actors": {"max_count": 500}, "launch": {"start_actors": False}, "memory": {"url": "redis://h"}}, 0),
        ({"launch": {"launcher": "ray"}}, 12),  # its private cluster is this machine
        ({"launch": {"launcher": "ray", "ray_address": "10.0.0.1:6380"}}, 1000),
    ],
)
def test_most_actors(monkeypatch, sections, most):
    monkeypatch.setattr("distrl.roles.plan.cores", lambda: 3)
    assert most_actors(RunConfig.model_validate(sections)) == most


def test_more_actors_than_the_most_are_refused():
    with pytest.raises(ValueError, match=r"actors.count: 3 is more than actors.max_count: 2; set one of them"):
        RunConfig.model_validate({"actors": {"count": 3, "max_count": 2}})


def test_only_too_many_roles_are_worth_a_warning(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert oversubscription_warning(config(2)) is None
    warning = oversubscription_warning(config(7, threads=2))
    assert warning is not None
    assert warning.startswith("9 numeric roles on 2 cores (learner.threads 2 + actors.count 7)")
    assert "\n" not in warning
    evaluating = config(2).model_copy(update={"evaluation": EvaluationConfig(every_env_steps=1000)})
    assert oversubscription_warning(evaluating).startswith(
        "4 numeric roles on 2 cores (learner.threads 1 + actors.count 2 + the evaluator)"
    )
    inline = config(0, threads=3).model_copy(update={"evaluation": EvaluationConfig(every_env_steps=1000)})
    assert oversubscription_warning(inline) is None  # between updates


TOY = EnvSpec("Toy", {"observation": ArraySpec((1,), "float32")}, {"action": DiscreteSpec(2)})


def test_what_the_replay_memory_takes_is_refused_only_where_the_learner_will_be(monkeypatch):
    """Ten million steps of one float, one choice and 24 bytes besides: 24 each, and a row of observations more."""
    assert replay_note(config(2), TOY) is None
    given = config(2)

    class WithReplay(type(given.algorithm)):
        replay: ReplayParameters = ReplayParameters(capacity_steps=2048 * 5000)

    given = given.model_copy(update={"algorithm": WithReplay()})
    assert replay_note(given, TOY) == "replay: 10,240,000 steps, 247.2 MB"  # 5,000 x (33 x 64 x 4 + 2,048 x 20 + 24)
    monkeypatch.setattr("distrl.learner.replay_set_up.available_bytes", lambda: 1000)
    with pytest.raises(ConfigError, match=r"lower algorithm\.replay\.capacity_steps: 10240000"):
        replay_note(given, TOY)
    on_ray = given.model_copy(update={"launch": given.launch.model_copy(update={"launcher": "ray"})})
    assert replay_note(on_ray, TOY) == "replay: 10,240,000 steps, 247.2 MB"


def test_a_batch_that_does_not_fit_beside_the_replay_memory_is_refused_and_a_late_one_told_of(monkeypatch):
    """A transition of Toy is 2 x 4 + 15 bytes; by default there are 8 samples per insert after 1,000 steps."""
    tree = {"algorithm": {"name": "dqn"}, "actors": {"count": 1, "environments": 1, "unroll_length_steps": 100}}
    monkeypatch.setattr("distrl.learner.replay_set_up.available_bytes", lambda: 10**9)

    def note(batch_size):
        return replay_note(RunConfig.model_validate({**tree, "learner": {"batch_size": batch_size}}), TOY)

    assert note(792_000) == "replay: 100,000 steps, 2.4 MB"
    assert note(800_000) == (
        "replay: 100,000 steps, 2.4 MB; the first update needs 101,000 steps: batches of 800,000 by samples_per_insert"
    )
    with pytest.raises(
        ConfigError, match=r"^a batch takes 2\.3 GB beside .* 1\.0 GB; lower learner\.batch_size: 100000000$"
    ):
        note(100_000_000)


def test_weights_that_are_published_rarely_are_told_of():
    """One update per step by default: 64 x 32 of them for each unroll."""

    def note(algorithm="sac", **tree):
        return publication_note(RunConfig.model_validate({"algorithm": {"name": algorithm}, **tree}), TOY)

    assert note() == (
        "weights are published once per unroll of 2,048 steps, every 2,048 updates; for newer ones in actors lower "
        "actors.environments: 64, actors.unroll_length_steps: 32 or memory.queue_batches: 2"
    )
    assert note(actors={"environments": 31, "unroll_length_steps": 32}) is None  # 992
    assert note(learner={"batch_size": 512}) is not None
    assert note(learner={"batch_size": 525}) is None  # 256 x 2,048 / 525 = 998.6
    assert note("apex") is note("impala") is None  # the one publishes at once, the other after each update


def test_an_unroll_has_the_rows_that_the_environment_states():
    """Three agents in each of 10 environments are 30 rows of 32 steps."""
    tree = {"algorithm": {"name": "sac"}, "actors": {"environments": 10, "unroll_length_steps": 32}}
    agents = replace(TOY, rows=3)
    assert publication_note(RunConfig.model_validate(tree), agents) is None  # 960
    note = publication_note(RunConfig.model_validate({**tree, "actors": {"environments": 11}}), agents)
    assert note.startswith("weights are published once per unroll of 1,056 steps, every 1,056 updates")
    tree["algorithm"]["replay"] = {"capacity_steps": 960, "min_size_steps": 320}
    tree["actors"]["count"] = 2
    given = RunConfig.model_validate(tree)
    assert replay_note(given, TOY).startswith("replay: 960 steps")
    with pytest.raises(
        ConfigError, match=r"Toy has 3 rows in each environment: .*capacity_steps: 960 is less than .*1920 steps"
    ):
        replay_note(given, agents)


SPEC = EnvSpec("X", {"pixels": ArraySpec((10, 10, 4), "uint8", frames=4)}, {"action": DiscreteSpec(2)})


def queueing(queue_bytes, batch_size, **sections):
    tree = {"memory": {"queue_bytes": queue_bytes}, "learner": {"batch_size": batch_size}}
    return RunConfig.model_validate({**tree, "actors": {"environments": 2, "unroll_length_steps": 320}, **sections})


def test_bytes_of_an_unroll():
    # 324 frames of 100 bytes; actions of 4, rewards and log-probabilities of 4, three flags of 1
    schema = unroll_schema(queueing(65536, 1), SPEC, {})
    assert schema.least_bytes == 2 * 324 * 100 + 640 * (4 + 4 + 4 + 3) == 74_400


@pytest.mark.parametrize(("queue_bytes", "batch_size"), [(65536, 1), (74_401, 2), (2 * 74_400 + 1, 3)])
def test_a_queue_that_a_batch_fits_into(queue_bytes, batch_size):
    """An actor may start the last unroll while there is a byte of room."""
    check_queue(queueing(queue_bytes, batch_size), SPEC)


@pytest.mark.parametrize(("queue_bytes", "batch_size"), [(74_400, 2), (65536, 4)])
def test_a_queue_that_would_never_hold_a_batch_is_refused_with_what_it_takes(queue_bytes, batch_size):
    with pytest.raises(
        ConfigError, match=f"memory.queue_bytes {queue_bytes:,} .* at least {batch_size * 2 * 74_400:,}"
    ):
        check_queue(queueing(queue_bytes, batch_size), SPEC)


@pytest.mark.parametrize("sections", [{"algorithm": {"name": "a3c"}}, {"actors": {"count": 0, "environments": 640}}])
def test_gradients_and_one_process_are_let_alone(sections):
    check_queue(queueing(65536, 4, **sections), SPEC)
