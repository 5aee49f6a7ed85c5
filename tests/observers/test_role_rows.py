"""roles.csv: one row for each role at intervals, over launches and within a bound."""

import csv
import resource
import signal

import pytest
from distrl.launch.role_rows import RoleRows

from distrl.launch import role_rows
from distrl.memory_backend.records import RoleStatus

ROLES = [
    RoleStatus(
        "actor", 0, 2, "host", 1, "acting", env_steps=640, env_steps_per_s=64.5, rss_mb=90.0, blocked_share=0.25
    ),
    RoleStatus("learner", 0, 1, "host, 1", 1, "training", weights_version=7, cpu_share=0.75),
]


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.row("P06")
def test_a_row_for_each_role_at_each_interval_goes_on_in_a_resumed_run(tmp_path):
    path = tmp_path / "roles.csv"
    seldom = RoleRows(path, 3600.0)
    seldom.write([])  # no role is up yet
    assert not path.exists()
    seldom.write(ROLES)
    seldom.write(ROLES)
    actor, learner = read(path)
    assert (actor["role"], actor["incarnation"], actor["env_steps"], actor["env_steps_per_s"]) == (
        *("actor", "2", "640", "64.5"),
    )
    assert (actor["rss_mb"], actor["blocked_share"], learner["cpu_share"]) == ("90.0", "0.25", "0.75")
    assert (learner["host"], learner["weights_version"]) == ("host, 1", "7")
    with path.open("a") as file:
        file.write("2026-01-01T00:00:00+00:00,act")  # the process was killed
    RoleRows(path, 3600.0).write(ROLES)
    assert [row["role"] for row in read(path)] == ["actor", "learner"] * 2
    RoleRows(tmp_path / "none.csv", None).write(ROLES)
    assert not (tmp_path / "none.csv").exists()


def test_the_file_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(role_rows, "MOST_BYTES", 500)
    rows = RoleRows(tmp_path / "roles.csv", 1e-9)
    for _ in range(20):
        rows.write(ROLES)
    files = {path.name: len(read(path)) for path in tmp_path.iterdir()}
    assert files.keys() == {"roles.csv", "roles.1.csv"}
    assert 2 <= sum(files.values()) < 20


def test_a_row_that_a_full_disk_has_cut_is_removed(tmp_path):
    path = tmp_path / "roles.csv"
    rows = RoleRows(path, 1e-9)
    rows.write(ROLES)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handled = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            rows.write(ROLES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handled)
    rows.write(ROLES)
    assert [(row["role"], row["host"]) for row in read(path)] == [("actor", "host"), ("learner", "host, 1")] * 2


def test_a_file_with_other_columns_is_put_aside(tmp_path):
    path = tmp_path / "roles.csv"
    path.write_text("time,role\n2026-01-01T00:00:00+00:00,actor\n")
    RoleRows(path, 3600.0).write(ROLES)
    assert [row["role"] for row in read(path)] == ["actor", "learner"]
    assert read(tmp_path / "roles.1.csv") == [{"time": "2026-01-01T00:00:00+00:00", "role": "actor"}]
