import inspect

import pytest

from distrl import errors
from distrl.errors import DistrlError, MissingExtraError, RejectedError, require


def tree() -> list[type[DistrlError]]:
    return [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, DistrlError)]


@pytest.mark.parametrize(
    ("name", "exit_code"),
    [
        ("DistrlError", 1),
        ("ConfigError", 2),
        ("MissingExtraError", 2),
        ("CheckpointError", 2),
        ("EnvironmentFailedError", 3),
        ("StalledError", 4),
        ("NonFiniteError", 5),
        ("MemoryBackendError", 6),
        ("FencedError", 6),
        ("RejectedError", 1),
        ("DecodeError", 1),
        ("SchemaError", 1),
        ("NonFiniteUnrollError", 1),
        ("PoisonError", 1),
    ],
)
def test_exit_codes(name, exit_code):
    assert getattr(errors, name).exit_code == exit_code


def test_the_drawing_in_the_docstring_is_the_tree():
    for kind in tree():
        line = next(line for line in errors.__doc__.splitlines() if f" {kind.__name__} " in f" {line} ")
        depth = len(kind.__mro__) - len(DistrlError.__mro__)
        assert (len(line) - len(line.lstrip(" │├└─"))) == 4 * depth, kind


def test_every_rejection_has_a_reason_of_its_own():
    reasons = {kind.__name__: kind.reason for kind in tree() if issubclass(kind, RejectedError)}
    assert reasons == {
        "RejectedError": "schema",
        "DecodeError": "decode",
        "SchemaError": "schema",
        "NonFiniteUnrollError": "nonfinite",
        "PoisonError": "poison",
    }


def test_a_missing_extra_is_named_with_the_command_that_installs_it():
    with pytest.raises(MissingExtraError) as raised:
        require("no_such_module_anywhere", "Ray", "ray")
    assert str(raised.value) == "Ray is not installed: pip install 'distrl[ray]'"
    assert require("json", "JSON", "cpu") is None
