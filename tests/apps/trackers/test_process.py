"""Classes that can track, as the process of trackers judges them."""

import os
import signal

import pytest

from distrl.apps.trackers.process import _check_class
from distrl.errors import ConfigError
from distrl.process_group import end_own_group


class Static:
    @staticmethod
    def begin(run):
        pass

    @classmethod
    def record(cls, row, step):
        pass

    def end(self, ending):
        pass


class TooMany(Static):
    @staticmethod
    def begin(run, more):
        pass


class Awaited(Static):
    async def end(self, ending):
        pass


def test_a_method_that_nothing_would_await_is_refused():
    with pytest.raises(ConfigError, match="tracker mine:Awaited: end is an async def"):
        _check_class("mine:Awaited", Awaited, {})


def test_a_child_that_a_tracker_forks_does_not_end_its_group(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "killpg", lambda *arguments: ended.append(arguments))
    end_own_group(os.getpid() + 1)  # as in a child, which inherits what the leader has registered
    assert ended == []
    monkeypatch.setattr(os, "getpgrp", os.getpid)
    end_own_group(os.getpid())
    assert ended == [(os.getpid(), signal.SIGKILL)]


def test_methods_may_be_static_or_of_the_class():
    _check_class("mine:Static", Static, {})
    with pytest.raises(ConfigError, match=r"tracker mine:TooMany: begin gets 1 argument"):
        _check_class("mine:TooMany", TooMany, {})
