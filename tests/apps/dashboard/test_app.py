"""The whole application over HTTP: the answer of every address, and no request causes a server's error."""

import json
import os
import re
import string
import subprocess
import sys
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from distrl.apps.dashboard.app import STATIC, make_app
from distrl.apps.dashboard.files import id_of
from distrl.apps.web.access import Access
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.metrics.snapshot import METRICS

ACTING = {"X-Distrl": "1"}


def test_the_list(page, make_run):
    for number, name in enumerate(["first", "second", "third"], 1):
        make_run(
            name, started=float(number), env_steps=100 * number, env="Acrobot-v1" if number == 2 else "CartPole-v1"
        )
    client = page()

    def names(query=""):
        return [run["name"] for run in client.get(f"/api/runs{query}").json()["runs"]]

    assert names() == ["third", "second", "first"]
    assert names("?sort=env_steps") == ["first", "second", "third"]
    assert names("?sort=-name") == ["third", "second", "first"]
    assert names("?query=acro%20SECOND") == ["second"]
    assert names("?query=acro%20first") == []
    assert names("?query=state:running") == []
    assert names("?sort=-lr&limit=2&offset=2") == ["first"]
    assert client.get("/api/runs?sort=colour").json()["error"].startswith("no number or setting is named 'colour'")
    assert client.get("/api/runs?query=lr>fast").json()["error"].startswith("network.learning_rate is compared")
    assert client.get("/api/selection?query=env:cartpole").json()["ids"] == [id_of("third"), id_of("first")]
    assert "seed" in client.get("/api/columns").json()["same"]


def test_runs_are_found_by_the_words_that_their_states_are_shown_with(page, make_run):
    make_run("one", exit_code=5, stop_reason="non-finite")
    make_run("two", stop_reason="asked")
    make_run("three")
    make_run("four", ended=False)
    client = page()

    def names(query):
        return {run["name"] for run in client.get(f"/api/runs?{query}").json()["runs"]}

    for word, found in {"failed": {"one"}, "stopped": {"two"}, "gone": {"four"}}.items():
        assert names(f"query={word}") == names(f"query=state:{word}") == found
    assert names("query=state:ended") == {"one", "two", "three"}


def test_what_is_not_known_is_sorted_last_either_way(page, make_run):
    make_run("a", mean_return_100=None)
    make_run("b", mean_return_100=1.0)
    client = page()
    for sort in ("mean_return_100", "-mean_return_100"):
        assert [run["name"] for run in client.get(f"/api/runs?sort={sort}").json()["runs"]] == ["b", "a"]


def test_one_run(page, make_run):
    folder = make_run("a")
    (folder / "logs" / "learner.log").write_text("hello\n")
    (folder / "logs" / "events.log").write_text("2026-01-02 03:04:05 started\n")
    client, base = page(), f"/api/runs/{id_of('a')}"
    assert client.get(base).json()["run"]["name"] == "a"
    line = client.get(f"{base}/curve?metric=mean_return_100&over=updates&points=10").json()["curves"]["mean_return_100"]
    assert line == {"x": [1.0, 2.0, 3.0], "y": [10.0, 20.0, 30.0]}
    assert {"path": "seed", "value": 1, "origin": "default", "text": "1"} in client.get(f"{base}/config").json()[
        "values"
    ]
    (event,) = client.get(f"{base}/events").json()["events"]
    assert (event["time"], event["text"], event["severity"]) == ("2026-01-02 03:04:05", "started", "info")
    assert client.get(f"{base}/logs/learner").json() == {"lines": [["", "hello"]], "after": 6}
    assert client.get(f"{base}/logs/learner?after=6").json() == {"lines": [], "after": 6}
    assert client.get(f"{base}/settable").json() == {"settings": []}
    marks = client.get(f"{base}/marks?over=time").json()
    assert (marks["marks"], [one["value"] for one in marks["targets"]]) == ([], [475.0])
    assert client.get(f"{base}/histograms").json() == {"tags": [], "complete": True}


