"""All that a checkpoint holds of an algorithm's networks."""


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
