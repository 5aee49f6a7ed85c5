"""Roles of other versions of distrl: of one that differs in a setting alone, and of an upgrade under a running job."""

import os

import pytest

from distrl.memory_backend.keys import PROTOCOL_VERSION
from tests.faults.arguments import environment
from tests.faults.versions import NEWER, OURS, THEIRS, change, command, install, refusal

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.redis, pytest.mark.row("S15")]


def test_a_role_whose_settings_this_run_has_not_is_refused_as_another_version_is(start_run, unhurried, tmp_path):
    """The protocol is the same and a setting is new, because the version was not incremented."""
    run = start_run(*unhurried)
    run.wait_for_updates(3)
    other = install(tmp_path / "other")
    change(other, "config/memory.py", r"^    queue_batches: int = ", "    queue_rounds: int = ")
    for kind, *more in [("actor", "--id", "7"), ("learner",)]:
        done = command(run, kind, other, *more)
        assert done.returncode == 6
        line = refusal(done)
        assert f"of distrl {OURS} is not described as this distrl does (config.memory.queue_batches: " in line
        assert line.endswith(f", which is {THEIRS}; use one version of distrl for all roles")
    run.process.terminate()
    assert run.finish().exit_code == 0


REFUSED = f"speaks protocol {PROTOCOL_VERSION} (distrl {THEIRS}), this distrl {THEIRS} speaks {NEWER}"


def start_upgradable(start_run, tmp_path, unhurried):
    """A run of a copy of distrl, and the copy, which the roles that start after a change of it have."""
    root, usual = install(tmp_path / "upgraded"), environment()
    run = start_run(*unhurried, env=usual | {"PYTHONPATH": os.pathsep.join([str(root), usual["PYTHONPATH"]])})
    run.wait_for_updates(3)
    change(root, "memory_backend/keys.py", r"^PROTOCOL_VERSION = \d+$", f"PROTOCOL_VERSION = {NEWER}")
    return run


def test_an_upgrade_under_a_running_job_ends_it_when_the_learner_starts_again(start_run, unhurried, tmp_path):
    run = start_upgradable(start_run, tmp_path, unhurried)
    run.kill("learner", 0)
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (6, 6, "memory backend")
    assert (summary.restarts, summary.imbalance) == (1, 0)
    assert REFUSED in summary.error
    assert run.errors.read_text().endswith(f"distrl: error: {summary.error}\n")


def test_an_upgrade_under_a_running_job_costs_the_actor_that_starts_again(start_run, unhurried, tmp_path):
    """An actor that cannot use the store may be alone with that: the run reports it and goes on with the others."""
    run = start_upgradable(start_run, tmp_path, unhurried)
    run.kill("actor", 0)
    events = run.run_dir / "logs" / "events.log"
    run.wait_until(lambda: REFUSED in events.read_text(), "the actor is refused")
    run.wait_for_updates(run.updates + 3)
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.imbalance) == (0, 0)
    assert any((run.run_dir / "checkpoints").glob("ckpt-*"))
