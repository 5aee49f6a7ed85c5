"""The section memory: which Redis it is, what protects it, and what has no use."""

import traceback

import pytest

from distrl.config import RunConfig
from distrl.errors import ConfigError


def test_keys_outlive_the_longest_outage():
    def memory(**fields):
        return RunConfig.model_validate({"memory": {"give_up_s": 500.0, **fields}})

    url = "redis://h"
    with pytest.raises(ValueError, match=r"memory.keep_s: 999 is too short.*; set it to 1000 or more"):
        memory(url=url, keep_s=999)
    assert memory(url=url, keep_s=1000).memory.keep_s == 1000


def test_a_redis_of_the_runs_own_keeps_no_keys():
    with pytest.raises(ValueError, match=r"memory.keep_s has no use without memory.url: the embedded Redis ends with"):
        RunConfig.model_validate({"memory": {"keep_s": 999}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("url", "redis://localhost"), ("listen", "auto"), ("namespace", "team-a"), ("compression", "lz4")),
        ("tls", {"ca_file": "a"}),
    ],
)
def test_one_process_refuses_what_only_redis_would_use(name, value):
    with pytest.raises(ValueError, match=rf"memory\.{name} has no use in one process"):
        RunConfig.model_validate({"actors": {"count": 0}, "memory": {name: value}})


@pytest.mark.parametrize("url", ["redis://me:s3cret@h", "rediss://:s3cret@h:1/0", "unix:///x?password=s3cret"])
def test_a_password_in_the_url_is_refused_and_not_shown(url):
    with pytest.raises(ConfigError, match=r"memory\.url holds a password.* DISTRL_REDIS_PASSWORD") as caught:
        RunConfig.model_validate({"memory": {"url": url}})
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_a_redis_that_is_named_does_not_listen_and_one_that_listens_with_tls_has_certificate_and_key():
    def memory(**settings):
        return RunConfig.model_validate({"memory": {"listen": "auto", **settings}}).memory

    assert memory().reachable
    assert not RunConfig().memory.reachable
    with pytest.raises(ValueError, match=r"memory\.listen is for the embedded Redis"):
        memory(url="redis://h")
    with pytest.raises(ValueError, match=r"needs the server's memory\.tls\.cert_file and key_file"):
        memory(tls={"cert_file": "server.crt"})
    assert memory(tls={"cert_file": "/s.crt", "key_file": "/s.key"}).tls.key_file == "/s.key"
    assert not RunConfig.model_validate(
        {"memory": {"listen": "auto"}, "launch": {"start_actors": False}}
    ).started_actors


def test_files_of_tls_count_from_the_directory_of_the_launch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    files = {"ca_file": "ca.crt", "cert_file": "~/own.crt", "key_file": "/x/own.key"}
    for scheme in ("rediss", "valkeys", "rediss+sentinel", "rediss+cluster"):
        tls = RunConfig.model_validate({"memory": {"url": f"{scheme}://h", "tls": files}}).memory.tls
        assert (tls.ca_file, tls.cert_file, tls.key_file) == (f"{tmp_path}/ca.crt", "/home/me/own.crt", "/x/own.key")


@pytest.mark.parametrize("url", [None, "redis://h", "unix:///x"])
def test_files_of_tls_need_a_url_with_tls(url):
    with pytest.raises(ValueError, match=r"memory\.tls has no use without a memory\.url that asks for TLS: rediss://"):
        RunConfig.model_validate({"memory": {"url": url, "tls": {"ca_file": "ca.crt"}}})