def test_films(page, make_run):
    folder = make_run("a")
    client, base = page(), f"/api/runs/{id_of('a')}/films"
    assert client.get(base).json() == {"films": []}
    (folder / "films").mkdir()
    for name, kind in (("films/steps-000000100.webm", "webm"), ("old.mp4", "mp4")):
        (folder / name).write_bytes(b"a film")
        film = client.get(f"{base}/{name}", headers={"Range": "bytes=2-5"})
        assert (film.status_code, film.content, film.headers["content-type"]) == (206, b"film", f"video/{kind}")
        assert film.headers["content-disposition"] == f'inline; filename="{id_of("a")}-{name.rpartition("/")[2]}"'
    assert [film["name"] for film in client.get(base).json()["films"]] == ["films/steps-000000100.webm", "old.mp4"]
    assert client.get(f"{base}/nothing.webm").status_code == 404


def test_a_range_of_a_film_is_not_compressed(page, make_run):
    (make_run("a") / "old.mp4").write_bytes(b"a film" * 1000)
    headers = {"Range": "bytes=6-3005", "Accept-Encoding": "gzip"}
    film = page().get(f"/api/runs/{id_of('a')}/films/old.mp4", headers=headers)
    assert (film.status_code, film.content, film.headers["content-length"]) == (206, b"a film" * 500, "3000")
    assert "content-encoding" not in film.headers


def test_a_log_is_searched_and_downloaded(page, make_run):
    folder = make_run("a")
    lines = [
        "2026-01-02 03:04:05.678+00:00 learner INFO begins",
        "2026-01-02 03:04:06.678+00:00 learner ERROR it fails",
        "more",
    ]
    (folder / "logs" / "learner.log").write_text("\n".join([*lines, "redis://me:pw@host"]) + "\n")
    client, base = page(), f"/api/runs/{id_of('a')}/logs/learner"
    found = client.get(f"{base}/matches?words=FAILS+it").json()
    assert (found["lines"], found["found"]) == ([["error", lines[1]]], 1)
    assert found["scanned_bytes"] == found["size_bytes"] == (folder / "logs" / "learner.log").stat().st_size
    assert len(client.get(f"{base}/matches?level=error").json()["lines"]) == 3
    assert client.get(f"{base}/matches?level=loud").json() == {"error": "level is one of debug, info, warning, error"}
    whole = client.get(f"{base}/whole")
    assert whole.text == "\n".join([*lines, "redis://•••@host"]) + "\n"
    assert whole.headers["content-disposition"] == f'attachment; filename="{id_of("a")}-learner.log"'
    assert client.get(f"/api/runs/{id_of('a')}/logs/none/whole").status_code == 404
    assert client.get(f"/api/runs/{id_of('a')}/logs/none/matches").status_code == 404


def test_a_stretch_of_a_curve_and_its_raw_line(page, make_run):
    make_run("a", rows=5)
    client, base = page(), f"/api/runs/{id_of('a')}/curve"
    told = client.get(f"{base}?over=updates&smooth=3&raw=1&from=2.5&to=3.5").json()
    assert told["curves"] == {"mean_return_100": {"x": [2.0, 3.0, 4.0], "y": [15.0, 20.0, 30.0]}}
    assert told["raw"] == {"mean_return_100": {"x": [2.0, 3.0, 4.0], "y": [20.0, 30.0, 40.0]}}
    assert told["ruler"]["steps"] == [100.0, 200.0, 300.0, 400.0, 500.0]
    assert "raw" not in client.get(f"{base}?raw=1").json()
    for odd in ("from=1", "to=1", "from=2&to=2", "from=nan&to=1", "from=a&to=2", "from=1&to=inf"):
        answer = client.get(f"{base}?{odd}")
        told = {"error": "from and to are numbers, both of them, and from is the lower one"}
        assert (answer.status_code, answer.json()) == (400, told)


def test_a_curve_as_csv(page, make_run):
    make_run("a", rows=2)
    answer = page().get(f"/api/runs/{id_of('a')}/curve.csv?metric=mean_return_100&metric=loss")
    assert answer.text == "env_steps,updates,episodes,wall_s,mean_return_100,loss\n100,1,1,0.5,10,\n200,2,2,1,20,\n"
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == "attachment"


