"""Redis dies in the middle of a run: one line, exit 6, nothing left."""

import os
import signal

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.redis]


def test_a_killed_redis_ends_the_run_with_6_in_one_line_and_leaves_nothing(start_run, endless):
    run = start_run(*endless, "--set", "checkpoint.every_updates=5")
    run.wait_for_updates(10)
    server = int(run.backend._client.call("INFO", "server")["process_id"])
    pids, directory = [*run.pids, server], run.socket.parent
    os.kill(server, signal.SIGKILL)
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (6, 6, "memory backend")
    (line,) = run.errors.read_text().splitlines()
    assert line.startswith("distrl: error: ")
    assert f"Redis at unix://{directory}" in line
    assert "is unreachable for 5 s" in line
    assert not any(map(run.alive, pids))
    assert not directory.exists()
    # The numbers are those of the last look, up to half a second old, and they add up.
    assert summary.updates >= 1
    assert summary.trained > 0
    assert summary.imbalance == 0
    # What had been saved is there to go on from.
    assert max(int(path.name[5:]) for path in (run.run_dir / "checkpoints").glob("ckpt-*")) >= 10
