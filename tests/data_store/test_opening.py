"""The interface over a bucket and a shared disk: the same tests for both, and what each refuses."""

import io
import os
import subprocess
import sys

import pytest

from distrl.data_store.local_objects import LocalObjects
from distrl.data_store.objects import BLOCK_BYTES
from distrl.data_store.opening import open_objects, require_usable
from distrl.data_store.remote_objects import RemoteObjects
from distrl.errors import ConfigError, MissingExtraError, StoreError
from tests.data_store.stores import KINDS, make_store


@pytest.fixture(params=KINDS)
def store(request, tmp_path):
    return make_store(request.param, tmp_path)


def test_objects(store):
    assert store.get("a/b/c") is None
    assert store.sizes("a") == {}
    store.put("a/b/c", b"one")
    store.put("a/b/c", b"two!")
    store.put_stream("a/d", io.BytesIO(b"x" * 10))
    store.put("z/e", b"")
    assert store.get("a/b/c") == b"two!"
    assert store.sizes("a") == {"a/b/c": 4, "a/d": 10}
    assert store.folders() == ["a", "z"]
    store.remove(["a/b/c", "a/not-there"])
    assert store.get("a/b/c") is None
    assert store.sizes("a") == {"a/d": 10}


def test_an_object_is_created_once(store):
    assert store.create("claim", b"first")
    assert not store.create("claim", b"second")
    assert store.get("claim") == b"first"


def test_large_objects_come_in_blocks(store):
    content = os.urandom(BLOCK_BYTES + 1)
    store.put("large", content)
    blocks = [*store.blocks("large", len(content))]
    assert [len(block) for block in blocks] == [BLOCK_BYTES, 1]
    assert b"".join(blocks) == content
    assert [*store.blocks("none", 5)] == []


def test_the_check_leaves_nothing(store):
    require_usable(store)
    assert store.sizes("") == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_replaces_what_must_only_be_created_is_refused(kind, tmp_path, monkeypatch):
    store = make_store(kind, tmp_path)
    monkeypatch.setattr(store, "create", lambda name, content: store.put(name, content) or True)
    with pytest.raises(ConfigError, match="two learners could not be told apart"):
        require_usable(store)


def test_a_missing_parent_is_most_often_a_disk_that_is_not_mounted(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be used: file:.*No such file or directory"):
        require_usable(open_objects(f"file://{tmp_path}/not/mounted"))
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give its rights up")
def test_no_rights(tmp_path):
    (tmp_path / "s").mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    code = (
        "import os, sys; from distrl.data_store.opening import *; os.setuid(65534)\n"
        "require_usable(open_objects(sys.argv[1]))"
    )
    ended = subprocess.run([sys.executable, "-c", code, f"file://{tmp_path}/s"], capture_output=True, text=True)
    assert "ConfigError: checkpoint.store cannot be used: file:" in ended.stderr
    assert "Permission denied" in ended.stderr
    assert not [*(tmp_path / "s").iterdir()]


def test_errors_name_the_store_and_keep_their_cause(store, monkeypatch):
    def fail(*arguments, **options):
        raise PermissionError(13, "Access denied")

    if isinstance(store, RemoteObjects):
        monkeypatch.setattr(store._files, "pipe_file", fail)
    else:
        monkeypatch.setattr("os.rename", fail)
    with pytest.raises(StoreError, match=f"^{store.url}.*Access denied") as refused:
        store.put("a", b"")
    assert isinstance(refused.value.__cause__, PermissionError)
    assert isinstance(store, LocalObjects) or "must allow to list, read, write and delete" in str(refused.value)


def test_the_library_of_a_bucket_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"s3fs, for s3://, is not installed: pip install .*\[s3\]"):
        open_objects("s3://bucket/x")
