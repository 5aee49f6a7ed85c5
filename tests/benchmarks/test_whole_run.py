"""One command as a whole: its times are of its own files and of the clock, its memory is that of all its processes."""

import subprocess
import sys
import time

import pytest

from benchmarks import whole_run
from benchmarks.measurement import FailedError

# Stands for `python`: leaves what a training leaves whose first update came three of its six seconds after its launch.
PYTHON = """#!{python}
import json, pathlib, sys
sys.exit("distrl: error: no such thing") if "learner.backend=none" in sys.argv else None
folder = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
folder.mkdir()
(folder / "arguments").write_text(" ".join(sys.argv[1:]))
first = None if "never" in sys.argv else 3.0
told = dict(wall_s=6.0, time_to_first_update_s=first, env_steps=900, stop_reason="mean_return")
(folder / "summary.json").write_text(json.dumps(told))
"""


@pytest.fixture
def python(tmp_path, monkeypatch):
    script = tmp_path / "python"
    script.write_text(PYTHON.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_times_count_from_the_command(python, tmp_path, monkeypatch):
    folder, began = tmp_path / "run", time.time()
    (folder / "of an earlier one").mkdir(parents=True)
    monkeypatch.setattr(whole_run.time, "time", iter([began, began + 7.0]).__next__)
    ran = whole_run.run(folder, "jax", ["a=1", "b=2"])
    assert (folder / "arguments").read_text() == (
        f"-m distrl train --preset cartpole-impala --run-dir {folder} --quiet "
        "--set learner.backend=jax --set a=1 --set b=2"
    )
    assert not (folder / "of an earlier one").exists()
    # It was launched six seconds before its summary was written, which is just now.
    launched_s = (folder / "summary.json").stat().st_mtime - 6.0 - began
    assert ran.first_update_s == pytest.approx(launched_s + 3.0)
    assert ran.exit_s == pytest.approx(7.0)
    assert (ran.env_steps, ran.stop_reason, dict(ran.memory_mb)) == (900, "mean_return", {})


def test_a_training_that_failed_says_why(python, tmp_path):
    with pytest.raises(FailedError, match=r"^distrl: error: no such thing$"):
        whole_run.run(tmp_path / "run", "none", [])
    with pytest.raises(FailedError, match="ended before its first update"):
        whole_run.run(tmp_path / "run", "jax", ["never"])


def test_memory_is_that_of_the_moment_when_all_together_took_most(python, tmp_path, monkeypatch):
    seen = iter([{"learner": 1.0}, {"learner": 2.0, "actor 0": 3.0}, {"learner": 4.0}])
    monkeypatch.setattr(whole_run, "memory_mb", lambda: next(seen, {}))
    monkeypatch.setattr(whole_run, "SAMPLE_EVERY_S", 0.001)  # the interpreter takes longer to start than three looks
    assert whole_run.run(tmp_path / "run", "jax", [], watches_memory=True).memory_mb == {"learner": 2.0, "actor 0": 3.0}


def test_memory_is_of_the_whole_tree_by_role():
    inner = "import sys; data = b'x' * 30_000_000; print(flush=True); sys.stdin.read()"
    actor = (
        "import subprocess, sys; from setproctitle import setproctitle; setproctitle('distrl: actor 3')\n"
        f"subprocess.run([sys.executable, '-c', {inner!r}, 'redis'])"
    )
    before_mb = whole_run.memory_mb().get("redis", 0.0)  # another test's server
    root = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {actor!r}])"
    with subprocess.Popen([sys.executable, "-c", root], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        found = whole_run.memory_mb()
        process.stdin.close()
    assert {"supervisor", "actor 3", "redis"} <= found.keys()
    assert 30.0 < found["redis"] - before_mb < 60.0
    assert 1.0 < found["actor 3"] < 30.0
    assert whole_run.memory_mb().get("redis", 0.0) < before_mb + 30.0
