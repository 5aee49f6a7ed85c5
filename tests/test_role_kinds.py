"""The table of kinds of roles, and what is made of it."""

from importlib import import_module

import pytest

from distrl.apps.commands.main import main
from distrl.role_kinds import KINDS, TABLE, role_name
from distrl.roles.join import JoinedRole


def test_the_learner_comes_first_and_kinds_of_which_there_may_be_several_have_numbers():
    assert [*KINDS] == ["learner", "actor", "inference", "evaluator"]
    assert [role_name(kind, 0) for kind in KINDS] == ["learner", "actor 0", "inference 0", "evaluator"]


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.name)
def test_every_kind_has_a_class_and_a_command(kind, capsys):
    module, _, name = kind.entry.partition(":")
    assert issubclass(getattr(import_module(module), name), JoinedRole)
    assert main([kind.name, "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"Usage: distrl {kind.name} " in told
    assert kind.summary in told.replace(" │ ", " ")
    assert ("--id" in told, "--allow" in told) == (kind.numbered, not kind.needs_key)
