"""Further environments of evaluations: as many as of the training's, alike in their spaces, and closed."""

from contextlib import ExitStack

import pytest

from distrl.actors.other_environments import make_others
from distrl.config import RunConfig
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError

TOY = "distrl.environments.worlds.toy"


def config(**others):
    evaluation = {"every_env_steps": 9, "episodes": 3, "other_environments": others}
    return RunConfig.model_validate({"environment": {"id": f"{TOY}:StepCounter"}, "evaluation": evaluation})


def test_there_are_as_many_and_they_are_closed(monkeypatch):
    closed = []
    monkeypatch.setattr(VectorEnvironment, "close", lambda self: closed.append(self))
    tree = config(short={"kwargs": {"terminate_at_steps": 3}}, long={"kwargs": {"terminate_at_steps": 9}})
    spec = VectorEnvironment(tree.environment, 1).spec
    with ExitStack() as cleanup:
        made = make_others(tree, spec, VectorEnvironment, cleanup)
        assert [(name, one.rows) for name, one in made.items()] == [("short", 3), ("long", 3)]
        assert closed == []
    assert closed == [made["long"], made["short"]]


def test_other_spaces_are_refused():
    tree = config(choices={"id": f"{TOY}:Bandit"})
    spec = VectorEnvironment(tree.environment, 1).spec
    with ExitStack() as cleanup, pytest.raises(ConfigError) as caught:
        make_others(tree, spec, VectorEnvironment, cleanup)
    assert str(caught.value) == (
        f"evaluation.other_environments.choices: {TOY}:Bandit does not fit the policy: its observation 'observation' "
        "has high 0.0, that of the training has high None; both must have the same observations and actions "
        "after environment.preprocessing"
    )
