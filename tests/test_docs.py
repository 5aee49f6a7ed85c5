"""The documentation is run. Conventions for fenced blocks in README.md, CONTRIBUTING.md and docs/:

```bash                  runs, in an empty directory, with `distrl` on PATH; every line must succeed
```python                runs likewise, in this process
```bash norun: reason    does not run; the reason says what does, or why nothing can
```text, yaml, json …    nothing to run
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner

from distrl.apps.commands.main import app
from distrl.apps.config.configuration import Configuration, load
from distrl.config.algorithms import ALGORITHMS
from distrl.config.explain import known_paths
from distrl.config.replay import ReplayParameters
from distrl.errors import ConfigError
from distrl.memory_backend import keys

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNS = ("bash", "python")
# What a reader takes for a command; a block in one of these would escape being run.
OTHER_SHELLS = {"sh", "shell", "console", "zsh", "py", "pycon", ""}


class Block(NamedTuple):
    """A fenced block: `where` is file:line of the fence."""

    where: str
    language: str
    tag: str
    text: str


def blocks_in(markdown: str, name: str) -> list[Block]:
    """Every fenced block that starts at the beginning of a line."""
    blocks = []
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL):
        language, _, tag = match[1].strip().partition(" ")
        blocks.append(Block(f"{name}:{markdown.count(chr(10), 0, match.start()) + 1}", language, tag, match[2]))
    return blocks


BLOCKS = [block for page in PAGES for block in blocks_in(page.read_text(), page.relative_to(ROOT).as_posix())]
COMMANDS = [block for block in BLOCKS if block.language in RUNS and not block.tag]


def generator(name="capabilities"):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def reader(tmp_path, tmp_path_factory):
    """Where and how a reader would run a block: an empty directory, `distrl` on PATH, their own home and cache."""
    command = tmp_path / "bin" / "distrl"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m distrl "$@"\n')
    command.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    environment = {
        "PATH": f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(work),
        "XDG_CACHE_HOME": str(tmp_path_factory.getbasetemp() / "cache"),  # filled by the blocks that ran before
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }

    def run(block: Block) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-euxo", "pipefail", "-c", block.text]
        return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=280)

    return run


def marks_of(block):
    """A block that trains, or imports TensorFlow, takes long: CI runs the one that makes a run, in the README.

    What other commands show is tested within this process: `test_shown_command_of_a_block_runs`.
    """
    if block.where.startswith("README") and (block.language == "python" or "runs/small" in block.text):
        return ()
    return pytest.mark.long if re.search(r"distrl\W+(train|sweep|tune|bench|network|env|presets)\b", block.text) else ()


def of_language(language):
    return [block for block in COMMANDS if block.language == language]


@pytest.mark.slow
@pytest.mark.parametrize(
    "block", [pytest.param(block, id=block.where, marks=marks_of(block)) for block in of_language("bash")]
)
def test_block_runs(block, reader):
    done = reader(block)
    assert done.returncode == 0, f"{block.where}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize(
    "block", [pytest.param(block, id=block.where, marks=marks_of(block)) for block in of_language("python")]
)
def test_python_block_runs(block, monkeypatch, tmp_path):
    """In this process, which has imported what most of them import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # where `distrl` is
    exec(compile(block.text, block.where, "exec"), {"__name__": "block"})


SHOWS = re.compile(r"distrl (presets|config (show|explain)|network show|train --help)(?!.*(runs/|yaml))")


