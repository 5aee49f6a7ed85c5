"""A token for a private Ray cluster, made before Ray is imported, because Ray reads its environment once, then."""

import os
import secrets


def make_private_token() -> None:
    """Hands this process and its children a token of their own, one for all the clusters that it starts.

    Ray would otherwise keep one in the home directory.
    """
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
