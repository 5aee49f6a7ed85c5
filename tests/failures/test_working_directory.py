"""Modules of the working directory are found, and shadow nothing of the standard library, in any process."""

import pytest

from tests.faults.arguments import sets

pytestmark = [pytest.mark.slow, pytest.mark.redis]

SHADOWS = ("random", "token", "queue", "socket", "selectors", "copy")
"""Modules that roles, frameworks or multiprocessing import."""


@pytest.mark.long
def test_a_training_in_a_directory_whose_modules_are_named_as_the_librarys(start_run, endless, tmp_path):
    (tmp_path / "my_steps.py").write_text("LENGTH = 20\n")
    (tmp_path / "my_env.py").write_text(
        "import my_steps\n"
        "from distrl.environments.worlds.toy import StepCounter\n\n\n"
        "class Mine(StepCounter):\n"
        "    def __init__(self):\n"
        "        super().__init__(truncate_at_steps=my_steps.LENGTH, terminate_at_steps=None)\n"
    )
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('shadowed: {name}')\n")
    small = sets("actors.environments=2", "actors.unroll_length_steps=8", "algorithm.minibatches=1", "stop.updates=3")
    asynchronous = sets("environment.vectorization=async")
    run = start_run(*endless, "--env", "my_env:Mine", "--actors", "1", *small, *asynchronous, "--dashboard")
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.restarts) == (0, "updates", 0), run.told
    assert "shadowed" not in run.told
    assert not [log for log in (run.run_dir / "logs").iterdir() if "shadowed" in log.read_text()]
