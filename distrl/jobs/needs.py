"""The resources that a run's roles need, and the protection that its Redis lacks, for the plans of all targets."""

from distrl.config import RunConfig
from distrl.config.run import TLS_SCHEMES
from distrl.jobs.target import RoleNeed
from distrl.memory_backend.credentials import password
from distrl.memory_backend.redis_address import parse_address
from distrl.roles.plan import roles_beside_actors


def role_needs(config: RunConfig) -> list[RoleNeed]:
    """Return the needs of the learner, the actors that the run starts, and the evaluator if there is one.

    A learner with device "auto" takes a GPU where it finds one, and needs none.
    """
    learner = RoleNeed("learner", 1, config.learner.threads, gpus=int(config.device == "gpu"))
    if config.deterministic:
        return [learner]
    beside = [RoleNeed(role.kind, 1, 1) for role in roles_beside_actors(config) if role.kind != "learner"]
    actors = [RoleNeed("actor", config.started_actors, 1)] if config.started_actors else []
    return [learner, *actors, *beside]


def unprotected(config: RunConfig) -> list[str]:
    """Return a line for each protection that the Redis of `memory.url` lacks; an embedded Redis lacks none."""
    url = config.memory.url
    if url is None or parse_address(url).is_here:
        return []
    lacks = []
    if not url.startswith(TLS_SCHEMES):
        lacks.append("traffic with Redis is not encrypted (memory.url: rediss://…)")
    if password(url) is None:
        lacks.append("Redis is used without a password (DISTRL_REDIS_PASSWORD_FILE)")
    return lacks