def shown_commands():
    """Yield the commands of the blocks that show presets, settings or networks and need no run."""
    for block in of_language("bash"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if SHOWS.match(line):
                arguments = shlex.split(line, comments=True)[1:]
                yield pytest.param(arguments, id=f"{block.where} {' '.join(arguments[:2])}")


@pytest.mark.parametrize("arguments", [*shown_commands()])
def test_shown_command_of_a_block_runs(arguments, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output


def test_a_block_that_fails_is_noticed(reader):
    (block,) = blocks_in("text\n\n```bash\nfalse\ntrue\n```\n", "page.md")
    assert block == Block("page.md:3", "bash", "", "false\ntrue\n")
    assert reader(block).returncode == 1


def test_blocks_are_tagged_by_the_convention():
    for block in BLOCKS:
        assert block.language not in OTHER_SHELLS, f"{block.where}: write bash, python or text"
        if block.language in RUNS and block.tag:
            assert re.fullmatch(r"norun: \S.+", block.tag), f"{block.where}: a block that does not run says why"


def test_make_train_and_make_test_are_what_the_readme_shows():
    shown = {
        line.split("#")[0].strip() for block in BLOCKS if block.language == "bash" for line in block.text.splitlines()
    }
    assert {"make train", "make test"} <= shown


@pytest.mark.row("R09")
@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_source_files_that_are_named_exist(page):
    named = set(re.findall(r"`(?:distrl/)?([a-z_]+(?:/[a-z_]+)*\.(?:py|yaml))`", page.read_text()))
    places = (ROOT, ROOT / "distrl", ROOT / "distrl/presets")
    made_by_a_run = {"config.yaml", "job.yaml", "base.yaml", "sweep.yaml", "search.yaml", "best.yaml"}
    assert sorted(name for name in named - made_by_a_run if not any((place / name).exists() for place in places)) == []


def test_the_page_of_settings_has_a_row_for_every_setting():
    """A place of many names (`<name>`, `[]`) has its settings once."""
    page = generator("settings").page()
    assert "| `learning_rate` | number > 0 | `0.00025` |" in page
    leaves = {path.rpartition(".")[2] for path in known_paths(Configuration)}
    leaves -= {"declared"}  # distrl itself writes this one
    assert sorted(name for name in leaves if f"`{name}" not in page) == []


def test_the_page_of_modules_has_every_package_and_module_with_its_docstring(tmp_path):
    page = generator("modules").page()
    found = [path for path in (ROOT / "distrl").rglob("*.py") if not path.name.startswith("__")]
    assert [path.name for path in found if f"- `{path.name}`: " not in page] == []
    package = tmp_path / "made"
    (package / "room").mkdir(parents=True)
    (package / "__init__.py").write_text('"""The whole."""')
    (package / "room" / "__init__.py").write_text('"""A room.\n\nUsed by `a < b`, <c>."""')
    (package / "room" / "one.py").write_text('"""One thing\nin two lines.\n\nMore."""')
    made = generator("modules").page(package).partition("\n## ")[2]
    assert made == (
        "`made/`\n\nThe whole.\n\n"
        "## `made/room/`\n\nA room.\n\nUsed by `a < b`, \\<c>.\n\n- `one.py`: One thing in two lines.\n"
    )
    (package / "room" / "__init__.py").write_text("")
    with pytest.raises(ValueError, match=r"made/room/__init__\.py has no docstring: say what it holds"):
        generator("modules").page(package)


@pytest.mark.row("D53")
def test_the_table_of_algorithms_is_current():
    made = generator("algorithms")
    page = made.PAGE.read_text(encoding="utf-8")
    assert made.page(page) == page, "run make algorithms"


def test_the_table_of_algorithms_is_made_of_their_sections(monkeypatch):
    made = generator("algorithms")

    class Changed(ALGORITHMS["td3"]):
        """Mine (One and Two 2021, arXiv:2101.00001): a change.

        Use it as `td3`,
        changed.
        """

        replay: ReplayParameters = ReplayParameters(sampler={"kind": "prioritized"})

    monkeypatch.setattr(made, "ALGORITHMS", {"td3": Changed})
    before, after = "Text.\n" + made.BEGIN, made.END + "More.\n"
    row = (
        "| `td3` | one bounded action | dense or recurrent | prioritised replay | "
        "[One and Two 2021](https://arxiv.org/abs/2101.00001) | as `td3`, changed |\n"
    )
    assert made.page(before + "| old |\n" + after) == before + made.HEADER + row + after
    for docstring in ("Mine (Name 2021).", "Mine.\n\nUse it for more."):
        Changed.__doc__ = docstring
        with pytest.raises(ValueError, match="Changed: its docstring has no paper"):
            made.page(before + after)


def test_rows_are_read_from_functions_classes_parameters_and_modules():
    source = """
pytestmark = pytest.mark.row("A01")
@pytest.mark.row("B02", "B03")
class TestIt:
    @pytest.mark.row("C04")
    def test_one(self): ...
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.row("D105"))])
def test_two(x): ...
"""
    rows = [("A01", ""), ("B02", "TestIt"), ("B03", "TestIt"), ("C04", "TestIt::test_one"), ("D105", "test_two")]
    assert sorted(generator().rows_in(source)) == rows


@pytest.mark.parametrize("mark", ["pytest.mark.row()", "pytest.mark.row(ID)", "pytest.mark.row('12')"])
def test_a_mark_without_a_literal_id_is_an_error(mark):
    with pytest.raises(ValueError, match="line 2: a row mark needs literal ids"):
        list(generator().rows_in(f"\n@{mark}\ndef test(): ..."))


def test_rows_are_listed_in_order_of_letter_and_number(tmp_path):
    tests = tmp_path / "tests" / "wire"
    tests.mkdir(parents=True)
    for name, row in (("test_b.py", "D15"), ("test_a.py", "D101"), ("test_c.py", "D15"), ("test_d.py", "D15.2")):
        (tests / name).write_text(f"@pytest.mark.row('{row}')\ndef test_it(): ...\n")
    made = generator()
    made.PROMISES = tmp_path / "promises.txt"
    made.PROMISES.write_text("D15 One.\nD15.2 Two.\nD101 Three.\n")
    settled = made.page(tmp_path / "tests").partition("## Met otherwise")[0]
    listed = [line for line in settled.splitlines() if line.startswith("| D")]
    assert listed == [
        "| D15 | One. | `tests/wire/test_b.py::test_it`<br>`tests/wire/test_c.py::test_it` |",
        "| D15.2 | Two. | `tests/wire/test_d.py::test_it` |",
        "| D101 | Three. | `tests/wire/test_a.py::test_it` |",
    ]
    made.PROMISES.write_text("D15 One.\nD15.2 Two.\n")
    with pytest.raises(ValueError, match=r"has no line for D101: say what the row promises"):
        made.page(tmp_path / "tests")


def test_every_promise_is_one_short_line_of_a_row_that_tests_settle():
    made = generator()
    promises = made._lines_of(made.PROMISES)
    marked = {row for path in (ROOT / "tests").rglob("test_*.py") for row, _ in made.rows_in(path.read_text())}
    assert promises.keys() == marked
    assert [row for row in promises] == sorted(promises, key=made._order)
    for row, promise in promises.items():
        assert len(f"{row} {promise}") <= 120, row
        assert promise.endswith("."), row
    assert len({*promises.values()}) == len(promises)


def test_what_is_absent_is_one_line_of_a_row_that_nothing_settles():
    made = generator()
    absent = made._lines_of(made.ABSENT)
    assert [*absent] == sorted(absent, key=made._order)
    assert all(text.endswith(".") for text in absent.values())
    assert not {*absent, *made.OBSOLETE} & {*made._lines_of(made.PROMISES), *made.OTHERWISE}
    assert not {*absent} & {*made.OBSOLETE}


def test_the_key_table_of_the_architecture_page_is_the_codes():
    rows = re.findall(
        r"^\| `([^`]+)` \| (hash|list|stream|zset) \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE
    )
    assert rows == [(row.name, row.type) for row in keys.TABLE]


def test_return_curves_are_drawn_and_told_from_what_runs_wrote(tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    rows = [
        "wall_s,env_steps,mean_return_100",
        "1,10,",
        "59.5,1000,-100",
        "120,2000,250.4",
        "121.5,2100,300",
        "200,9,400",
    ]
    (run / "metrics.csv").write_text("\n".join(rows))
    generator("return_curve").main([str(tmp_path / "curve.svg"), f"a & b={run}"])
    assert capsys.readouterr().out.splitlines() == [
        "| | 1 min | 2 min | 3 min | 5 min | 10 min |",
        "|---|---|---|---|---|---|",
        "| a & b | -100 (1,000 steps) | 300 (2,100 steps) | 300 (2,100 steps) | – | – |",
    ]
    drawing = ElementTree.parse(tmp_path / "curve.svg").getroot()
    tag = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in drawing.iter(f"{tag}text")]
    assert texts == ["-100", "0", "100", "200", "300", "400", "0", "1", "2", "3", "minutes", "a & b"]
    (line,) = drawing.iter(f"{tag}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    assert points[0] == pytest.approx((64 + 560 * 59.5 / 200, 256), abs=0.1)
    assert points[-1] == pytest.approx((624, 16), abs=0.1)


MIGRATION = ROOT / "docs/stable_baselines.md"
ALGORITHMS_OF = {
    "PPO and A2C": ("ppo", "a2c"),
    "DQN and QR-DQN": ("dqn", "qrdqn"),
    "SAC, TQC, CrossQ, TD3 and DDPG": ("sac", "tqc", "crossq", "td3", "ddpg"),
    "Around the algorithm": ("ppo", "a2c"),
    "Conventions": ("trpo",),
}


def settings_in(markdown):
    """Every code span outside of fenced blocks that is a setting, alone or with a value: (heading, span)."""
    text = re.sub(r"^```.*?^```$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    sections = "|".join(Configuration.model_fields)
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading = part.partition("\n")[0]
        for span in re.findall(r"`([^`]+)`", part):
            if re.match(rf"({sections})(\.|: )", span):
                yield heading, span


def tree_of(span):
    """`a.b: 1` as {a: {b: 1}}."""
    path, _, value = span.partition(": ")
    tree = yaml.safe_load(value)
    for key in reversed(path.split(".")):
        tree = {key: tree}
    return tree


def refusal(span, algorithm, tmp_path):
    """The error of a configuration with this setting; None: there is none."""
    section, values = tree_of(span).popitem()
    tree = {"environment": {"id": "CartPole-v1"}, "algorithm": {"name": algorithm}}
    tree[section] = {**tree.get(section, {}), **values}
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(tree))
    try:
        load(file=file)
    except ConfigError as error:
        return str(error)
    return None


def test_settings_of_the_migration_page_exist():
    known = set(known_paths(Configuration))
    spans = [span for _, span in settings_in(MIGRATION.read_text(encoding="utf-8"))]
    assert len(spans) > 60
    assert sorted({span for span in spans if span.partition(": ")[0] not in known}) == []


def test_values_of_the_migration_page_are_accepted_by_an_algorithm_of_their_section(tmp_path):
    given = {(at, span) for at, span in settings_in(MIGRATION.read_text(encoding="utf-8")) if ": " in span}
    assert len(given) > 20
    for heading, span in sorted(given):
        errors = [refusal(span, algorithm, tmp_path) for algorithm in ALGORITHMS_OF[heading]]
        assert None in errors, (heading, span, errors)


def test_a_setting_that_does_not_exist_is_noticed(tmp_path):
    page = "## PPO\n| `n` | `learner.batch_sise` | `algorithm.epochs: many` |\n```yaml\nseed: `seed: 1`\n```\n"
    assert [*settings_in(page)] == [("PPO", "learner.batch_sise"), ("PPO", "algorithm.epochs: many")]
    assert "learner.batch_sise" not in known_paths(Configuration)
    assert "algorithm.epochs: 'many'" in refusal("algorithm.epochs: many", "ppo", tmp_path)
    assert refusal("algorithm.epochs: 3", "ppo", tmp_path) is None
