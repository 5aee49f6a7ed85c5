"""roles.csv: one row for each role at intervals, over launches and within a bound."""

import csv
import resource
import signal

import pytest

from distrl.config import RunConfig
from distrl.memory_backend.records import RoleStatus
from distrl.observers import role_rows
from distrl.observers.fleet_state import FleetState
from distrl.observers.observer import ObservedRun
from distrl.observers.role_rows import RoleRows
from distrl.terminal.console import PlainView

ROLES = [
    RoleStatus(
        "actor", 0, 2, "host", 1, "acting", env_steps=640, env_steps_per_s=64.5, rss_mb=90.0, blocked_share=0.25
    ),
    RoleStatus("learner", 0, 1, "host, 1", 1, "training", weights_version=7, cpu_share=0.75),
]


FLEET = FleetState(actors=1, roles=ROLES)


def observer_of(run_dir, every_s):
    config = RunConfig.model_validate({"launch": {"role_rows_s": every_s}})
    return RoleRows(ObservedRun("r", run_dir, config, False, PlainView(print), print))


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.row("P06")
def test_a_row_for_each_role_at_each_interval_goes_on_in_a_resumed_run(tmp_path):
    path = tmp_path / "roles.csv"
    seldom = observer_of(tmp_path, 3600.0)
    seldom.roles(FleetState(actors=1))  # no role is up yet
    assert not path.exists()
    seldom.roles(FLEET)
    seldom.roles(FLEET)
    actor, learner = read(path)
    assert (actor["role"], actor["incarnation"], actor["env_steps"], actor["env_steps_per_s"]) == (
        *("actor", "2", "640", "64.5"),
    )
    assert (actor["rss_mb"], actor["blocked_share"], learner["cpu_share"]) == ("90.0", "0.25", "0.75")
    assert (learner["host"], learner["weights_version"]) == ("host, 1", "7")
    with path.open("a") as file:
        file.write("2026-01-01T00:00:00+00:00,act")  # the process was killed
    observer_of(tmp_path, 3600.0).roles(FLEET)
    assert [row["role"] for row in read(path)] == ["actor", "learner"] * 2
    observer_of(tmp_path / "other", None).roles(FLEET)
    assert not (tmp_path / "other").exists()


def test_the_file_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(role_rows, "MOST_BYTES", 500)
    rows = observer_of(tmp_path, 1e-9)
    for _ in range(20):
        rows.roles(FLEET)
    files = {path.name: len(read(path)) for path in tmp_path.iterdir()}
    assert files.keys() == {"roles.csv", "roles.1.csv"}
    assert 2 <= sum(files.values()) < 20


def test_a_row_that_a_full_disk_has_cut_is_removed(tmp_path):
    path = tmp_path / "roles.csv"
    rows = observer_of(tmp_path, 1e-9)
    rows.roles(FLEET)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handled = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            rows.roles(FLEET)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handled)
    rows.roles(FLEET)
    assert [(row["role"], row["host"]) for row in read(path)] == [("actor", "host"), ("learner", "host, 1")] * 2


def test_a_file_with_other_columns_is_put_aside(tmp_path):
    path = tmp_path / "roles.csv"
    path.write_text("time,role\n2026-01-01T00:00:00+00:00,actor\n")
    observer_of(tmp_path, 3600.0).roles(FLEET)
    assert [row["role"] for row in read(path)] == ["actor", "learner"]
    assert read(tmp_path / "roles.1.csv") == [{"time": "2026-01-01T00:00:00+00:00", "role": "actor"}]