def test_metrics_that_only_one_run_has_are_explained(page, make_run):
    folder = make_run("a", rows=0)
    names = "updates,env_steps,episodes,wall_s,sampled_steps,trained_steps,my metric [x]"
    (folder / "metrics.csv").write_text(f"{names}\n1,100,1,0.5,80,20,7\n")
    client, base = page(), f"/api/runs/{id_of('a')}"
    own = client.get(base).json()["own"]
    assert [(one["name"], one["group"]) for one in own] == [
        ("my metric [x]", "algorithm"),
        ("samples_per_insert", "progress"),
    ]
    told = client.get(f"{base}/curve", params={"metric": ["my metric [x]", "samples_per_insert"]}).json()["curves"]
    assert [line["y"] for line in told.values()] == [[7.0], [4.0]]


def test_comparison(page, make_run):
    make_run("a")
    make_run("b")
    client = page()
    told = client.get(f"/api/compare?id={id_of('a')}&id={id_of('b')}&group=*&statistic=iqm").json()
    assert told["bands"][0]["centre"] == [10.0, 20.0, 30.0]
    some = client.get(f"/api/compare?id={id_of('a')}&id={id_of('b')}&group=*&only={id_of('b')}").json()
    assert ([*some["curves"]], some["bands"][0]["label"]) == ([id_of("b")], "all runs")
    assert client.get("/api/compare").json() == {"error": "name 1 to 60 runs, or a sweep: id=…&id=… or sweep=…"}
    table = client.get(f"/api/compare/settings?id={id_of('a')}&id={id_of('b')}&group=&outcome=env_steps").json()
    assert ([run["outcome"] for run in table["runs"]], table["group"]) == ([300.0, 300.0], [])
    for odd in ("statistic=sum", "outcome=luck", "&".join(f"group={n}" for n in range(17)), f"sweep={'x' * 301}"):
        assert client.get(f"/api/compare/settings?id={id_of('a')}&{odd}").status_code == 400


def test_sweeps(page, make_run, root):
    make_run("rates/0001")
    (root / "rates" / "sweep.yaml").write_text("vary: {a: [1]}\n")
    client = page()
    (told,) = client.get("/api/sweeps").json()["sweeps"]
    assert (told["id"], told["name"]) == (id_of("rates"), "rates")
    assert client.get(f"/api/compare/settings?sweep={told['id']}").json()["sweep"] == told
    assert client.get("/api/compare/settings?sweep=0").status_code == 404


def test_who_asks(page, root):
    told = page().get("/api/session").json()
    assert (told["right"], told["signed_in"], told["root"]) == ("act", False, str(root))
    assert {metric["name"] for metric in told["metrics"]} == {
        m.name for m in METRICS if m.group and m.name != "bottleneck"
    }


def test_healthy(page, root):
    answer = page().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    root.rename(root.with_name("away"))
    answer = page().get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"ok": False})


def test_history_survives_a_restart(page, make_run):
    make_run("a")
    before = page().get("/api/runs").json()
    assert page().get("/api/runs").json() == before


@pytest.mark.redis
def test_steering_a_job(page, make_run, alive, redis_url):
    make_run("job", ended=False, pid=alive, redis_url=redis_url, run_id="app-job")
    backend = connect(redis_url, "app-job", QueueCaps(8, 1000), name="test", give_up_s=1.0)
    backend.create("{}")
    backend.registry.beat(RoleStatus("actor", 0, 1, "hera", 5, "acting", rss_mb=10.0))
    client, path = page(), f"/api/runs/{id_of('job')}/control"
    asked = [("scale", 4, "requested 4 actors"), ("pause", None, "pause requested"), ("stop", None, "stop requested")]
    for action, value, told in asked:
        answer = client.post(path, json={"action": action, "value": value}, headers=ACTING)
        assert (answer.status_code, answer.json()) == (200, {"message": told})
    control = client.get(f"/api/runs/{id_of('job')}").json()["live"]["control"]
    assert {"paused": True, "stop": "asked", "target_actors": 4}.items() <= control.items()
    fleet = client.get("/api/fleet").json()
    assert [(host["host"], host["roles"][0]["rss_mb"]) for host in fleet["hosts"]] == [("hera", 10.0)]
    assert fleet["redis"][0]["problem"] is None
    refused = client.post(path, json={"action": "scale", "value": 0}, headers=ACTING)
    assert (refused.status_code, "number of actors" in refused.json()["error"]) == (400, True)
    late = client.post(path, json={"action": "stop", "deadline": 1.0}, headers=ACTING)
    assert (late.status_code, "too late and was not carried out" in late.json()["error"]) == (409, True)
    backend.delete()
    gone = client.post(path, json={"action": "pause"}, headers=ACTING)
    assert (gone.status_code, gone.json()["error"].startswith("no run app-job at ")) == (409, True)
    backend.close()


