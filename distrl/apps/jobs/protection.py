"""The protection that a job lacks, of its Redis and of its checkpoints, for the plans of the targets."""

from distrl.config import RunConfig
from distrl.config.memory import TLS_SCHEMES
from distrl.memory_backend.credentials import password
from distrl.memory_backend.redis_address import parse_address


def unprotected(config: RunConfig, *, knows_password: bool = True) -> list[str]:
    """Return a line for each protection that the run's Redis lacks; one that only its own host reaches lacks none.

    Args:
        knows_password: The job gets its passwords from this host; else nothing is said of them.
    """
    url = config.memory.url
    if config.memory.listen is not None and config.memory.tls.cert_file is None:
        return ["traffic with Redis is not encrypted (memory.tls.cert_file and memory.tls.key_file)"]
    if url is None or parse_address(url).is_here:
        return []
    lacks = []
    if not url.startswith(TLS_SCHEMES):
        lacks.append("traffic with Redis is not encrypted (memory.url: rediss://…)")
    if knows_password and password(url) is None:
        lacks.append("Redis is used without a password (DISTRL_REDIS_PASSWORD_FILE)")
    return lacks


def bound_to_node(config: RunConfig) -> list[str]:
    """Return a line if checkpoints do not outlive the node on which the learner writes them, for targets with nodes."""
    if config.checkpoint.store is not None:
        return []
    return ["checkpoints are lost with the node that has the run's directory, unless nodes share it (checkpoint.store)"]
