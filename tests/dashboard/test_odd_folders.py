"""Directories that are no run of distrl's cost one row each: the list, a run's page, the fleet and /metrics go on."""

import json
import os
import subprocess
import sys

import pytest

ROWS = {
    "a pid of 31 digits": "damaged",
    "a pid of minus one": "damaged",
    "a start in the far future": "damaged",
    "a summary of megabytes": "damaged",
    "a seed of 6,000 digits": "gone",
    "half a character": "gone",
    "numbers that JSON does not know": "running",
    "a table of nonsense": "running",
    r"not UTF-8: caf\xe9": "ended",
    "sound": "ended",
}


@pytest.fixture
def odd(root, make_run, alive):
    """One directory per row."""

    def record(name, **changes):
        folder = make_run(name, ended=False)
        (folder / "run.json").write_text(json.dumps({"run_id": "r", "redis_url": None, "pid": 1, **changes}))

    record("a pid of 31 digits", pid=10**30)
    record("a pid of minus one", pid=-1)
    record("a start in the far future", started=1e300)
    (make_run("a summary of megabytes") / "summary.json").write_bytes(b" " * 2**21)
    make_run("a seed of 6,000 digits", ended=False, config=f"seed: 0x{'f' * 6000}\n")
    make_run("half a character", ended=False, config='environment: {id: "\\ud800"}\n')
    make_run("numbers that JSON does not know", ended=False, pid=alive, config="seed: .inf\nmore: [.nan, 2020-01-01]\n")
    (make_run("a table of nonsense", ended=False, pid=alive) / "metrics.csv").write_text(
        "env_steps,updates,restarts\n" + "inf,nan,1e400\n"
    )
    make_run("latin").rename(os.fsdecode(os.fsencode(root) + b"/not UTF-8: caf\xe9"))
    make_run("sound")


def test_each_is_one_row(odd, page):
    client = page()
    rows = {row["name"]: row for row in client.get("/api/runs").json()["runs"]}
    assert {name: row["state"] for name, row in rows.items()} == ROWS
    assert all(row["problem"] for row in rows.values() if row["state"] == "damaged")
    for path in ("/api/fleet", "/metrics"):
        assert client.get(path).status_code == 200
    for row in rows.values():
        answer = client.get(f"/api/runs/{row['id']}")
        assert answer.status_code == 200, (row["name"], answer.text)
        configuration = client.get(f"/api/runs/{row['id']}/config")
        assert configuration.status_code in (200, 400), (row["name"], configuration.text)
    infinite = client.get(f"/api/runs/{rows['numbers that JSON does not know']['id']}/config").json()["values"]
    assert [(one["path"], one["value"], one["text"]) for one in infinite] == [
        ("seed", None, ".inf"),
        ("more", [None, "2020-01-01"], "[.nan, 2020-01-01]"),
    ]
    latin = rows[r"not UTF-8: caf\xe9"]
    assert client.get(f"/api/runs/{latin['id']}/curve").json()["curves"]["mean_return_100"]["y"] == [10.0, 20.0, 30.0]


def test_the_command_lists_the_sound_ones_and_one_line_for_each_other(odd, root):
    command = [sys.executable, "-m", "distrl", "runs", str(root)]
    told, as_json = (subprocess.run([*command, *more], capture_output=True, text=True) for more in ([], ["--json"]))
    assert told.returncode == as_json.returncode == 0, told.stderr
    assert "sound" in told.stdout
    assert "caf?" in told.stdout
    lines = told.stderr.splitlines()
    assert len(lines) == sum(state == "damaged" for state in ROWS.values())
    assert all(line.startswith("distrl: passed over: ") for line in lines)
    assert len(json.loads(as_json.stdout)) == len(ROWS) - len(lines)