def test_the_page_asks_for_nothing_from_elsewhere():
    for path in [*STATIC.rglob("*.js"), *STATIC.rglob("*.html"), *STATIC.rglob("*.css")]:
        if path.parent.name != "vendor":
            assert not re.search(
                r"https?:|//[a-z]+\.|innerHTML|insertAdjacentHTML|document\.write|\beval\(", path.read_text()
            ), path
    html = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", html)


def test_everything_the_page_names_is_there(page):
    client = page()
    html = client.get("/").text
    named = re.findall(r'(?:src|href)="(/[^"]+)"', html)
    assert len(named) >= 6
    for path in named:
        assert client.get(path).status_code == 200, path
    for module in (STATIC / "js").glob("*.js"):
        for name in re.findall(r'from "\./([\w.]+)"', module.read_text()):
            assert client.get(f"/static/js/{name}").status_code == 200, (module.name, name)


def test_vendored_files_are_those_that_are_listed():
    from hashlib import sha256

    listed = dict(
        re.findall(r"^\| `([\w.]+)` \|.*`([0-9a-f]{64})` \|$", (STATIC / "vendor/README.md").read_text(), re.MULTILINE)
    )
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in (STATIC / "vendor").glob("*.min.*")}
    assert listed == found


@pytest.mark.parametrize(
    "path",
    [
        "/static/../access.py",
        "/static/..%2faccess.py",
        "/static/%2e%2e/access.py",
        "/static//etc/passwd",
        "/api/runs/..%2f..",
        "/api/runs/{id}/logs/..%2frun.json",
        "/api/runs/{id}/logs/%2fetc%2fpasswd",
        "/api/runs/{id}/logs/linked",
        "/api/runs/{id}/logs/learner%00",
        "/api/runs/{id}/logs/linked/whole",
        "/api/runs/{id}/logs/linked/matches?words=root",
        "/api/runs/{id}/logs/..%2frun.json/matches",
        "/api/runs/{id}/films/..%2frun.json",
        "/api/runs/{id}/films/../run.json",
        "/api/runs/{id}/films/linked.webm",
        "/api/runs/{id}/films/%2fetc%2fpasswd",
    ],
)
def test_no_way_out_of_a_run_directory(page, make_run, path):
    folder = make_run("a")
    (folder / "logs" / "linked.log").symlink_to("/etc/passwd")
    (folder / "linked.webm").symlink_to("/etc/passwd")
    answer = page().get(path.replace("{id}", id_of("a")))
    assert answer.status_code == 404
    assert "root:" not in answer.text
    assert "redis_url" not in answer.text


FUZZ = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Any text, more often made of what means something in addresses and answers.
texts = st.text(
    st.sampled_from("./%\\\0\n:;?#&=@ \"'<>{}[]-_*~é\u2028\U0001f600" + string.ascii_letters + string.digits),
    max_size=40,
) | st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
ADDRESSES = (
    *("/api/runs", "/api/runs/{id}", "/api/runs/{id}/curve", "/api/runs/{id}/config", "/api/runs/{id}/events"),
    *("/api/runs/{id}/logs/{any}", "/api/runs/{id}/logs/{any}/matches", "/api/runs/{id}/logs/{any}/whole"),
    *("/api/runs/{id}/films/{any}", "/api/runs/{id}/films", "/api/runs/{id}/checkpoints", "/api/runs/{id}/evaluations"),
    *("/api/runs/{id}/curve.csv", "/api/runs/{id}/marks", "/api/runs/{id}/histograms"),
    *("/api/runs/{id}/settable", "/api/compare", "/api/fleet"),
    *("/api/runs/{id}/roles/{any}/0/history", "/api/runs/{id}/roles/actor/{any}/stacks"),
    *("/api/runs/{any}", "/api/{any}", "/static/{any}", "/{any}", "/login", "/metrics", "/api/session", "/api/changes"),
    *("/api/selection", "/api/columns", "/api/edit", "/api/remove"),
)
PARAMETERS = ("metric", "over", "points", "smooth", "group", "statistic", "id", "query", "sort", "column", "after")
USUAL = (
    "loss",
    "lr>1 -state:failed",
    "steps",
    "time",
    "10",
    "1",
    "*",
    "iqm",
    "mean",
    "seed",
    "-name",
    "99999999999999999999",
    "-1",
)
PARAMETERS += ("from", "to", "raw", "tag", "words", "level")


