"""EventFile: what TensorFlow reads of it."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from distrl.metrics.event_file import MOST_NUMBERS, EventFile
from tests.event_files import read_events


@pytest.fixture
def written(tmp_path):
    """written(lambda file: ...): what is in the file afterwards."""

    def write(use):
        file = EventFile(tmp_path / "made" / "here")
        use(file)
        file.close()
        return read_events(tmp_path / "made" / "here")

    return write


def test_numbers_and_text(written):
    def use(file):
        file.scalar("loss/loss", 0.5, 10)
        file.scalar("loss/loss", 0.25, 20)
        file.text("notes", "**bold** ä")

    found = written(use)
    assert found.scalars == {("loss/loss", 10): 0.5, ("loss/loss", 20): 0.25}
    assert found.texts == {"notes": "**bold** ä"}


def test_a_histogram_by_hand(written):
    values = np.array([[0.0, 1.0], [1.0, 4.0]])
    histogram = written(lambda file: file.histogram("weights", values, 7)).histograms["weights", 7]
    assert (histogram.num, histogram.min, histogram.max, histogram.sum) == (4, 0.0, 4.0, 6.0)
    assert histogram.sum_squares == 18.0
    assert sum(histogram.bucket) == 4


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32"])
def test_every_kind_of_number(written, dtype):
    values = np.arange(300).reshape(3, 100).astype(dtype)
    histogram = written(lambda file: file.histogram("rows", values, 0)).histograms["rows", 0]
    assert (histogram.num, histogram.sum) == (300, float(values.astype(np.float64).sum()))


def test_of_many_numbers_evenly_spread_ones(written):
    values = np.arange(5 * MOST_NUMBERS + 1, dtype=np.int32)
    histogram = written(lambda file: file.histogram("rows", values, 0)).histograms["rows", 0]
    assert histogram.num == -(-values.size // 6)
    assert (histogram.min, histogram.max) == (0.0, float(values[::6][-1]))


@pytest.mark.parametrize(
    "values",
    [
        [3.0] * 20,
        [0.3, 0.1 + 0.2] * 20,  # neighbours in float64
        [-1.7e308, 1.7e308],
        [5e-324, 0.0],
        [1.7e18, 1.7e18 + 256],
        [-np.finfo(np.float64).max, np.finfo(np.float64).max],
    ],
)
def test_numbers_that_no_bins_can_tell_apart(written, values):
    histogram = written(lambda file: file.histogram("rows", np.array(values), 0)).histograms["rows", 0]
    assert (histogram.num, sum(histogram.bucket)) == (len(values), len(values))
    assert (histogram.min, histogram.max) == (min(values), max(values))


def test_files_of_one_second_do_not_overwrite_each_other(tmp_path):
    files = [EventFile(tmp_path) for _ in range(3)]
    for step, file in enumerate(files):
        file.scalar("loss/loss", 1.0, step)
        file.close()
    assert len(read_events(tmp_path).scalars) == 3


def test_what_is_not_finite_is_left_out_and_of_nothing_there_is_none(written):
    def use(file):
        file.histogram("some", np.array([np.nan, 1.0, np.inf, 3.0]), 0)
        file.histogram("none", np.array([np.nan]), 0)
        file.histogram("empty", np.zeros((0, 3)), 0)

    found = written(use)
    assert [*found.histograms] == [("some", 0)]
    assert (found.histograms["some", 0].num, found.histograms["some", 0].sum) == (2, 4.0)


def test_it_is_written_by_no_thread_and_without_a_framework(tmp_path):
    before = threading.active_count()
    file = EventFile(tmp_path)
    file.scalar("loss/loss", 1.0, 1)
    file.flush()
    assert threading.active_count() == before
    assert read_events(tmp_path).scalars  # while it is open
    file.close()
    code = (
        "import sys; from pathlib import Path; from distrl.metrics.event_file import EventFile\n"
        f"file = EventFile(Path({str(tmp_path)!r})); file.scalar('a', 1.0, 1); file.close()\n"
        "print(sorted({'tensorflow', 'tensorboard', 'torch', 'keras', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
