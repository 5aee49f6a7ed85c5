"""Users of Redis, from the lines that `distrl redis acl` prints."""

import redis


def add_user(admin: redis.Redis, line: str, password: str) -> str:
    """Make the user of one line, and return its name."""
    _, name, rules = line.split(" ", 2)
    first, *selectors = rules.split(" (")
    admin.execute_command("ACL", "SETUSER", name, *first.split(), *[f"({one}" for one in selectors], f">{password}")
    return name
