"""The run as data: what the supervisor writes is what every role reads."""

import pytest
from pydantic import ValidationError

from distrl.config import RunConfig
from distrl.roles.description import LaunchedRun, RunAddress, RunDescription
from distrl.roles.plan import Role
from distrl.roles.trust import Trust
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec("X", {"a": ArraySpec((4,), "float32", -1.0, 1.0)}, {"action": DiscreteSpec(3, start=-1)}, 475.0, 500)


def test_nothing_is_lost_on_the_way_through_json():
    config = RunConfig.model_validate({"seed": 7, "environment": {"id": "X", "kwargs": {"deep": [1, {"x": None}]}}})
    description = RunDescription(run_id="r", run_dir="/runs/r", config=config, spec=SPEC)
    assert RunDescription.model_validate_json(description.model_dump_json()) == description


def test_a_field_of_another_version_is_refused():
    text = RunDescription(run_id="r", run_dir="/r", config=RunConfig(), spec=SPEC).model_dump_json()
    with pytest.raises(ValidationError, match="surprise"):
        RunDescription.model_validate_json(text.replace('{"run_id"', '{"surprise":1,"run_id"', 1))


def run(**sections):
    config = RunConfig.model_validate(sections)
    description = RunDescription(run_id="r", run_dir="/x", config=config, spec=SPEC)
    return LaunchedRun(RunAddress("unix:///x", "r", Trust()), description)


@pytest.mark.parametrize(
    ("url", "given", "patience_s"), [(None, None, 5.0), ("redis://h", None, 60.0), (None, 3.0, 3.0)]
)
def test_only_a_redis_that_can_come_back_is_waited_for(monkeypatch, url, given, patience_s):
    opened = {}
    monkeypatch.setattr("distrl.roles.description.connect", lambda *_, **options: opened.update(options))
    opened_for = run(memory={"url": url})
    opened_for.open_backend("actor 1", give_up_s=given)
    assert opened == {"launch": opened_for.description.launch, "name": "actor 1", "give_up_s": patience_s}


@pytest.mark.parametrize("devices", [None, "", "0,2", "GPU-8f2a/1:0"])
def test_environments_see_the_gpus_that_the_user_lets_them_see(devices):
    home = run(learner={"threads": 3}, environment={"devices": devices})
    found = {role.kind: home.variables(role) for role in (Role("learner"), Role("actor"), Role("evaluator"))}
    assert {kind: one.get("CUDA_VISIBLE_DEVICES") for kind, one in found.items()} == {
        "learner": None,
        "actor": devices,
        "evaluator": devices,
    }
    assert {kind: one["OMP_NUM_THREADS"] for kind, one in found.items()} == {
        "learner": "3",
        "actor": "1",
        "evaluator": "1",
    }
