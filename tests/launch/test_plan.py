"""The plan is data: one learner and as many actors as configured."""

import os

from distrl.config import RunConfig
from distrl.launch.plan import Role, make_plan, oversubscription_warning


def config(actors: int, threads: int = 1) -> RunConfig:
    return RunConfig.model_validate({"actors": {"count": actors}, "learner": {"threads": threads}})


def test_roles_and_their_names():
    assert [role.name for role in make_plan(config(2))] == ["learner", "actor 0", "actor 1"]
    assert Role("actor", 3).log_name == "actor-3.log"


def test_only_too_many_roles_are_worth_a_warning(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert oversubscription_warning(config(2)) is None
    warning = oversubscription_warning(config(7, threads=2))
    assert warning is not None
    assert warning.startswith("9 numeric roles on 2 cores (learner.threads 2 + actors.count 7)")
    assert "\n" not in warning
