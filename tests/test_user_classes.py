import sys

import pytest

from distrl import user_classes
from distrl.errors import ConfigError
from distrl.user_classes import command_line, hide_arguments, own_class

BROKEN = "thing found_here:Mine: module 'found_here' cannot be imported:"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the working directory, which is not on sys.path, as under a console script."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])

    def write(text, name="found_here"):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    yield write
    sys.modules.pop("found_here", None)


def test_a_class_in_the_working_directory_is_found_and_shadows_nothing(module, tmp_path):
    module("raise RuntimeError('shadows the standard library')", name="fractions")
    sys.modules.pop("fractions", None)
    assert own_class("fractions:Fraction", "number").__module__ == "fractions"
    assert own_class(f"{module('class Mine: ...')}:Mine", "thing").__name__ == "Mine"
    assert sys.path[-1] == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        ("class Mine: ...", "Mein", "thing found_here:Mein: module 'found_here' has no attribute 'Mein'; did you mean"),
        ("number = 3", "Mine", "thing found_here:Mine: module 'found_here' has no attribute 'Mine'"),
        ("1 / 0", "Mine", f"{BROKEN} ZeroDivisionError: division by zero"),
        ("import no_such_module", "Mine", f"{BROKEN} ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_what_is_not_there_is_one_line(module, text, name, line):
    with pytest.raises(ConfigError) as caught:
        own_class(f"{module(text)}:{name}", "thing")
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_a_module_that_does_not_exist_has_no_traceback_to_show_and_one_that_fails_has(module):
    with pytest.raises(ConfigError, match=r"^thing nowhere\.at_all:Mine: .*: No module named 'nowhere'$") as missing:
        own_class("nowhere.at_all:Mine", "thing")
    assert missing.value.__cause__ is None
    with pytest.raises(ConfigError) as failing:
        own_class(f"{module('import no_such_module')}:Mine", "thing")
    assert isinstance(failing.value.__cause__, ModuleNotFoundError)


def test_arguments_of_a_command_are_hidden_from_code_of_the_users(monkeypatch):
    assert command_line() == sys.argv
    given = ["distrl", "train", "--env", "X"]
    monkeypatch.setattr(sys, "argv", given)
    monkeypatch.setattr(user_classes, "_command", [])
    assert hide_arguments() == ["train", "--env", "X"]
    assert (sys.argv, command_line(), given) == (["distrl"], given, given)
