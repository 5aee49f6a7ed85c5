"""bsuite's log of a training. `make references` plays bsuite's tasks."""

import pytest

from benchmarks.behaviour.environment import read_log


def test_rows_are_numbers(tmp_path):
    (tmp_path / "bsuite_id_-_deep_sea-0.csv").write_text(",steps,episode,total_return\n0,10,1,0.5\n1,20,2,-1.0\n")
    assert read_log(tmp_path) == [
        {"steps": 10.0, "episode": 1.0, "total_return": 0.5},
        {"steps": 20.0, "episode": 2.0, "total_return": -1.0},
    ]


def test_a_folder_without_a_log_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no log in "):
        read_log(tmp_path)
