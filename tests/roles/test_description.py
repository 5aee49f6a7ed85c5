"""The run as data: what the supervisor writes is what every role reads."""

import pytest
from pydantic import ValidationError

from distrl.config import RunConfig
from distrl.roles.description import RunDescription
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
