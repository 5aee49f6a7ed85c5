"""Configurations of algorithms that learn from recorded steps alone."""


def with_data(tree):
    """Return a configuration that `bc` does not refuse: of a run that learns from data, where it imitates."""
    if tree["algorithm"]["name"] != "bc":
        return tree
    return {**tree, "data": {"sets": "recorded"}, "actors": {**tree.get("actors", {}), "count": 0}}
