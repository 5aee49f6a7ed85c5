"""RoleHistory: the newest numbers of each role, also of roles that came later or have gone."""

from distrl.apps.dashboard import role_history
from distrl.apps.dashboard.role_history import MEASURES, RoleHistory
from distrl.memory_backend.records import RoleStatus


def role(kind, number, rate):
    return RoleStatus(kind, number, 1, "hera", 5, "acting", env_steps_per_s=rate, rss_mb=2 * rate)


def test_numbers_over_time_of_roles_that_come_and_go():
    history = RoleHistory()
    history.add(1.0, [role("actor", 0, 10.0)])
    history.add(2.0, [role("actor", 0, 20.0), role("learner", 0, 0.0)])
    history.add(3.0, [])
    history.add(4.0, [role("actor", 0, 123456.789)])
    told = history.of("actor:0")
    assert told.keys() == {"at", *MEASURES}
    assert (told["at"], told["env_steps_per_s"]) == ([1.0, 2.0, 4.0], [10.0, 20.0, 123460.0])
    assert told["rss_mb"][:2] == [20.0, 40.0]
    assert history.of("learner:0")["at"] == [2.0]
    assert history.of("actor:1") == {key: [] for key in ["at", *MEASURES]}


def test_it_is_bounded_and_keeps_the_names_of_the_same_roles_once(monkeypatch):
    monkeypatch.setattr(role_history, "MOST_LOOKS", 3)
    history = RoleHistory()
    for at in range(5):
        history.add(float(at), [role("actor", 10**6, at)])
    assert history.of("actor:1000000")["at"] == [2.0, 3.0, 4.0]
    assert len({id(row.keys) for row in history._rows}) == 1
