"""States of shared inference in heartbeats."""

WAITING = "waiting: inference server"
"""An actor has had no answer for a while."""
SERVING = "serving"
"""The server computes a batch; it hangs if that takes long."""
IDLE = "waiting: actors"
FETCHING = "waiting: weights"
"""The server fetches weights from Redis, which may be away."""
