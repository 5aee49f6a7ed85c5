"""URLs of Redis: what each form means, and what is refused without quoting a password."""

import pytest

from distrl.errors import ConfigError
from distrl.memory_backend.redis_address import parse_address, public_url


def test_a_server():
    address = parse_address("redis://me@h:1/2")
    assert (address.kind, address.endpoints, address.user, address.database) == ("server", (("h", 1),), "me", 2)
    assert (address.encrypted, address.public) == (False, "redis://h:1/2")


@pytest.mark.parametrize("url", ["redis://", "redis://localhost", "valkey://localhost:6379/", "redis://localhost?db=0"])
def test_what_is_left_out(url):
    address = parse_address(url)
    assert (address.kind, address.endpoints, address.database) == ("server", (("localhost", 6379),), 0)
    assert (address.user, address.encrypted) == (None, False)


@pytest.mark.parametrize("scheme", ["rediss", "valkeys", "rediss+sentinel", "rediss+cluster"])
def test_the_files_of_tls(scheme):
    address = parse_address(f"{scheme}://h{'/mymaster' if 'sentinel' in scheme else ''}?ca_file=/a%20b&namespace=n")
    assert (address.encrypted, dict(address.files), address.namespace) == (True, {"ca_file": "/a b"}, "n")


def test_a_unix_socket():
    address = parse_address("unix://me@/run/a%20b.sock?db=3")
    assert (address.kind, address.path, address.user, address.database) == ("unix", "/run/a b.sock", "me", 3)
    assert (address.endpoints, address.public) == ((), "unix:///run/a%20b.sock")


def test_sentinels():
    address = parse_address("redis+sentinel://me@a:1,b,[::1]:3/my%20master/4?sentinel_user=s")
    assert (address.kind, address.service, address.database) == ("sentinel", "my master", 4)
    assert address.endpoints == (("a", 1), ("b", 26379), ("::1", 3))
    assert [str(endpoint) for endpoint in address.endpoints] == ["a:1", "b:26379", "[::1]:3"]
    assert (address.user, address.sentinel_user) == ("me", "s")
    assert address.public == "redis+sentinel://a:1,b,[::1]:3/my%20master/4"


def test_a_cluster():
    address = parse_address("redis+cluster://a:7000,b")
    assert (address.kind, address.endpoints) == ("cluster", (("a", 7000), ("b", 6379)))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "scheme"),
        ("http://localhost", "scheme"),
        ("localhost:6379", "scheme"),
        ("redis://h:port/0", "port"),
        ("redis://h:99999", "port"),
        ("redis://[::1", "port"),
        ("redis://h/x", "database"),
        ("redis://me:12?SECRET@h/0", "%40"),
        ("redis+sentinel://:12?SECRET@h/m", "%40"),
        ("redis://h/0/1", "database"),
        ("redis://h/1?db=1", "database twice"),
        ("redis://a,b/0", "only Sentinels and Clusters"),
        ("redis://:6379/0", "no name"),
        ("redis+sentinel://a,/m", "no name"),
        ("redis+sentinel://a", "no master"),
        ("redis+sentinel://a/", "no master"),
        ("redis+cluster://a/1", "only database 0"),
        ("unix://", "no socket"),
        ("unix://run/redis.sock", "three slashes"),
        ("redis://h#0", "%23"),
    ],
)
def test_what_is_no_redis_url(url, why):
    with pytest.raises(ConfigError, match="is not a Redis URL") as caught:
        parse_address(url)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert public_url(url) == "the given URL"


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("redis://h?ca_file=/x", "ca_file"),
        ("redis://h?timeout=1", "timeout"),
        ("redis+cluster://h?db=1", "db"),
        ("redis://h?sentinel_user=x", "sentinel_user"),
        ("rediss://h?ssl_cert_reqs=none", "ssl_cert_reqs"),
        ("redis://h?db=1&db=2", "db"),
    ],
)
def test_an_option_without_a_meaning_is_refused_by_name(url, option):
    with pytest.raises(ConfigError, match=f"option '{option}'"):
        parse_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:pass@h",
        "redis+sentinel://me:pass@a,b/mymaster",
        "redis+cluster://me:pass@a,b",
        "unix://:pass@/run/x",
        "redis://h?password=pass",
        "redis://:pa/pass@h/0",
        "redis+sentinel://me:12/pass@h/mymaster",
        "redis://:#pass@h",
    ],
)
def test_a_password_is_refused_and_not_quoted(url):
    with pytest.raises(ConfigError) as caught:
        parse_address(url)
    assert "pass@" not in str(caught.value)
    assert "pass" not in public_url(url)
