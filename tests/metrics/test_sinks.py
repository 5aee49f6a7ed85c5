import csv
import subprocess
import sys

import pytest

from distrl.metrics.sinks import CsvSink, TensorBoardSink
from distrl.metrics.snapshot import COLUMNS


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def column(path, name):
    return [row[name] for row in rows(path)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.csv"


def test_header_once_and_each_row_at_once(path):
    sink = CsvSink(path)
    sink.write({"updates": 1, "env_steps": 2048, "loss": 0.1, "mean_return_100": None, "bottleneck": "actors"})
    assert column(path, "env_steps") == ["2048"]  # before the sink is closed
    sink.write({"updates": 2, "loss": 1 / 3})
    sink.close()
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert column(path, "loss") == ["0.1", "0.3333333333333333"]
    assert column(path, "mean_return_100") == ["", ""]
    assert column(path, "bottleneck") == ["actors", ""]


def test_floats_read_back_exactly(path):
    sink = CsvSink(path)
    values = [0.1, 1e-300, 123456789.123456789, 2.0]
    for updates, value in enumerate(values, 1):
        sink.write({"updates": updates, "loss": value})
    sink.close()
    assert [float(cell) for cell in column(path, "loss")] == values


def test_the_first_snapshots_own_metrics_get_columns_and_later_ones_are_refused(path):
    sink = CsvSink(path)
    sink.write({"updates": 1, "zeta": 1.0, "alpha": 2.0, "stop_reason": None, "first_update_unix_s": 1e9})
    assert path.read_text().splitlines()[0] == ",".join([*COLUMNS, "alpha", "zeta"])
    with pytest.raises(ValueError, match=r"no column of .*metrics\.csv is named beta"):
        sink.write({"updates": 2, "beta": 1.0})
    sink.close()
    assert column(path, "updates") == ["1"]


@pytest.mark.row("L16")
def test_what_every_network_has_others_of_gets_no_column(path):
    sink = CsvSink(path)
    sink.write({"updates": 1, "relu_zeros_max": 0.5, "network/relu_zeros/hidden": 0.5})
    sink.write({"updates": 2, "relu_zeros_max": 0.75, "network/relu_zeros/other": 0.75})
    sink.close()
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert column(path, "relu_zeros_max") == ["0.5", "0.75"]


def test_a_row_is_one_line(path):
    sink = CsvSink(path)
    sink.write({"updates": 1, "bottleneck": 'the "env",\nslow'})
    sink.close()
    assert len(path.read_text().splitlines()) == 2
    assert column(path, "bottleneck") == ['the "env", slow']


def test_a_resumed_run_replaces_the_rows_it_repeats(path):
    sink = CsvSink(path)
    for updates in (10, 20, 30, 40):
        sink.write({"updates": updates, "loss": float(updates)})
    sink.close()
    sink = CsvSink(path)  # resumed from a checkpoint at 25
    sink.write({"updates": 30, "loss": 0.5})
    assert column(path, "updates") == ["10", "20", "30"]
    sink.write({"updates": 40, "loss": 0.25})
    sink.close()
    assert column(path, "loss") == ["10.0", "20.0", "0.5", "0.25"]
    assert path.read_text().count("updates,") == 1


def test_a_learner_that_restarts_within_the_run_does_the_same(path):
    sink = CsvSink(path)
    for updates in (1, 2, 3, 2, 3, 3):
        sink.write({"updates": updates})
    sink.close()
    assert column(path, "updates") == ["1", "2", "3"]


def test_a_row_torn_by_a_crash_is_cut_off(path):
    sink = CsvSink(path)
    sink.write({"updates": 1, "env_steps": 5})
    sink.close()
    with path.open("a") as file:
        file.write("2,10")
    sink = CsvSink(path)
    sink.write({"updates": 2, "env_steps": 11})
    sink.close()
    assert column(path, "env_steps") == ["5", "11"]


def test_a_file_is_continued_under_its_own_header(path):
    path.write_text("wall_s,updates\n1.5,7\n")
    sink = CsvSink(path)
    sink.write({"updates": 8, "wall_s": 2.5})
    sink.close()
    assert path.read_text() == "wall_s,updates\n1.5,7\n2.5,8\n"


@pytest.mark.row("D47")
def test_tensorboard_gets_every_number_over_environment_steps(tmp_path):
    pytest.importorskip("tensorboardX")
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    sink = TensorBoardSink(tmp_path / "tensorboard")
    sink.write({"env_steps": 2048, "loss": 0.5, "updates": 1, "bottleneck": "actors", "first_update_unix_s": 1e9})
    sink.write(
        {
            "env_steps": 4096,
            "loss": 0.25,
            "updates": 2,
            "mean_return_100": None,
            "kl": 2.0,
            "network/relu_zeros/hidden": 0.5,
        }
    )
    sink.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    points = {
        (value.tag, event.step): value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value
        for event in loader.EventFileLoader(str(file)).Load()
        for value in event.summary.value
    }
    assert points == {
        ("loss/loss", 2048): 0.5,
        ("loss/loss", 4096): 0.25,
        ("progress/updates", 2048): 1.0,
        ("progress/updates", 4096): 2.0,
        ("algorithm/kl", 4096): 2.0,
        ("network/relu_zeros/hidden", 4096): 0.5,
    }


def test_tensorboard_files_are_written_without_tensorflow(tmp_path):
    pytest.importorskip("tensorboardX")
    code = (
        "import sys; from pathlib import Path; from distrl.metrics.sinks import TensorBoardSink as Sink\n"
        f"sink = Sink(Path({str(tmp_path)!r})); sink.write({{'env_steps': 1, 'loss': 1.0}}); sink.close()\n"
        "print(sorted({'tensorflow', 'tensorboard', 'torch', 'keras', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
