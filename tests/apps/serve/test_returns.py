import pytest

from distrl.apps.serve.returns import MOST_VERSIONS, Returns
from distrl.apps.web.server_records import Moments


def test_returns_by_policy_and_version():
    returns = Returns()
    for policy, version, value in (("main", 1, 2.0), ("main", 2, 4.0), ("main", 1, 6.0), ("canary", 1, -1.0)):
        returns.add(policy, version, value)
    assert returns.versions_of("main") == {1: Moments(2, 4.0, 8.0), 2: Moments(1, 4.0, 0.0)}
    assert returns.of("main") == Moments(3, 4.0, 8.0)
    assert returns.of("canary") == Moments(1, -1.0, 0.0)
    assert (returns.of("other"), returns.versions_of("other")) == (Moments(), {})


def test_of_many_versions_those_that_act_are_kept():
    returns = Returns()
    for version in range(1, MOST_VERSIONS + 3):
        returns.add("main", version, 1.0)
        returns.add("main", 1, 1.0)  # a session that does not take newer ones
    assert list(returns.versions_of("main")) == [*range(4, MOST_VERSIONS + 3), 1]
    assert returns.of("main").count == 2 * (MOST_VERSIONS + 2)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1e151])
def test_a_return_that_is_no_number_is_refused(value):
    returns = Returns()
    with pytest.raises(ValueError, match="the return of an episode is"):
        returns.add("main", 1, value)
    assert returns.of("main").count == 0
