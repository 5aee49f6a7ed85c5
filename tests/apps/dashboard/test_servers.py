"""The card of a run's policy servers, from records as `distrl serve` writes them."""

import time

import pytest

from distrl.apps.dashboard import details
from distrl.apps.dashboard.changes import RunWatch
from distrl.apps.dashboard.files import id_of
from distrl.apps.dashboard.servers import MOST_POINTS, MOST_SERVERS, MOST_VERSIONS, servers
from distrl.apps.web.server_records import STALE_S, Latencies, Moments, Point, ServedPolicy, ServerRecord

NOTHING = {"servers": [], "versions": [], "comparisons": []}
GONE_S = STALE_S + 60.0


def policy(name="main", source="runs/a", version=3, share=1.0, **versions):
    found = {int(number.removeprefix("v")): moments for number, moments in versions.items()}
    total = Moments()
    for moments in found.values():
        total = total.plus(moments)
    return ServedPolicy(name=name, source=source, version=version, share=share, returns=total, versions=found)


@pytest.fixture
def put(make_run):
    """put(name, …): a server's record in the run a."""
    folder = make_run("a")
    (folder / "serving").mkdir()

    def write(name="one", age_s=0.0, policies=(), **changes):
        now = time.time()
        record = {"address": f"{name}:8730", "host": name, "pid": 7, "started": now - 60.0, "written": now - age_s}
        record |= {"environment": "CartPole-v1", "policies": list(policies) or [policy()]}
        record |= {"sessions": 2, "connections": 3, "waiting": 1, "actions": 500, "actions_per_s": 50.0}
        record |= {"latencies": Latencies(0.001, 0.002, 0.003), "failures": {429: 5}, "history": []}
        made = ServerRecord.model_validate(record | changes)
        (folder / "serving" / f"{name}.json").write_text(made.model_dump_json())
        return folder

    return write


def test_a_run_without_servers(runs, make_run):
    assert servers(make_run("a")) == NOTHING
    assert details.described(runs, id_of("a"))["serving"] == NOTHING


def test_a_server_has_its_numbers(put):
    (row,) = servers(put())["servers"]
    assert (row["address"], row["is_gone"], row["actions_per_s"], row["failures"]) == (
        "one:8730",
        False,
        50.0,
        {429: 5},
    )
    assert row["latencies"] == {"p50_s": 0.001, "p95_s": 0.002, "p99_s": 0.003}
    assert (row["sessions"], row["connections"], row["waiting"]) == (2, 3, 1)
    assert row["policies"] == [{"name": "main", "source": "runs/a", "version": 3, "share": 1.0}]


def test_an_old_record_is_of_a_server_that_is_gone(put):
    put("dead", age_s=GONE_S, started=time.time())
    up, gone = servers(put("up"))["servers"]
    assert (up["host"], gone["host"], gone["is_gone"]) == ("up", "dead", True)
    assert (gone["sessions"], gone["actions_per_s"], gone["latencies"], gone["actions"]) == (0, 0.0, None, 500)
    assert time.time() - gone["written"] >= GONE_S


def test_small_curves_have_the_mean_rate_and_the_greatest_latency_of_each_stretch(put):
    history = [Point(float(at), float(at % 2), 0.001 * at if at % 3 else None) for at in range(2 * MOST_POINTS)]
    (row,) = servers(put(history=history))["servers"]
    times, rates = row["rates"]
    assert (len(times), times[:2], set(rates)) == (MOST_POINTS, [1.0, 3.0], {0.5})
    assert row["p99s"] == [times, [pytest.approx(0.001 * (at if at % 3 else at - 1)) for at in times]]
    (row,) = servers(put(history=[Point(1.0, 0.0, None)]))["servers"]
    assert (row["rates"], row["p99s"]) == ([[1.0], [0.0]], [[], []])


def test_returns_of_a_version_are_those_of_all_servers(put):
    five = Moments(5, 10.0, 20.0)
    put("one", policies=[policy(v3=five, v2=Moments(1, 4.0))])
    put("two", policies=[policy(v3=five), policy("canary", "runs/b", v9=Moments(2, 7.0, 2.0))])
    found = servers(put("gone", age_s=GONE_S, policies=[policy(v3=Moments(2, 10.0, 0.0))]))["versions"]
    assert [(one["name"], one["source"], one["version"], one["episodes"], one["mean"]) for one in found] == [
        ("canary", "runs/b", 9, 2, 7.0),
        ("main", "runs/a", 3, 12, 10.0),
        ("main", "runs/a", 2, 1, 4.0),
    ]
    # 2.201 (t of 11 degrees of freedom) x sqrt(40 / 11 / 12)
    assert [one["half"] for one in found] == [None, pytest.approx(1.2116, rel=3e-3), None]


def test_the_newest_versions_of_each_policy_are_shown(put):
    many = {f"v{number}": Moments(1, float(number)) for number in range(1, MOST_VERSIONS + 10)}
    found = servers(put(policies=[policy(**many), policy("canary", **many)]))["versions"]
    assert [one["version"] for one in found] == 2 * [*range(MOST_VERSIONS + 9, 9, -1)]


def test_a_canary_is_compared_with_its_policy(put):
    main, canary = policy(v1=Moments(5, 3.0, 10.0)), policy("canary", "runs/b", v4=Moments(5, 6.0, 40.0))
    (found,) = servers(put(policies=[main, canary]))["comparisons"]
    assert (found["main"]["source"], found["canary"]["source"], found["difference"]) == ("runs/a", "runs/b", 3.0)
    assert found["half"] == pytest.approx(3.887, rel=3e-3)  # as tests/apps/web/test_server_records.py has it
    assert servers(put(policies=[main, policy("canary", "runs/b")]))["comparisons"] == []


def test_records_that_are_no_servers_are_left_out(put, tmp_path):
    folder = put("<b>\u202e", source="x")
    (folder / "serving" / ".tmp-other.json").write_text((folder / "serving" / "<b>\u202e.json").read_text())
    (folder / "serving" / "damaged.json").write_text("[]")
    (tmp_path / "elsewhere.json").write_text((folder / "serving" / "<b>\u202e.json").read_text())
    (folder / "serving" / "link.json").symlink_to(tmp_path / "elsewhere.json")
    (row,) = servers(folder)["servers"]
    assert row["host"] == "<b>\u27e8U+202E\u27e9"
    for number in range(MOST_SERVERS + 1):
        put(f"server {number}")
    assert len(servers(folder)["servers"]) == MOST_SERVERS


def test_passwords_of_sources_are_masked(put):
    (row,) = servers(put(policies=[policy(source="redis://me:pw@host")]))["servers"]
    assert row["policies"][0]["source"] == "redis://•••@host"


def test_the_page_of_a_run_follows_its_servers(runs, put):
    folder = put(actions=1)
    watch = RunWatch(runs, id_of("a"))
    assert dict(watch.changes())["serving"]["serving"]["servers"][0]["actions"] == 1
    assert watch.changes() == []
    put(actions=2)
    ((name, told),) = watch.changes()
    assert (name, told["serving"]["servers"][0]["actions"]) == ("serving", 2)
    (folder / "serving" / "one.json").unlink()
    assert watch.changes() == [("serving", {"serving": NOTHING})]
