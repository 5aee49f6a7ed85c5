"""The notebooks in examples/ run from the first cell to the last, in one interpreter as a kernel would run them."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
BEFORE = """
import subprocess

pictures = []


def show(value):
    if hasattr(value, "_repr_png_"):  # IPython makes image/png of it
        pictures.append(value._repr_png_())
    else:
        print(repr(value))
"""
# Notebook -> what holds after its last cell, of its own variables.
AFTER = {
    "steering": """
rates = run.metrics["learning_rate"]
assert asked and rates[0] > 1e-3 and rates[-1] < 6e-4, rates
assert len(pictures) == 1
""",
    "quick_start": """
assert summary.stop_reason == "mean_return" and summary.mean_return_100 >= 475
assert len(pictures) == 2 and None not in returns
""",
    "own_environment": """
assert summary.stop_reason == "mean_return" and run.summary.stop_reason == "mean_return"
assert summary.env_steps != run.summary.env_steps and len(pictures) == 1
""",
    "own_algorithm": """
cool, hot = (distrl.load_run(folder / f"temperature-{kept}") for kept in (0.002, 1.0))
assert cool.summary.mean_return_100 > 1.5 * hot.summary.mean_return_100
assert cool.metrics["entropy"][-1] < hot.metrics["entropy"][-1]
assert len(pictures) == 2
""",
    "sweep": """
runs = list((folder / "rates").glob("000?/summary.json"))
assert len(runs) == 4 and len(pictures) == 1
""",
    "learn_from_data": """
assert copy.metrics["evaluation_mean_return"][-1] > 150 and summary.mean_return_100 >= 200
assert run.summary.best_evaluation_return > 50 and len(pictures) == 1
""",
    "export_and_serve": """
assert episode_return > 400
assert answer == {"actions": [1, 0]}
""",
}
IN_CI = {"steering"}


def code_of(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def script_of(cell):
    """The cell as plain Python: `!command` runs in a shell and must succeed; the last expression is shown."""
    cell = re.sub(r"^!(.*)", r'subprocess.run(f"""\1""", shell=True, check=True)', cell, flags=re.MULTILINE)
    last = ast.parse(cell).body[-1]
    if not isinstance(last, ast.Expr):
        return cell
    lines = cell.splitlines()
    head, shown = lines[: last.lineno - 1], "\n".join(lines[last.lineno - 1 :])
    return "\n".join([*head, f"show({shown})"])


def test_every_notebook_is_checked():
    assert {notebook.stem for notebook in NOTEBOOKS} == AFTER.keys()


@pytest.mark.row("R08")
@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(notebook, id=notebook.stem, marks=[] if notebook.stem in IN_CI else pytest.mark.long)
        for notebook in NOTEBOOKS
    ],
)
def test_every_cell_runs_and_shows_what_the_text_says(notebook, tmp_path):
    work = shutil.copytree(notebook.parent, tmp_path / "examples")
    after = "\nassert all(picture.startswith(b'\\x89PNG') for picture in pictures)\n"
    script = work / "cells.py"
    script.write_text("\n\n".join([BEFORE, *map(script_of, code_of(notebook)), AFTER[notebook.stem] + after]))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=work,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_cell_becomes_plain_python():
    assert script_of("!distrl plot {a}\nPicture(b)").splitlines() == [
        'subprocess.run(f"""distrl plot {a}""", shell=True, check=True)',
        "show(Picture(b))",
    ]
    assert script_of("a = 1") == "a = 1"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_what_it_put_out(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    kept = [(cell["outputs"], cell["execution_count"]) for cell in cells if cell["cell_type"] == "code"]
    assert kept == [([], None)] * len(code_of(notebook))
