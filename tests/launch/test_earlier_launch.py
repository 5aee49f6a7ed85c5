"""earlier_launch: keys of a run whose supervisor has died make room for its next launch, and for no other run."""

from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from distrl.errors import ConfigError, FencedError, MissingRunError
from distrl.launch import earlier_launch
from distrl.launch.earlier_launch import check_run_id, remove_earlier_launch
from distrl.memory_backend.records import SupervisorStatus
from distrl.roles.description import Run
from distrl.roles.presence import Status
from tests.launched_run import run_in

SUPERVISOR = SupervisorStatus("a", 7, 3)


@pytest.fixture
def launch(tmp_path):
    """Makes a launch of run r1 in a directory, and with `create` its keys."""
    with ExitStack() as opened:

        def make(folder=tmp_path, *, create=True) -> Run:
            folder.mkdir(exist_ok=True)
            run = run_in(folder, f"local:{tmp_path.name}", "key")
            # A store in this process is gone with its last connection.
            backend = opened.enter_context(closing(run.open_backend("test")))
            if create:
                backend.create(run.description.published())
                backend.registry.beat_supervisor(SUPERVISOR)
            return run

        yield make


@pytest.fixture
def alive(monkeypatch):
    """Process that lives -> the heartbeats that were looked at."""

    def say(found):
        seen: list[Status] = []
        monkeypatch.setattr(earlier_launch, "living", lambda read: seen.extend(read()) or found)
        return seen

    return say


def early_check(run):
    """Before the environment is tried: there is no description of the run yet."""
    check_run_id(run.address.redis_url, run.address.run_id, run.description.run_dir)


def test_where_there_is_nothing_nothing_is_removed(launch):
    run = launch(create=False)
    early_check(run)
    assert remove_earlier_launch(run) is None


def test_the_early_check_leaves_a_dead_launch_as_it_is(launch, alive):
    alive(None)
    earlier, later = launch(), launch(create=False)
    early_check(later)
    with closing(earlier.open_backend("test")) as backend:
        assert backend.registry.supervisor() == SUPERVISOR


def test_what_a_dead_launch_of_the_same_directory_has_left_is_removed(launch, alive):
    seen = alive(None)
    earlier, later = launch(), launch(create=False)
    assert remove_earlier_launch(later) == "removed what an earlier launch of r1 had left in Redis"
    assert seen == [SUPERVISOR]
    with closing(later.open_backend("test")) as backend:
        backend.create("{}")
        assert backend.registry.supervisor() is None
        with closing(earlier.open_backend("test")) as late, pytest.raises(FencedError, match="launched again"):
            late.registry.register_actor(0)


def test_a_launch_that_lives_is_left_alone(launch, alive):
    alive("supervisor, process 7 on host a")
    earlier, later = launch(), launch(create=False)
    for refuses in (remove_earlier_launch, early_check):
        with pytest.raises(ConfigError, match=r"run r1 at local:.* goes on: supervisor, process 7 on host a, "):
            refuses(later)
    with closing(earlier.open_backend("test")) as backend:
        assert backend.registry.supervisor() == SUPERVISOR


def test_a_run_of_the_same_id_and_another_directory_is_left_alone(launch, alive, tmp_path):
    alive(None)
    earlier, later = launch(tmp_path / "other"), launch(create=False)
    for refuses in (remove_earlier_launch, early_check):
        with pytest.raises(
            ConfigError, match=rf"its directory is {tmp_path}/other; .* distrl runs --redis-url URL --remove r1"
        ):
            refuses(later)
    with closing(earlier.open_backend("test")) as backend:
        assert backend.registry.supervisor() == SUPERVISOR


def test_of_two_launches_that_find_the_same_dead_one_the_second_removes_nothing_of_the_first(
    launch, monkeypatch, tmp_path
):
    launch()
    first, second = launch(create=False), launch(create=False)

    def the_first_begins(*_):
        monkeypatch.setattr(earlier_launch, "living", lambda *_: None)
        remove_earlier_launch(first)
        with closing(first.open_backend("test")) as backend:
            backend.create("{}")
            backend.registry.beat_supervisor(replace(SUPERVISOR, pid=8))

    monkeypatch.setattr(earlier_launch, "living", the_first_begins)
    with pytest.raises(FencedError, match="launched again"):
        remove_earlier_launch(second)
    with closing(first.open_backend("test")) as backend:
        assert backend.registry.supervisor().pid == 8
        backend.delete()
        with pytest.raises(MissingRunError):
            backend.config_json()
