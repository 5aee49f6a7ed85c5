import numpy as np
import pytest

from distrl.apps.dashboard import event_files
from distrl.apps.dashboard.event_files import Histogram, heat_map, read_histograms, tags
from distrl.errors import ConfigError
from distrl.metrics.event_file import EventFile
from tests.event_files import read_events


@pytest.fixture
def written(tmp_path):
    """One file with two tags, and a scalar and a text between them."""
    file = EventFile(tmp_path)
    file.text("configuration", "text")
    for step in (100, 200, 2**40):
        file.scalar("loss/loss", 1.0, step)
        file.histogram("variables/a", np.arange(step % 1000 + 10, dtype=np.float32), step)
        file.histogram("gradients/a", np.zeros(5), step)
    file.close()
    return sorted(tmp_path.iterdir())


def test_histograms_are_read_as_tensorflow_reads_them(written):
    assert tags(written) == (["gradients/a", "variables/a"], True)
    found, complete = read_histograms(written, "variables/a")
    assert complete
    theirs = read_events(written[0].parent).histograms
    assert [one.step for one in found] == [100, 200, 2**40]
    for one in found:
        histogram = theirs["variables/a", one.step]
        np.testing.assert_allclose(one.edges[1:], histogram.bucket_limit)
        np.testing.assert_allclose(one.shares, np.array(histogram.bucket) / sum(histogram.bucket))
        assert one.edges[0] <= histogram.min


def test_a_record_that_is_being_written_is_left_out(written):
    data = written[0].read_bytes()
    written[0].write_bytes(data[:-3])
    assert [one.step for one in read_histograms(written, "gradients/a")[0]] == [100, 200]


@pytest.mark.parametrize(
    ("damage", "told"), [(b"\xff" * 40, "a record of"), (b"\x04" + b"\0" * 11 + b"\x0f" * 4 + b"\0" * 4, "is damaged")]
)
def test_damage_is_told_with_the_file(written, damage, told):
    written[0].write_bytes(written[0].read_bytes() + damage)
    with pytest.raises(ConfigError, match=told):
        tags(written)


def test_no_more_is_read_than_the_bound(written, monkeypatch):
    monkeypatch.setattr(event_files, "MOST_BYTES", written[0].stat().st_size // 2)
    monkeypatch.setattr(event_files, "FIELD_BYTES", 0)
    found, complete = read_histograms(written, "variables/a")
    assert not complete
    assert 0 < len(found) < 3


def test_a_heat_map_by_hand():
    first = Histogram(1, np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.5]))
    second = Histogram(2, np.array([2.0, 4.0]), np.array([1.0]))
    shown = heat_map([first, second], columns=10, rows=4)
    assert shown.steps == [1, 2]
    np.testing.assert_allclose(shown.edges, [0.0, 1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(shown.shares, [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    many = [first._replace(step=step) for step in range(100)]
    assert heat_map(many, columns=3, rows=2).steps == [0, 49, 99]


def test_a_histogram_of_one_value_has_a_place():
    one = Histogram(1, np.array([3.0, 3.0]), np.array([1.0]))
    assert heat_map([one], 2, 2).edges.tolist() == [2.5, 3.0, 3.5]


def test_records_of_tiny_fields_count_for_more_than_their_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(event_files, "MOST_BYTES", 2**20)
    path = tmp_path / "events.out.tfevents.1"
    record = b"\x08\x01" * 2**17  # a quarter of the bound, and 131,072 fields
    path.write_bytes(len(record).to_bytes(8, "little") + bytes(4) + record + bytes(4))
    assert tags([path]) == ([], False)
