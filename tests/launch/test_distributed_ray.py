"""A private cluster has a token, and all clusters of a process the same: Ray reads it once."""

import os

from distrl.launch.distributed import make_private_token


def test_the_token_is_long_and_stays(monkeypatch):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    make_private_token()
    token = os.environ["RAY_AUTH_TOKEN"]
    assert len(token) == 64
    make_private_token()
    assert os.environ["RAY_AUTH_TOKEN"] == token
    assert (os.environ["RAY_AUTH_MODE"], os.environ["RAY_USAGE_STATS_ENABLED"]) == ("token", "0")
