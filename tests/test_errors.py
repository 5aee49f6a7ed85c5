import inspect
from importlib.metadata import PathDistribution as Distribution
from pathlib import Path

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
        ("RunKeyError", 2),
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
        depth = sum(issubclass(above, DistrlError) for above in kind.__mro__) - 1
        assert (len(line) - len(line.lstrip(" │├└─"))) == 4 * (depth + 1), kind  # the drawing is indented


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
    assert str(raised.value) == f"Ray is not installed: {errors.how_to_install('ray')}"
    assert require("json", "JSON", "cpu") is None


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ('{"url": "file:///home/me/my%20wheels/distrl-0.1.0-py3-none-any.whl", "archive_info": {}}', None),
        ('{"url": "https://host/distrl.whl"}', "pip install 'https://host/distrl.whl[atari]'"),
        (None, "pip install 'distrl[atari]'"),
    ],
)
def test_an_extra_is_installed_from_where_distrl_came(monkeypatch, tmp_path, origin, command):
    """distrl is on no index for those who have a checkout or a wheel."""
    assert errors.how_to_install("atari") == f"pip install '{Path(errors.__file__).parent.parent}[atari]'"
    assert errors.how_to_install() == f"pip install {Path(errors.__file__).parent.parent}"
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "distrl" / "errors.py"))
    monkeypatch.setattr(Distribution, "read_text", lambda self, name: origin)
    expected = command or "pip install '/home/me/my wheels/distrl-0.1.0-py3-none-any.whl[atari]'"
    assert errors.how_to_install("atari") == expected


def test_a_text_without_end_is_cut_in_the_middle():
    assert errors.bounded("x" * 2000) == "x" * 2000
    text = errors.bounded("a" * 3_000_000 + "b" * 3_000_000)
    assert text == f"{'a' * 1000} … 5,998,000 characters … {'b' * 1000}"
    assert errors.failure(ValueError("y" * 5_000_000))[1].startswith("unexpected ValueError: yyy")
    assert len(errors.failure(DistrlError("y" * 5_000_000))[1]) < 2100
