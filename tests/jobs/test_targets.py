import pytest

from distrl.errors import ConfigError
from distrl.jobs.here import Here
from distrl.jobs.targets import TARGETS, open_target


def test_targets_are_opened_by_name():
    assert isinstance(open_target("here"), Here)


def test_an_unknown_target_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        open_target("mars")
    assert str(caught.value) == f"unknown target mars: the targets are {', '.join(TARGETS)}"
