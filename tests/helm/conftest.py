"""Skips the tests of the chart, with the reason, where helm cannot be had; `make cluster` fails then."""

import pytest

from tests.helm.rendering import UnavailableError, helm_program


@pytest.fixture(scope="session")
def needs_helm() -> None:
    try:
        helm_program()
    except UnavailableError as error:
        pytest.skip(str(error))
