"""The networks of `tests/networks`, with Coach's methods."""

import pytest

from distrl.coach.architecture import Architecture
from distrl.coach.wrapper import NetworkWrapper
from distrl.config.network import NetworkParameters
from distrl.networks.copies import Copies
from distrl.networks.network import Network
from tests.networks.conftest import POLICY_AND_VALUE, SMALL, VECTOR


@pytest.fixture
def build():
    """build(spec, heads, seed=1, **parameters): one network copy, with a hidden layer of 8 unless told otherwise."""

    def make(spec=VECTOR, heads=POLICY_AND_VALUE, seed=1, **parameters):
        return Architecture(Network(NetworkParameters(**(SMALL | parameters)), spec, heads, "main", seed))

    return make


@pytest.fixture
def wrap():
    """wrap(has_target=…, has_global=…, **parameters): the copies of such a network."""

    def make(has_target=False, has_global=False, *, heads=POLICY_AND_VALUE, shared=None, **parameters):
        return NetworkWrapper(
            Copies(
                NetworkParameters(**(SMALL | parameters)),
                VECTOR,
                heads,
                has_target=has_target,
                has_global=has_global,
                name="main",
                seed=1,
                shared_global=shared,
            )
        )

    return make
