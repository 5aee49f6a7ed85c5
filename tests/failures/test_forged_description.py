"""A client of Redis rewrites what the roles of a run read from it: nothing that it names is run anywhere."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest

from distrl.errors import MemoryBackendError
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.redis]


def rewrite(run, marker) -> None:
    """The description's environment becomes a command that makes the file `marker`."""
    client, key = run.backend.engine, run.backend._run.keys.run
    description = json.loads(client.call("HGET", key, "config"))
    description["config"]["environment"] |= {"id": "subprocess:Popen", "kwargs": {"args": ["touch", str(marker)]}}
    client.call("HSET", key, "config", json.dumps(description))


def test_a_command_in_a_rewritten_description_runs_nowhere_and_the_run_says_so(
    start_run, unhurried, redis_url, distrl_command, tmp_path
):
    """The supervisor is made to replace its own actor, which reads the description anew."""
    run, marker = start_run(*unhurried, "--redis-url", redis_url), tmp_path / "ran"
    run.wait_for_updates(3)
    run_id, key = run.record["run_id"], (run.run_dir / "run.key").read_text().strip()
    assert f"run {run_id} in {run.run_dir}\n" in run.told
    assert (run.run_dir / "run.key").stat().st_mode & 0o777 == 0o600
    client = run.backend.engine
    assert key.encode() not in b"".join(client.call("HVALS", run.backend._run.keys.run))
    refused = distrl_command("actor", "--redis-url", redis_url, "--run-id", run_id, "--id", "7")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"run {run_id} names code, environment.id: benchmarks.sleeping:Sleeping, which may" in refused.stderr
    rewrite(run, marker)

    silent, beat = replace(run.role("actor"), last_step_age_s=1e6, state="acting"), 10**6

    def ended_of_silence():
        nonlocal beat
        beat += 1
        with suppress(MemoryBackendError):  # the run may end meanwhile
            run.backend.registry.beat(replace(silent, beat=beat))
        return run.process.poll() is not None

    wait_until(ended_of_silence, "the supervisor takes its actor for one that hangs")
    summary = run.finish()
    assert not marker.exists()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (2, 2, "configuration")
    assert f"the description of run {run_id} in Redis does not have its signature" in summary.error
    assert run.errors.read_text().splitlines()[-1] == f"distrl: error: {summary.error}"
    assert (summary.restarts, summary.imbalance) == (1, 0)
    assert any((run.run_dir / "checkpoints").glob("ckpt-*"))  # what was learned is saved
