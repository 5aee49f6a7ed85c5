"""A head start: the child becomes the learner once, its log has all it said, and it never outlives the parent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distrl.config import RunConfig
from distrl.launch.head_start import HeadStart, head_start
from distrl.launch.processes import ProcessLauncher
from distrl.roles.plan import Role
from tests.launched_run import run_in
from tests.waiting import wait_until

# In the child's place: it prints a line at once, then the line that it gets, to the given stream.
CHILD = """#!{python}
import os, sys
sys.argv = sys.argv[4:]
print("arguments:", *sys.argv, os.environ["OMP_NUM_THREADS"], flush=True)
sys.path[:0] = {path!r}
from distrl.launch import head_start
line = head_start._read_line(0)
if line == b"end\\n":
    sys.exit(3)
if line:
    head_start._log_to(head_start.json.loads(line)["log"])
    print("told:", line.decode(), end="", flush=True)
    head_start._read_line(0)
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(python=sys.executable, path=sys.path))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_the_child_becomes_the_learner_once_and_its_log_has_all_it_said(child, tmp_path):
    run = run_in(tmp_path, "unix:///r.sock", "k")
    log = run.log_dir / "learner.log"
    log.write_text("of an earlier launch\n")
    with head_start(RunConfig.model_validate({"learner": {"backend": "jax", "threads": 3}})) as started:
        launcher = ProcessLauncher(run, started)
        handle = launcher.start(Role("learner"))
        told = json.dumps({"redis_url": "unix:///r.sock", "run_id": "r1", "run_key": "k", "log": str(log.resolve())})
        wait_until(lambda: "told" in log.read_text())
        assert log.read_text() == f"of an earlier launch\narguments: jax 3\ntold: {told}\n"
        assert handle.poll() is None
        learner = handle._process.pid
        assert (os.getpgid(learner), os.getsid(learner)) == (learner, os.getsid(0))  # beside the other roles
        # One that is started again begins from the beginning.
        assert started.become_learner(run.address, log) is None
        launcher.close()
    wait_until(lambda: handle.poll() is not None)
    assert handle.poll() == 0  # its lifeline has ended


def test_a_child_that_nobody_needed_is_gone(child):
    with head_start(RunConfig()) as started:
        process = started._process
        assert process.poll() is None
    assert process.poll() == -9


def test_a_child_that_has_ended_is_replaced_by_an_ordinary_process(child, tmp_path, monkeypatch):
    started = HeadStart("tensorflow", {"OMP_NUM_THREADS": "1"})
    started._process.stdin.write(b"end\n")
    started._process.stdin.flush()
    assert started._process.wait(10) == 3
    assert started.become_learner(run_in(tmp_path, "unix:///r.sock", "k").address, tmp_path / "learner.log") is None
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("its number may be another process's by now"))
    started.close()


@pytest.mark.parametrize("sections", [{"actors": {"count": 0}}, {"launch": {"launcher": "ray"}}])
def test_where_the_learner_is_no_process_of_ours_nothing_is_started(sections, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere")
    with head_start(RunConfig.model_validate(sections)) as started:
        assert started is None


def test_the_real_child_ends_with_its_parent_in_the_middle_of_the_import():
    command = [sys.executable, "-m", "distrl.launch.head_start", "tensorflow"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)
    assert (done.stdout, done.returncode) == (b"", 0)


def test_the_parents_side_is_light():
    code = "import sys, distrl.launch.head_start; print(*{'numpy', 'pydantic', 'redis', 'yaml'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=environment) == "\n"
