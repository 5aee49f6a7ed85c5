"""Stacks of every thread, by name; however deep they are."""

import threading

from distrl.roles import stacks as module
from distrl.roles.stacks import stacks


def test_every_thread_tells_its_name_and_where_it_is():
    entered, leave = threading.Event(), threading.Event()

    def dig():
        entered.set()
        leave.wait()

    thread = threading.Thread(target=dig, name="mole")
    thread.start()
    entered.wait()
    told = stacks()
    leave.set()
    thread.join()
    assert "thread mole:\n" in told
    assert "in dig\n    leave.wait()" in told
    assert "in test_every_thread_tells_its_name_and_where_it_is\n    told = stacks()" in told


def test_a_deep_stack_loses_its_middle():
    def deep(depth):  # one function that calls itself would be told in a line: repeated so often
        return other(depth - 1) if depth else stacks()

    def other(depth):
        return deep(depth - 1) if depth else stacks()

    told = deep(600)
    assert module.LONGEST <= len(told) <= module.LONGEST + 20
    assert "\n  [...]\n" in told
