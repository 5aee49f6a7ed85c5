"""All that a checkpoint holds of an algorithm's networks."""

from functools import wraps


def states(networks):
    return {name: network.state_arrays() for name, network in networks.items()}


def restore(networks, saved):
    for name, network in networks.items():
        network.restore(saved[name])


def assert_same(one, other):
    """Two `states` are equal, bit by bit."""
    assert one.keys() == other.keys()
    for name, groups in one.items():
        assert groups.keys() == other[name].keys()
        for group, arrays in groups.items():
            assert arrays.keys() == other[name][group].keys()
            for path, array in arrays.items():
                assert array.tobytes() == other[name][group][path].tobytes(), f"{name}, {group}: {path}"


def made_once(make):
    """Return `make` with a memory: equal arguments give the same algorithm and networks, in their first state.

    Compiling an update takes longer than most tests. What a test changes beside states and settings stays changed.
    """
    made = {}

    @wraps(make)
    def again(*arguments, **settings):
        key = repr((arguments, settings))
        if key not in made:
            algorithm, networks = make(*arguments, **settings)
            made[key] = algorithm, networks, states(networks)
        algorithm, networks, first = made[key]
        restore(networks, first)
        algorithm.steer(networks, algorithm.context)
        return algorithm, networks

    return again