@pytest.fixture
def client(root, make_run):
    """A dashboard over runs in every state, some of them damaged; errors of the server are answers, not exceptions."""
    make_run("a")
    make_run("odd")
    (make_run("odd table") / "metrics.csv").write_bytes(b"\xff\0,\n1\n")
    (make_run("odd configuration") / "config.yaml").write_text("a: [")
    (make_run("odd record") / "run.json").write_bytes(b"\xff")
    (make_run("odd summary") / "summary.json").write_text("[]")
    with TestClient(
        make_app(root, Access("127.0.0.1")), base_url="http://127.0.0.1:1", raise_server_exceptions=False
    ) as client:
        yield client


def assert_answered(answer):
    assert answer.status_code < 500, answer.text
    if answer.content and answer.status_code >= 400 and "json" in answer.headers.get("content-type", ""):
        told = answer.json()["error"]
        assert "\n" not in told
        assert len(told) < 1000


@FUZZ
@given(
    address=st.sampled_from(ADDRESSES),
    run=st.sampled_from(["a", "odd table", "odd configuration", "odd record", "odd summary"]),
    any_text=texts,
    query=st.lists(st.tuples(st.sampled_from(PARAMETERS), texts | st.sampled_from(USUAL)), max_size=5),
    method=st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "PUT", "OPTIONS"]),
)
def test_any_address(client, address, run, any_text, query, method):
    ids = [(name, id_of(run) if name == "id" and value in USUAL else value) for name, value in query]
    path = address.replace("{id}", id_of(run)).replace("{any}", quote(any_text, safe="", errors="surrogatepass"))
    url = f"{path}?{urlencode(ids, errors='surrogatepass')}"
    assert_answered(client.request(method, url, headers=ACTING | {"Content-Type": "application/json"}))


@FUZZ
@given(body=st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()), data=st.data())
def test_any_body(client, body, data):
    if data.draw(st.booleans()):
        value = data.draw(json_values)
        actions = ["pause", "scale", "set", "stop", "checkpoint", "evaluate", ""]
        body = json.dumps({"action": data.draw(st.sampled_from(actions)), "value": value}).encode()
    headers = ACTING | {"Content-Type": "application/json"}
    answer = client.post(f"/api/runs/{id_of('a')}/control", content=body, headers=headers)
    assert answer.status_code == 400  # the run has ended, whatever is asked
    assert_answered(answer)
    assert_answered(client.post("/login", content=body, headers={"Content-Type": "application/x-www-form-urlencoded"}))


header_texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)


@FUZZ
@given(
    name=st.sampled_from(["Authorization", "Cookie", "Host", "Range", "If-None-Match", "Accept", "Content-Type"]),
    value=header_texts,
)
def test_any_header(client, name, value):
    for path in ("/", "/api/runs", "/static/style.css"):
        assert_answered(client.get(path, headers={name: value}))


# Directories that are no run of distrl's -> their state in the list: each costs one row.
ODD_ROWS = {
    "a pid of 31 digits": "damaged",
    "a pid of minus one": "damaged",
    "a start in the far future": "damaged",
    "a summary of megabytes": "damaged",
    "a seed of 6,000 digits": "gone",
    "half a character": "gone",
    "numbers that JSON does not know": "running",
    "a table of nonsense": "running",
    "a table with a line break of its own": "gone",
    r"not UTF-8: caf\xe9": "ended",
    "sound": "ended",
}


