"""Members are started, restarted with growing delays inside a budget, and ended."""

from pathlib import Path

from distrl.launch.fleet import (
    BUDGET_WINDOW_S,
    HEALTHY_S,
    LOG_TAIL_BYTES,
    LONGEST_BACKOFF_S,
    LONGEST_OUTAGE_BACKOFF_S,
    Fleet,
    end,
    last_error,
)
from distrl.roles.plan import Role


def test_a_dead_member_is_reported_once_and_stays_down(launcher, clock):
    fleet = Fleet(launcher, 3, clock)
    fleet.add(Role("actor", 0))
    assert fleet.dead() == []
    launcher.started[0].code = -9
    assert [(m.role.name, m.last_code) for m in fleet.dead()] == [("actor 0", -9)]
    clock.now = 1e6
    assert (fleet.dead(), fleet.start_due(2)) == ([], [])


def test_restarts_wait_longer_each_time(launcher, clock):
    fleet = Fleet(launcher, 100, clock)
    fleet.add(Role("actor", 0))
    delays = []
    for _ in range(7):
        launcher.started[-1].code = 1
        (member,) = fleet.dead()
        delays.append(fleet.restart_later(member))
        clock.now += delays[-1] - 0.01
        assert fleet.start_due(2) == []
        clock.now += 0.02
        assert fleet.start_due(2) == [member]
    assert delays == [0.5, 1, 2, 4, LONGEST_BACKOFF_S, LONGEST_BACKOFF_S, LONGEST_BACKOFF_S]
    assert fleet.restarts == 7


def test_who_lived_for_a_while_is_started_again_at_once(launcher, clock):
    fleet = Fleet(launcher, 100, clock)
    fleet.add(Role("actor", 0))
    delays = []
    for lived_s in (1.0, 1.0, 1.0, HEALTHY_S, 1.0, 1.0, HEALTHY_S, 2 * HEALTHY_S):
        clock.now += lived_s
        launcher.started[-1].code = -9
        (member,) = fleet.dead()
        delays.append(fleet.restart_later(member))
        clock.now += delays[-1]
        assert fleet.start_due(2) == [member]
    assert delays == [0.5, 1, 2, 0.5, 1, 2, 0.5, 0.5]


def test_the_budget_is_per_ten_minutes(launcher, clock):
    fleet = Fleet(launcher, 2, clock)
    fleet.add(Role("learner"))
    member = fleet.members[Role("learner")]
    assert fleet.restart_later(member) == 0.5
    assert fleet.restart_later(member) == 1.0
    assert fleet.restart_later(member) is None
    clock.now = BUDGET_WINDOW_S + 1
    assert fleet.restart_later(member) == 0.5


def test_an_outage_spends_no_budget_however_long_it_lasts(launcher, clock):
    fleet = Fleet(launcher, 2, clock)
    fleet.add(Role("actor", 0))
    member = fleet.members[Role("actor", 0)]
    delays = [fleet.restart_later(member, outage=True) for _ in range(2000)]
    assert delays[:7] == [0.5, 1, 2, 4, 8, 16, LONGEST_OUTAGE_BACKOFF_S]
    assert delays[-1] == LONGEST_OUTAGE_BACKOFF_S
    assert [fleet.restart_later(member) for _ in range(3)] == [LONGEST_BACKOFF_S, LONGEST_BACKOFF_S, None]
    assert Fleet(launcher, 0, clock).restart_later(member, outage=True) is None


def test_end_kills_only_who_does_not_obey(launcher, clock):
    fleet = Fleet(launcher, 1, clock)
    for actor in range(2):
        fleet.add(Role("actor", actor))
    launcher.started[1].obeys = False
    end(fleet.actors, grace_s=0.05)
    assert [handle.asked for handle in launcher.started] == [["terminate"], ["terminate", "kill"]]


def test_actors_are_listed_by_id_and_without_the_learner(launcher, clock):
    fleet = Fleet(launcher, 1, clock)
    for role in (Role("actor", 10), Role("learner"), Role("actor", 2)):
        fleet.add(role)
    assert [member.role.id for member in fleet.actors] == [2, 10]
    retired = fleet.retire(Role("actor", 10))
    assert retired.handle.asked == ["terminate"]
    assert [member.role.id for member in fleet.actors] == [2]


def test_last_error_is_the_newest_marked_line_of_this_incarnation(tmp_path: Path):
    with (tmp_path / "actor-0.log").open("a+b", buffering=0) as log:
        assert last_error(log) is None
        log.write(b"starting\nx ERROR distrl: error: first\nTraceback\nx ERROR distrl: error: second: value 3\nbye\n")
        assert last_error(log) == "second: value 3"
        begins = log.tell()
        log.write(b"starting\n")
        assert last_error(log, begins) is None


def test_last_error_reads_the_end_of_a_long_log_alone(tmp_path: Path):
    with (tmp_path / "actor-0.log").open("a+b", buffering=0) as log:
        log.write(b"x ERROR distrl: error: long ago\n" + b"." * LOG_TAIL_BYTES + b"\n")
        assert last_error(log) is None
        log.write(b"x ERROR distrl: error: now\n")
        assert last_error(log) == "now"
