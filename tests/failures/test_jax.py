"""A whole run whose learner is on JAX, where TensorFlow is not installed: it trains and exports its policy."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from distrl.data_store.checkpoints import load_newest
from tests.faults.arguments import environment, sets

pytestmark = [
    pytest.mark.slow,
    pytest.mark.redis,
    pytest.mark.skipif(find_spec("jax") is None and "CI" not in os.environ, reason="JAX is not installed"),
]


HIDES = "import sys\nsys.modules.update(dict.fromkeys(('tensorflow', 'tf2onnx')))\n"
"""In every process of the run, imports of these then fail as if they were not installed."""


def libraries(pid: int) -> set[str]:
    """Which frameworks' native libraries a process has loaded."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return {name for name in ("libtensorflow", "jaxlib") if name in maps}


def test_a_run_on_jax(start_run, endless, tmp_path, monkeypatch, distrl_command):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # so that the policy is exported
    (tmp_path / "sitecustomize.py").write_text(HIDES)
    without = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]]))
    run = start_run(*endless, "--actors", "1", *sets("learner.backend=jax", "stop.updates=40"), env=without)
    run.wait_for_updates(1)
    assert libraries(run.role("learner").pid) == {"jaxlib"}
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.updates) == (0, "updates", 40)
    assert (summary.trained, summary.imbalance) == (40, 0)
    (graph,) = (tmp_path / "cache" / "distrl" / "bundles").iterdir()
    assert graph.read_bytes() == (run.run_dir / "policy" / "graph.onnx").read_bytes()

    # The other framework goes on from the same checkpoint.
    goes_on = [
        "--resume",
        "auto",
        "--actors",
        "0",
        "--set",
        "stop.updates=45",
        "--run-dir",
        str(run.run_dir),
        "--plain",
    ]
    done = distrl_command("train", *endless, "--set", "learner.backend=tensorflow", *goes_on)
    assert done.returncode == 0, done.stderr
    saved = load_newest(run.run_dir / "checkpoints")
    assert saved is not None
    # Eight minibatches in each update.
    assert (saved.step, int(saved.arrays["main.optimizer"]["optimizer/iteration"])) == (45, 8 * 45)