@pytest.fixture
def odd(root, make_run, alive):
    """One directory per row."""

    def record(name, **changes):
        folder = make_run(name, ended=False)
        (folder / "run.json").write_text(json.dumps({"run_id": "r", "redis_url": None, "pid": 1, **changes}))

    record("a pid of 31 digits", pid=10**30)
    record("a pid of minus one", pid=-1)
    record("a start in the far future", started=1e300)
    (make_run("a summary of megabytes") / "summary.json").write_bytes(b" " * 2**21)
    make_run("a seed of 6,000 digits", ended=False, config=f"seed: 0x{'f' * 6000}\n")
    make_run("half a character", ended=False, config='environment: {id: "\\ud800"}\n')
    make_run("numbers that JSON does not know", ended=False, pid=alive, config="seed: .inf\nmore: [.nan, 2020-01-01]\n")
    (make_run("a table of nonsense", ended=False, pid=alive) / "metrics.csv").write_text(
        "env_steps,updates,restarts\n" + "inf,nan,1e400\n"
    )
    table = make_run("a table with a line break of its own", ended=False) / "metrics.csv"
    table.write_bytes(b"env_steps,updates\n1\r2,3\n")
    make_run("latin").rename(os.fsdecode(os.fsencode(root) + b"/not UTF-8: caf\xe9"))
    make_run("sound")


def test_an_odd_directory_is_one_row(odd, page, root):
    client = page()
    rows = {row["name"]: row for row in client.get("/api/runs").json()["runs"]}
    assert {name: row["state"] for name, row in rows.items()} == ODD_ROWS
    assert all(row["problem"] for row in rows.values() if row["state"] == "damaged")
    for path in ("/api/fleet", "/metrics"):
        assert client.get(path).status_code == 200
    for row in rows.values():
        answer = client.get(f"/api/runs/{row['id']}")
        assert answer.status_code == 200, (row["name"], answer.text)
        configuration = client.get(f"/api/runs/{row['id']}/config")
        assert configuration.status_code in (200, 400), (row["name"], configuration.text)
        curve = client.get(f"/api/runs/{row['id']}/curve?metric=updates&over=updates")
        assert curve.status_code in (200, 400), (row["name"], curve.text)
        assert str(root) not in answer.text + configuration.text + curve.text
    infinite = client.get(f"/api/runs/{rows['numbers that JSON does not know']['id']}/config").json()["values"]
    assert [(one["path"], one["value"], one["text"]) for one in infinite] == [
        ("seed", None, ".inf"),
        ("more", [None, "2020-01-01"], "[.nan, 2020-01-01]"),
    ]
    latin = rows[r"not UTF-8: caf\xe9"]
    assert client.get(f"/api/runs/{latin['id']}/curve").json()["curves"]["mean_return_100"]["y"] == [10.0, 20.0, 30.0]


def test_distrl_runs_lists_them_all(odd, root):
    command, wide = [sys.executable, "-m", "distrl", "runs", str(root)], {**os.environ, "COLUMNS": "300"}
    told, as_json = (
        subprocess.run([*command, *more], capture_output=True, text=True, env=wide) for more in ([], ["--json"])
    )
    assert told.returncode == as_json.returncode == 0, told.stderr
    assert "sound" in told.stdout
    assert r"not UTF-8: caf\xe9" in told.stdout
    assert (told.stderr, as_json.stderr) == ("", "")
    found = {one["name"]: (one["state"], one["problem"]) for one in json.loads(as_json.stdout)}
    torn = "a table with a line break of its own"  # whose numbers are of the list, not of the page's
    assert {name: state for name, (state, _) in found.items()} == ODD_ROWS | {torn: "damaged"}
    assert found[torn][1].startswith("metrics.csv: ")


def test_runs_and_a_sweep_that_have_just_begun_have_their_pages(page, make_run, root, monkeypatch):
    for name in ("FRESH_S", "QUICK_S"):
        monkeypatch.setattr(f"distrl.apps.dashboard.index.{name}", 1e9)
    make_run("a")
    client = page()
    assert len(client.get("/api/runs").json()["runs"]) == 1
    make_run("b")
    found = client.get(f"/api/compare/settings?id={id_of('a')}&id={id_of('b')}").json()
    assert [run["id"] for run in found["runs"]] == [id_of("a"), id_of("b")]
    make_run("rates/0001")
    (root / "rates" / "sweep.yaml").write_text("vary: {a: [1]}\n")
    assert client.get(f"/api/compare/settings?sweep={id_of('rates')}").json()["sweep"]["name"] == "rates"
