"""Drafts of configurations: what a preset and a run give, and the one line and its number that a mistake gets."""

import pytest

from distrl.apps.config.configuration import load, load_text
from distrl.apps.dashboard import drafts
from distrl.config.presets import preset_names
from distrl.config.settings import leaves_in

VALID = "environment:\n  id: CartPole-v1\nactors:\n  count: 3\n"


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_gives_its_own_configuration(name):
    assert load_text(drafts.of_preset(name), "x").config == load(name).config
    assert drafts.problem(drafts.of_preset(name)) is None


def test_a_run_gives_only_its_given_settings_with_secrets_masked():
    from distrl.config.load import dump

    loaded = load("cartpole-impala", sets=["actors.count=3", "environment.kwargs={api_key: s3cret, level: 2}"])
    text = drafts.of_run(leaves_in(dump(loaded), "x"))
    assert "s3cret" not in text
    assert drafts.problem(text) == drafts.Problem(
        "environment.kwargs.api_key is masked; write the value in place of •••, or remove the line",
        1 + text.splitlines().index("    api_key: •••"),
    )
    mended = load_text(text.replace("•••", "s3cret"), "x")
    assert mended.config == loaded.config
    assert text.count("\n") < 60


def test_a_key_with_a_dot_stays_one_key():
    from distrl.config.load import dump

    environment = {"kwargs": {"a.b": {"c.d": 1, "": 2}, "a": {"b": 3}}, "metrics": {"sensor/heat": "mean"}}
    loaded = load({"environment": {"id": "CartPole-v1", **environment}})
    text = drafts.of_run(leaves_in(dump(loaded), "x"))
    assert load_text(text, "x").config == loaded.config


@pytest.mark.parametrize(
    "text",
    [
        "a: &a {x: *a, x.x: *a}\n",
        "\n".join(["a: &a [1, 1, 1]", *(f"k{n}: &k{n} [{', '.join(['*a'] * 9)}]" for n in range(9)), "seed: x"]),
        f"? {'a.' * 7000}b\n: 1\n",
        f"a: {'[' * 7000}\n",
    ],
    ids=["recursive", "aliases", "a long path", "deep"],
)
def test_a_draft_that_multiplies_itself_is_one_line_at_once(text):
    found = drafts.problem(text)
    assert found is not None
    assert "\n" not in found.text


def test_marks_that_hide_text_are_shown_as_escapes_in_a_clone():
    text = 'environment:\n  id: CartPole-v1\n  kwargs: {a: "\\u202eb\\u200b"}\n'
    cloned = drafts.of_run(leaves_in(text, "x"))
    assert cloned.replace("\n", "").isprintable()
    assert load_text(cloned, "x").config == load_text(text, "x").config


def test_a_valid_draft_has_a_summary():
    assert drafts.problem(VALID) is None
    assert drafts.summary(VALID) == {"env": "CartPole-v1", "algorithm": "impala", "actors": 3}


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("a: [1\nb: 2\n", 2, "the editor is not valid YAML: "),
        ("actors:\n  count: 1\n  count: 2\n", 3, "the editor is not valid YAML: the key 'count' is there twice"),
        (f"{VALID}network:\n  learning_rate: -1\n", 6, "network.learning_rate: -1 (from the editor) must be greater"),
        (
            f"{VALID}network:\n  lerning_rate: 1\n",
            6,
            "unknown key network.lerning_rate (from the editor); did you mean",
        ),
        (f"{VALID}algorithm:\n  name: impla\n", 5, "unknown algorithm 'impla'"),
        ("actors: 3\n", 1, "actors"),
        ("- 3\n", None, "the editor must hold a mapping"),
        ("", None, "environment.id is missing; name an environment, like CartPole-v1"),
        ("\x00", None, "the editor is not valid YAML"),
    ],
)
def test_a_mistake_is_one_line_with_its_number(text, line, told):
    found = drafts.problem(text)
    assert found is not None
    assert (found.line, found.text[: len(told)]) == (line, told)
    assert "\n" not in found.text


def test_a_class_is_not_imported_by_the_check(tmp_path, monkeypatch):
    (tmp_path / "evil_module_of_a_draft.py").write_text("raise SystemExit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert drafts.problem("environment:\n  id: evil_module_of_a_draft:Class\n") is None


@pytest.mark.parametrize(
    "name",
    ["", "../x", "a/b", ".hidden", "-x", "a b", "a\n", "ä", "x" * 81, ".", "..", "a\u202eb", "a\x1b", "a\0", "ａ"],
)
def test_a_name_is_one_part_of_a_path(tmp_path, name):
    found = drafts.name_problem(tmp_path, name)
    assert found is not None
    assert found.text.startswith("a name has 1 to 80 letters")


def test_a_name_that_is_taken_and_a_folder_that_is_none(tmp_path):
    assert drafts.name_problem(tmp_path, "first-1.b_c") is None
    assert "are not listed" in drafts.name_problem(tmp_path, "set-aside").text
    (tmp_path / "first").mkdir()
    assert drafts.name_problem(tmp_path, "first") == ("first is there already; choose another name", None)
    assert "shows no folder of runs" in drafts.name_problem(tmp_path / "none", "a").text
    (tmp_path / "run.json").touch()
    assert "shows no folder of runs" in drafts.name_problem(tmp_path, "a").text
