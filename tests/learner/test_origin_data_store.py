"""The origin of a learner whose run has a data store: what is fetched, what stays, and a store that does not answer."""

import pytest

from distrl.config.checkpoint import CheckpointConfig
from distrl.data_store.fetching import write_writer
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import StoredRun
from distrl.errors import StoreError
from distrl.learner import origin
from distrl.learner.origin import Place, look_into_store
from tests.data_store.stores import Breaking, held, saved, store_steps


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/s"


@pytest.fixture
def here(tmp_path):
    return tmp_path / "here"


@pytest.fixture
def down(url, monkeypatch):
    """Make the store stop to answer."""

    def stop():
        objects = Breaking(url)
        objects.down = True
        monkeypatch.setattr(origin, "open_objects", lambda url: objects)
        monkeypatch.setattr(origin, "RETRY_S", 0.01)

    return stop


def look(url, here, *, own, resumed=0):
    return look_into_store(CheckpointConfig(store=url, store_give_up_s=0.1), Place(here, own, resumed), "r")


def test_without_a_store(here):
    assert look(None, here, own=True) is None


@pytest.mark.row("D63", "T08")
def test_a_node_with_an_empty_disk_takes_the_newest(url, here, tmp_path):
    store_steps(StoredRun(open_objects(url), "r"), tmp_path / "other", 1, 2)
    found = look(url, here, own=False, resumed=1)
    assert held(here) == 2.0
    assert (found.after, found.place.own) == (1, True)
    assert "fetched checkpoint 000001-000000000002" in found.note


def test_the_directory_is_as_new(url, here, tmp_path):
    store_steps(StoredRun(open_objects(url), "r"), tmp_path / "other", 2)
    saved(here, 3)
    write_writer(here, "r", 1)
    found = look(url, here, own=False)
    assert held(here) == 3.0
    assert (found.after, found.place.own, found.note) == (1, True, None)


def test_a_store_without_checkpoints_says_that_there_are_none(url, here):
    assert look(url, here, own=False).place.own


def test_checkpoints_of_another_run_do_not_make_a_directory_the_run_s_own(url, here):
    saved(here, 3)
    write_writer(here, "another", 1)
    assert not look(url, here, own=False).place.own


def test_a_restarted_learner_goes_on_from_its_directory_while_the_store_is_away(url, here, down):
    saved(here, 3)
    write_writer(here, "r", 4)
    down()
    found = look(url, here, own=True)
    assert (found.after, found.place.own, found.note) == (4, True, None)


@pytest.mark.parametrize(("own", "resumed"), [(False, 0), (True, 5)])
def test_a_node_that_knows_nothing_needs_the_store(url, here, down, own, resumed):
    down()
    with pytest.raises(StoreError, match="no answer"):
        look(url, here, own=own, resumed=resumed)
