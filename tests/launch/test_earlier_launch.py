"""earlier_launch: keys of a run whose supervisor has died make room for its next launch, and for no other run."""

from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from distrl.errors import ConfigError, FencedError, MemoryBackendError, OutageError
from distrl.launch import earlier_launch
from distrl.launch.earlier_launch import LivingLaunchError, dead_launch, wait_for_room
from distrl.memory_backend.records import SupervisorStatus
from distrl.roles.description import LaunchedRun
from distrl.roles.presence import Status
from tests.launched_run import run_in

SUPERVISOR = SupervisorStatus("a", 7, 3)


@pytest.fixture
def launch(tmp_path):
    """Makes a launch of run r1 in a directory, and with `create` its keys."""
    with ExitStack() as opened:

        def make(folder=tmp_path, *, create=True) -> LaunchedRun:
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


def found_by(run):
    """The launch that a next one finds."""
    return dead_launch(run.address.redis_url, run.address.run_id, run.description.run_dir)


def test_where_there_is_nothing_nothing_is_replaced(launch):
    assert found_by(launch(create=False)) is None


def test_a_dead_launch_of_the_same_directory_stands_until_the_next_one_replaces_it(launch, alive):
    """A role that waits for the next launch would take a run without keys for one that has ended."""
    seen = alive(None)
    earlier, later = launch(), launch(create=False)
    with closing(earlier.open_backend("test")) as late, closing(later.open_backend("test")) as backend:
        found = found_by(later)
        late.check_launch()
        assert late.registry.supervisor() == SUPERVISOR
        backend.create("{}", replaces=found)
        assert seen == [SUPERVISOR]
        assert backend.registry.supervisor() is None
        with pytest.raises(FencedError, match="launched again"):
            late.registry.register_actor(0)


def test_a_launch_that_lives_is_left_alone(launch, alive):
    alive("supervisor, process 7 on host a")
    earlier, later = launch(), launch(create=False)
    with pytest.raises(ConfigError, match=r"run r1 at local:.* goes on: supervisor, process 7 on host a, "):
        found_by(later)
    with closing(earlier.open_backend("test")) as backend:
        assert backend.registry.supervisor() == SUPERVISOR


def test_a_run_of_the_same_id_and_another_directory_is_left_alone(launch, alive, tmp_path):
    alive(None)
    earlier, later = launch(tmp_path / "other"), launch(create=False)
    with pytest.raises(
        ConfigError, match=rf"its directory is {tmp_path}/other; .* distrl runs --redis-url URL --remove r1"
    ):
        found_by(later)
    with closing(earlier.open_backend("test")) as backend:
        assert backend.registry.supervisor() == SUPERVISOR


def test_of_two_launches_that_find_the_same_dead_one_the_second_replaces_nothing_of_the_first(launch, alive):
    alive(None)
    launch()
    first, second = launch(create=False), launch(create=False)
    found = [found_by(first), found_by(second)]
    with closing(first.open_backend("test")) as one, closing(second.open_backend("test")) as two:
        one.create("{}", replaces=found[0])
        one.registry.beat_supervisor(replace(SUPERVISOR, pid=8))
        with pytest.raises(MemoryBackendError, match="run r1 exists already"):
            two.create("{}", replaces=found[1])
        assert one.registry.supervisor().pid == 8
        one.check_launch()


@pytest.fixture
def findings(monkeypatch):
    """Says what successive looks at an earlier launch find: an error, or None for room."""

    def say(*found):
        left = iter(found)

        def look(*_):
            if (error := next(left)) is not None:
                raise error

        monkeypatch.setattr(earlier_launch, "dead_launch", look)
        monkeypatch.setattr(earlier_launch, "POLL_S", 0.0)
        return left

    return say


def waits(wait_s):
    told = []
    wait_for_room("redis://r", "r1", "/runs/r1", wait_s, told.append)
    return told


def test_a_launch_waits_for_redis_and_for_the_end_of_the_earlier_one(findings):
    away, living = OutageError("Redis at redis://r cannot be reached"), LivingLaunchError("run r1 goes on")
    findings(away, away, living, living, None)
    assert [line.partition(": ")[2] for line in waits(60.0)] == [str(away), "the earlier launch still ends"]


@pytest.mark.parametrize("error", [OutageError("away"), LivingLaunchError("goes on")])
def test_without_time_to_wait_it_is_refused_at_once(findings, error):
    left = findings(error, None)
    with pytest.raises(type(error)):
        waits(0.0)
    assert [*left] == [None]


def test_what_does_not_pass_is_not_waited_for(findings):
    findings(ConfigError("its directory is another"), None)
    with pytest.raises(ConfigError, match="another"):
        waits(60.0)
