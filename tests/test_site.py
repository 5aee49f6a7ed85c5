"""The pages of the documentation's site; `make site` builds it, and then checks every link and anchor."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

import distrl

ROOT = Path(__file__).resolve().parent.parent
NAMES = re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs/pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def definition(name):
    """The parsed module, class or function of a dotted name, followed through imports; LookupError: there is none."""
    path = ROOT / name.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return ast.parse(file.read_text())
    parent, _, last = name.rpartition(".")
    if parent:
        for node in ast.walk(definition(parent)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == last:
                return node
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if (alias.asname or alias.name) == last:
                    return definition(f"{node.module}.{alias.name}")
    raise LookupError(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_api_page_shows_exists_and_has_a_docstring(name):
    assert ast.get_docstring(definition(name))


def test_a_name_that_does_not_exist_is_noticed():
    with pytest.raises(LookupError, match=r"distrl\.trian"):
        definition("distrl.trian")


def test_the_api_page_shows_all_that_distrl_exports():
    assert {f"distrl.{name}" for name in distrl.__all__} - {"distrl.__version__"} <= {*NAMES}


def test_links_lead_to_the_places_of_the_site(pages):
    text = (
        "[a](docs/runs.md#metrics), [b](examples/own_network.py), [c](LICENSE), [d](#here), [e](https://x.org/y)\n"
        '<img src="docs/images/train.svg">\n```bash norun: why\n[f](nowhere)\n```\n'
    )
    linked = set()
    assert pages.relinked(text, ROOT / "README.md", linked) == (
        "[a](runs.md#metrics), [b](examples/own_network.md), [c](license.txt), [d](#here), [e](https://x.org/y)\n"
        '<img src="images/train.svg">\n```bash\n[f](nowhere)\n```\n'
    )
    assert {file.name for file in linked} == {"runs.md", "own_network.py", "LICENSE", "train.svg"}
    back = pages.relinked("[a](../README.md)", ROOT / "examples/steering.ipynb", set())
    assert back == "[a](../index.md)"


@pytest.mark.parametrize("path", ["nowhere.md", "docs", "../outside.md"])
def test_a_link_that_leads_to_no_file_of_the_repository_is_an_error(pages, path):
    with pytest.raises(ValueError, match=rf"README\.md: {re.escape(path)} is no file of the repository"):
        pages.relinked(f"[a]({path})", ROOT / "README.md", set())


def test_a_notebook_becomes_a_page(pages):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text."]},
        {"cell_type": "code", "source": ["a = 1\n", "a"]},
    ]
    assert pages.page_of_notebook(json.dumps({"cells": cells})) == "# Title\nText.\n\n```python\na = 1\na\n```\n"


def test_pages_and_what_they_link_to_are_written(pages, tmp_path):
    (tmp_path / "old.md").touch()
    pages.write(tmp_path)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"index.md", "contributing.md", "site.css", "images/train.svg", "license.txt"} <= written
    assert {f"examples/{file.stem}.md" for file in (ROOT / "examples").iterdir() if file.is_file()} <= written
    for name, line in {
        "settings.md": "| `discount` |",
        "capabilities.md": "| A01 | With `network.force_cpu`",
        "modules.md": "- `actor.py`: The actor's loop",
        "comparisons.md": "SB3 SAC.train()",
    }.items():
        assert line in (tmp_path / name).read_text()
    assert not any(name == "old.md" or name.endswith(".py") for name in written)


def test_each_example_is_among_the_pages_of_the_site():
    """A page that is in no list ends the strict build, which comes after the suite."""
    listed = {*re.findall(r": examples/(\S+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)}
    examples = ROOT / "examples"
    pages = (path for path in examples.rglob("*") if path.suffix in (".py", ".ipynb"))
    assert listed == {path.relative_to(examples).with_suffix("").as_posix() for path in pages}
