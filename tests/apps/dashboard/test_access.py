import pytest

from distrl.apps.dashboard import access as module
from distrl.apps.dashboard.access import HEADERS, access_of_environment
from distrl.apps.web.access import Access
from distrl.errors import ConfigError

TOKEN = "a" * 20


def test_tokens_of_the_environment(monkeypatch):
    monkeypatch.setenv(module.TOKEN_VARIABLE, TOKEN)
    monkeypatch.setenv(module.READ_ONLY_TOKEN_VARIABLE, "")
    assert access_of_environment("127.0.0.1") == Access("127.0.0.1", TOKEN)
    monkeypatch.setenv(module.TOKEN_VARIABLE, "short")
    with pytest.raises(ConfigError, match="at least 16"):
        access_of_environment("127.0.0.1")


def test_the_policy_lets_nothing_in_from_elsewhere():
    rules = dict(rule.split(" ", 1) for rule in HEADERS["Content-Security-Policy"].split("; "))
    assert rules.pop("default-src") == "'none'"
    assert rules["img-src"] == "'self' data: blob:"
    assert {source for rule in rules.values() for source in rule.split()} == {"'self'", "data:", "blob:", "'none'"}
    assert {"script-src", "style-src", "connect-src", "form-action", "base-uri", "frame-ancestors"} <= rules.keys()
