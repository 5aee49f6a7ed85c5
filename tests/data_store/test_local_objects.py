"""A store on a shared disk in which others have laid links, pipes and folders: nothing of them is followed."""

import io
import os

import pytest

from distrl.data_store.fetching import RUN_FILES, fetch_files, fetch_newest
from distrl.data_store.local_objects import LocalObjects
from distrl.data_store.stored_run import StoredRun
from distrl.errors import StoreError
from tests.data_store.stores import held, saved, store_steps


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "elsewhere" / "secret"
    path.parent.mkdir()
    path.write_bytes(b"secret")
    return path


@pytest.fixture
def store(tmp_path):
    (tmp_path / "s" / "run").mkdir(parents=True)
    return LocalObjects(f"file://{tmp_path}/s")


READS = {"get": lambda store, name: store.get(name), "blocks": lambda store, name: [*store.blocks(name, 6)]}
WRITES = {
    "put": lambda store, name: store.put(name, b"mine"),
    "put_stream": lambda store, name: store.put_stream(name, io.BytesIO(b"mine")),
    "create": lambda store, name: store.create(name, b"mine"),
    "remove": lambda store, name: store.remove([name]),
}


@pytest.mark.parametrize("use", READS)
def test_a_link_in_place_of_an_object_is_not_read(store, secret, tmp_path, use):
    (tmp_path / "s" / "run" / "link").symlink_to(secret)
    with pytest.raises(StoreError, match=r"run/link: it is a link; .*remove it"):
        READS[use](store, "run/link")
    assert store.sizes("run") == {}


@pytest.mark.parametrize("use", [*READS, *WRITES])
def test_a_link_in_place_of_a_folder_leads_nowhere(store, secret, tmp_path, use):
    (tmp_path / "s" / "run" / "logs").symlink_to(secret.parent)
    with pytest.raises(StoreError, match=r"run/logs/secret: logs is a link; .*remove it"):
        (READS | WRITES)[use](store, "run/logs/secret")
    assert store.sizes("run") == {}
    assert {path.name: path.read_bytes() for path in secret.parent.iterdir()} == {"secret": b"secret"}


def test_a_link_is_replaced_or_removed_itself(store, secret, tmp_path):
    link = tmp_path / "s" / "run" / "link"
    link.symlink_to(secret)
    assert not store.create("run/link", b"mine")
    store.put("run/link", b"mine")
    assert store.get("run/link") == b"mine"
    link.unlink()
    link.symlink_to(secret)
    store.remove(["run/link"])
    assert not os.path.lexists(link)
    assert secret.read_bytes() == b"secret"


def test_a_run_that_is_a_link_is_none(store, secret, tmp_path):
    (tmp_path / "s" / "other").symlink_to(secret.parent)
    assert store.folders() == ["run"]
    with pytest.raises(StoreError, match="other is a link"):
        StoredRun(store, "other").look()


def test_names_do_not_lead_out(store, secret):
    with pytest.raises(StoreError, match=r"a part of the name is \. or \.\."):
        store.get("run/../../elsewhere/secret")


def test_a_pipe_does_not_block(store, tmp_path):
    os.mkfifo(tmp_path / "s" / "run" / "config.yaml")
    with pytest.raises(StoreError, match=r"config\.yaml: it is not a regular file"):
        store.get("run/config.yaml")
    assert store.sizes("run") == {}


def test_remains_of_killed_writers_go_with_their_folder(store, tmp_path):
    store.put("run/a/b", b"")
    (tmp_path / "s" / "run" / "a" / ".tmp-12ab-replay.npz").write_bytes(b"half")
    store.remove(["run/a/b"])
    assert not (tmp_path / "s" / "run" / "a").exists()


def test_links_among_the_files_of_a_run_are_not_copied(store, secret, tmp_path):
    run = StoredRun(store, "run")
    store.put("run/logs/learner.log", b"line")
    (tmp_path / "s" / "run" / "logs" / "actor-0.log").symlink_to(secret)
    (tmp_path / "s" / "run" / "policy").symlink_to(secret.parent)
    with pytest.raises(StoreError, match="policy is a link"):
        fetch_files(run, tmp_path / "here", RUN_FILES)
    fetch_files(run, tmp_path / "here", ["logs/"])
    assert [path.name for path in (tmp_path / "here" / "logs").iterdir()] == ["learner.log"]


def test_a_checkpoint_with_a_link_or_a_folder_inside(store, secret, tmp_path):
    run = StoredRun(store, "run")
    store_steps(run, tmp_path / "there", 1, 2)
    newest = tmp_path / "s" / "run" / "checkpoints" / "000001-000000000002"
    (newest / "folder").mkdir()
    (newest / "folder" / "file").write_bytes(b"")
    assert fetch_newest(run, tmp_path / "one", (), print).position.step == 2
    (newest / "main.online.npz").unlink()
    (newest / "main.online.npz").symlink_to(secret)
    assert fetch_newest(run, tmp_path / "two", (), print).position.step == 1
    assert held(tmp_path / "two") == 1.0


def test_a_folder_inside_a_checkpoint_of_the_directory_is_not_stored(store, tmp_path):
    run = StoredRun(store, "run")
    writer = store_steps(run, tmp_path / "there")
    path = saved(tmp_path / "there", 3)
    (path / "folder").mkdir()
    writer.store(path, 3, {}, best=False, keep=5)
    names = store.sizes("run/checkpoints/000001-000000000003")
    assert {name.rpartition("/")[2] for name in names} == {"main.online.npz", "manifest.json", "meta.json"}
