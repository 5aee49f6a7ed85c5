"""URLs of data stores: what is refused, and that an error never repeats credentials."""

import pytest

from distrl.config.load import load
from distrl.config.stores import checked_store_url, is_store_url, split_run
from distrl.errors import ConfigError


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a/b", "gs://b/x", "az://c/x", "file:///shared/my runs"])
def test_stores(url):
    assert checked_store_url(url, "x") == checked_store_url(f"{url}/", "x") == url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("bucket/path", "is no data store; it begins with one of s3://, gs://, az://, file://"),
        ("http://host/path", "is no data store"),
        ("memory://x", "is no data store"),
        ("s3://KEY:SECRET@bucket/path", "holds credentials or options"),
        ("https://KEY:SECRET@host", "is no data store"),
        ("s3://bucket/path?secret=SECRET", "holds credentials or options"),
        ("s3:///path", "names no bucket"),
        ("file://host/path", "name an absolute path"),
        ("file://", "name an absolute path"),
        ("s3://bucket/../x", "the path of"),
        ("s3://bucket/a\x1b[0m", "the path of"),
    ],
)
def test_others_are_refused_in_one_line_without_their_credentials(url, says):
    with pytest.raises(ConfigError) as refused:
        checked_store_url(url, "checkpoint.store")
    text = str(refused.value)
    assert text.startswith("checkpoint.store")
    assert says in text
    assert "SECRET" not in text
    assert text.isprintable()


def test_a_run_in_a_store():
    assert split_run("s3://bucket/runs/r1", "x") == ("s3://bucket/runs", "r1")
    assert split_run("s3://bucket/r1/", "x") == ("s3://bucket", "r1")
    for url in ("s3://bucket", "file:///", "runs/first"):
        with pytest.raises(ConfigError, match=r"names no|no data store"):
            split_run(url, "x")


@pytest.mark.parametrize(("text", "is_one"), [("s3://b/r", True), ("runs/x", False), ("tcp://h", False), ("s3", False)])
def test_a_store_and_a_path(text, is_one):
    assert is_store_url(text) is is_one


def test_a_configuration_refuses_credentials():
    with pytest.raises(ConfigError, match=r"^checkpoint\.store holds credentials") as refused:
        load("cartpole-impala", sets=["checkpoint.store=s3://KEY:SECRET@bucket"])
    assert "SECRET" not in str(refused.value)


def test_settings_that_would_not_be_used():
    with pytest.raises(ConfigError, match=r"has no use without checkpoint\.store"):
        load("cartpole-impala", sets=["checkpoint.store_give_up_s=5"])
    with pytest.raises(ConfigError, match=r"must be less than learner\.stall_timeout_s: 300"):
        load("cartpole-impala", sets=["checkpoint.store=file:///x", "checkpoint.store_give_up_s=300"])
