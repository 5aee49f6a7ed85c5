"""The notebooks in examples/ run from the first cell to the last, in one interpreter as a kernel would run them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))

pytestmark = [pytest.mark.slow, pytest.mark.redis]


def code_of(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_there_are_some():
    assert [notebook.name for notebook in NOTEBOOKS] == ["steering.ipynb"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_every_cell_runs_and_the_change_that_is_asked_for_is_seen(notebook, tmp_path):
    script = tmp_path / "cells.py"
    *cells, last = code_of(notebook)
    script.write_text(
        "\n\n".join(cells) + f"\n\nshown = {last}\n"
        "print(shown._repr_png_()[:4])\nprint('rates', [*run.metrics['learning_rate']])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rates = json.loads(done.stdout.splitlines()[-1].removeprefix("rates ").replace("np.float64(", "").replace(")", ""))
    assert rates[0] > 1e-3
    assert rates[-1] < 6e-4
    assert "asked " in done.stdout  # as the loop found its end
    assert done.stdout.splitlines()[-2] == repr(b"\x89PNG")  # IPython makes image/png of it


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_what_it_put_out(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells if cell["cell_type"] == "code"] == [[]] * len(code_of(notebook))
