"""Roles of different versions of distrl: refused as they join, in one line that says which versions those are."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import distrl
from distrl.memory_backend.keys import PROTOCOL_VERSION
from tests.faults.arguments import environment

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.row("S15")]
OURS, THEIRS = distrl.__version__, "9.9"
OLDER, NEWER = PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1


def change(root: Path, file: str, pattern: str, by: str) -> None:
    """Edits one line of an installation."""
    path = root / "distrl" / file
    text, count = re.subn(pattern, by, path.read_text(), flags=re.MULTILINE)
    assert count == 1
    path.write_text(text)


@pytest.fixture
def install(tmp_path):
    """A copy of distrl that may differ, as another version would be installed on another host."""

    def copy(name: str, protocol: int = PROTOCOL_VERSION) -> Path:
        root = tmp_path / name
        shutil.copytree(Path(distrl.__file__).parent, root / "distrl", ignore=shutil.ignore_patterns("__pycache__"))
        change(root, "memory_backend/keys.py", r"^PROTOCOL_VERSION = \d+$", f"PROTOCOL_VERSION = {protocol}")
        change(root, "version.py", r"^__version__ = .*$", f'__version__ = "{THEIRS}"')
        return root

    return copy


def command(run, kind: str, root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """One command of the distrl in `root`, for the run."""
    record = json.loads((run.run_dir / "run.json").read_text())
    where = ["--redis-url", record["redis_url"], "--run-id", record["run_id"]]
    return subprocess.run(
        [sys.executable, "-m", "distrl", kind, *where, *more],
        cwd=run.run_dir.parent,
        env={**os.environ, "PYTHONPATH": str(root), **run.key},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one error that a user reads; a role's own log may have its traceback above."""
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if "distrl: error: " in line]
    return line.partition("distrl: error: ")[2]


def test_an_older_and_a_newer_role_are_refused_and_the_run_goes_on(start_run, unhurried, install):
    run = start_run(*unhurried)
    run.wait_for_updates(3)
    run_id = json.loads((run.run_dir / "run.json").read_text())["run_id"]
    joins = [("actor", "--id", "7"), ("learner",)]
    for protocol in (OLDER, NEWER):
        root = install(f"protocol-{protocol}", protocol)
        for kind, *more in joins:
            done = command(run, kind, root, *more)
            assert done.returncode == 6
            assert refusal(done) == (
                f"run {run_id} speaks protocol {PROTOCOL_VERSION} (distrl {OURS}), this distrl {THEIRS} speaks "
                f"{protocol}; use one version of distrl for all roles"
            )
    # No role was registered, and the run got no request.
    assert run.backend.registry.register_actor(7) == 1
    asked = command(run, "stop", root)
    assert (asked.returncode, "speaks protocol" in refusal(asked)) == (6, True)
    run.wait_for_updates(run.updates + 5)
    assert {(role.role, role.id) for role in run.backend.registry.roles()} == {
        ("actor", 0),
        ("actor", 1),
        ("learner", 0),
    }
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.foreign, summary.imbalance) == (0, 0, 0, 0)


@pytest.mark.long
def test_a_role_whose_settings_this_run_has_not_is_refused_as_another_version_is(start_run, unhurried, install):
    """The protocol is the same and a setting is new, because the version was not incremented."""
    run = start_run(*unhurried)
    run.wait_for_updates(3)
    other = install("other")
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


def start_upgradable(start_run, install, unhurried):
    """A run of a copy of distrl, and the copy, which the roles that start after a change of it have."""
    root, usual = install("upgraded"), environment()
    run = start_run(*unhurried, env=usual | {"PYTHONPATH": os.pathsep.join([str(root), usual["PYTHONPATH"]])})
    run.wait_for_updates(3)
    change(root, "memory_backend/keys.py", r"^PROTOCOL_VERSION = \d+$", f"PROTOCOL_VERSION = {NEWER}")
    return run


@pytest.mark.long
def test_an_upgrade_under_a_running_job_ends_it_when_the_learner_starts_again(start_run, unhurried, install):
    run = start_upgradable(start_run, install, unhurried)
    run.kill("learner", 0)
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (6, 6, "memory backend")
    assert (summary.restarts, summary.imbalance) == (1, 0)
    assert REFUSED in summary.error
    assert run.errors.read_text().endswith(f"distrl: error: {summary.error}\n")


@pytest.mark.long
def test_an_upgrade_under_a_running_job_costs_the_actor_that_starts_again(start_run, unhurried, install):
    """An actor that cannot use the store may be alone with that: the run reports it and goes on with the others."""
    run = start_upgradable(start_run, install, unhurried)
    run.kill("actor", 0)
    events = run.run_dir / "logs" / "events.log"
    run.wait_until(lambda: REFUSED in events.read_text(), "the actor is refused")
    run.wait_for_updates(run.updates + 3)
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.imbalance) == (0, 0)
    assert any((run.run_dir / "checkpoints").glob("ckpt-*"))
