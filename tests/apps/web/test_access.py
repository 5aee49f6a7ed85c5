import hmac

import pytest

from distrl.apps.web import access as module
from distrl.apps.web.access import Access, is_loopback
from distrl.errors import ConfigError

TOKEN, READ_ONLY = "a" * 20, "b" * 20


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8", "LOCALHOST"])
def test_loopback_needs_no_token(host):
    assert is_loopback(host)
    assert Access(host).open


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "localhost.example.org", ""])
def test_any_other_host_does(host):
    with pytest.raises(ConfigError, match=r"--token-file FILE .* or listen on 127\.0\.0\.1"):
        Access(host)
    assert not Access(host, TOKEN).open


@pytest.mark.parametrize("token", ["short", "a" * 15, "ä" * 20, "a" * 15 + "\n"])
def test_weak_tokens(token):
    with pytest.raises(ConfigError, match="at least 16 printable ASCII characters"):
        Access("127.0.0.1", token)
    with pytest.raises(ConfigError, match="at least 16"):
        Access("127.0.0.1", TOKEN, token)


def test_one_token_for_both():
    with pytest.raises(ConfigError, match="the read-only token is the token itself"):
        Access("127.0.0.1", TOKEN, TOKEN)


@pytest.mark.parametrize(
    ("token", "right"),
    [(TOKEN, "act"), (READ_ONLY, "look"), (f"{TOKEN}x", None), (TOKEN[:-1], None), ("", None), ("\udcff", None)],
)
def test_rights_of_tokens(token, right):
    assert Access("0.0.0.0", TOKEN, READ_ONLY).right_of_token(token) == right


def test_a_read_only_token_alone_gives_no_right_to_act():
    access = Access("127.0.0.1", read_only_token=READ_ONLY)
    assert (access.open, access.right_of_token(READ_ONLY)) == (False, "look")


def test_comparisons_take_the_same_time_whatever_is_presented(monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: compared.append((len(a), len(b))) or real(a, b))
    access = Access("0.0.0.0", TOKEN, READ_ONLY)
    for token in ("x", TOKEN, "y" * 1000):
        access.right_of_token(token)
    assert compared == [(32, 32)] * 6  # digests, against every token


@pytest.mark.parametrize(
    ("header", "ours"),
    [
        ("127.0.0.1:8720", True),
        ("localhost", True),
        ("[::1]:99", True),
        ("LOCALHOST:1", True),
        ("evil.example:8720", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[", False),
        (None, False),
    ],
)
def test_names_for_loopback(header, ours):
    assert Access("127.0.0.1").host_is_ours(header) == ours
    assert Access("127.0.0.1", TOKEN).host_is_ours(header)
