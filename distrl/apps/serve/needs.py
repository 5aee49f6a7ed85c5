"""Libraries of the extra `serve`."""

from distrl.errors import require

NEEDED = ("uvicorn", "uvloop", "httptools", "websockets", "prometheus_client")


def require_serving() -> None:
    """Raise MissingExtraError unless the extra `serve` is installed."""
    for module in NEEDED:
        require(module, f"{module}, which serving needs,", "serve")
