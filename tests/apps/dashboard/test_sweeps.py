import json
import os

import pytest

from distrl.apps.dashboard.files import NotThereError, id_of
from distrl.apps.dashboard.payloads import Runs
from distrl.apps.dashboard.sweeps import described, find_sweep, find_sweeps, sweeps_of


@pytest.fixture
def index(root):
    runs = Runs(root)
    yield runs.index
    runs.index.close()


def test_the_state_of_a_sweep(index, make_run, root, alive):
    make_run("rates/0001", stop_reason="env_steps")
    make_run("rates/0002", exit_code=1, error="it broke")
    make_run("rates/0003", ended=False)
    make_run("rates/0004", stop_reason="SIGTERM")
    make_run("rates/0005", exit_code=130)
    failed = {"run": "0006", "seed": 1, "settings": {}, "state": "failed", "error": "no such environment"}
    begun = [{"run": f"000{n}", "seed": 1, "settings": {}, "state": "done", "error": None} for n in range(1, 6)]
    told = {"format": 1, "minutes": 2.5, "planned": 9, "runs": [*begun, failed]}
    (root / "rates" / "sweep.json").write_text(json.dumps(told))
    (root / "rates" / "sweep.yaml").write_text("vary: {a: [1, 2]}\n")
    make_run("other")
    (found,) = find_sweeps(index)
    state = described(found)
    assert state["counts"] == {"done": 1, "failed": 2, "running": 0, "interrupted": 3}
    assert (state["planned"], state["left"], state["minutes"], state["kind"]) == (9, 3, 2.5, "sweep")
    assert state["failures"] == [{"run": "0006", "error": "no such environment"}]
    assert (state["id"], state["name"], state["varied"]) == (id_of("rates"), "rates", ["a"])
    assert find_sweep(index, id_of("rates")).entries == found.entries
    chosen = [index.entry(id_of(name)) for name in ("rates/0001", "other")]
    assert sweeps_of(index, chosen) == [{"id": id_of("rates"), "name": "rates", "runs": 5}]
    with pytest.raises(NotThereError):
        find_sweep(index, id_of("other"))


def test_the_folder_of_runs_may_be_a_sweep(index, make_run, root):
    make_run("0001")
    (root / "search.yaml").write_text("vary: {a: [1]}\ntrials: 3\n")
    state = described(find_sweep(index, id_of("")))
    assert (state["kind"], state["name"], state["left"]) == ("search", "runs", 2)


def test_damaged_files_and_links_out_of_the_folder(index, make_run, root, tmp_path):
    make_run("damaged/0001")
    (root / "damaged" / "sweep.yaml").write_text("vary: {a: [1]}\n")
    (root / "damaged" / "sweep.json").write_text("no")
    make_run("linked/0001")
    (tmp_path / "sweep.yaml").write_text("vary: {a: [1]}\n")
    (root / "linked" / "sweep.yaml").symlink_to(tmp_path / "sweep.yaml")
    make_run("pipe/0001")
    os.mkfifo(root / "pipe" / "sweep.yaml")
    (found,) = find_sweeps(index)
    state = described(found)
    assert state["name"] == "damaged"
    assert "file sweep.json is damaged" in state["problem"]
    assert str(tmp_path) not in state["problem"]
    assert state["counts"]["done"] == 1


def test_yaml_that_takes_seconds_is_refused(index, make_run, root):
    make_run("rates/0001")
    (root / "rates" / "sweep.yaml").write_text("vary:\n" + " a: 1\n" * 2**16)
    (found,) = find_sweeps(index)
    assert "more than 262,144" in found.problem


def test_errors_have_no_secrets(index, make_run, root):
    make_run("rates/0001")
    failed = {"run": "0002", "state": "failed", "error": "redis://me:pw@host password=abc \u202e"}
    (root / "rates" / "sweep.json").write_text(json.dumps({"runs": [failed]}))
    (root / "rates" / "sweep.yaml").write_text("vary: {}\n")
    (found,) = find_sweeps(index)
    assert described(found)["failures"][0]["error"] == "redis://•••@host password=••• ⟨U+202E⟩"
