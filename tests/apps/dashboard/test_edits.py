import json
import logging

import pytest

from distrl.apps.dashboard import index
from distrl.apps.dashboard.edits import MOST_RUNS
from distrl.apps.dashboard.files import id_of
from distrl.runs.labels import FILE, Labels

ACTING = {"X-Distrl": "1"}


@pytest.fixture
def client(page):
    return page()


def rows(client, query=""):
    return {row["path"]: row for row in client.get("/api/runs", params={"query": query}).json()["runs"]}


def edit(client, paths, **change):
    answer = client.post("/api/edit", json={"ids": [id_of(path) for path in paths], **change}, headers=ACTING)
    return answer.status_code, answer.json()


def remove(client, *paths):
    return client.post("/api/remove", json={"ids": [id_of(path) for path in paths]}, headers=ACTING).json()


def test_labels_are_shown_at_once_and_lie_in_the_directory(client, make_run):
    folder = make_run("a")
    make_run("b")
    rows(client)
    assert edit(client, ["a"], name="best", note="why", tags=["x"]) == (200, {"done": [id_of("a")], "problems": {}})
    row = rows(client)["a"]
    assert (row["name"], row["title"], row["note"], row["tags"]) == ("best", "best", "why", ["x"])
    assert Labels.read(folder) == Labels(name="best", note="why", tags=("x",))
    edit(client, ["a", "b"], add=["paper"], remove=["X"])
    assert {path: row["tags"] for path, row in rows(client).items()} == {"a": ["paper"], "b": ["paper"]}
    assert set(rows(client, "tag:paper name:best")) == {"a"}
    edit(client, ["a"], archived=True, name="")
    assert set(rows(client)) == {"b"}
    assert rows(client, "archived:any")["a"]["name"] == "a"


def test_changes_and_deletions_are_logged(client, make_run, caplog, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.edits._MOST_NAMED", 2)
    caplog.set_level(logging.INFO, "distrl.apps.dashboard")
    for name in "abc":
        make_run(name)
    edit(client, ["a", "b", "c", "none"], note="why")
    remove(client, "b")
    assert caplog.messages == ["labels changed by testclient: a, b and 1 more", "deleted by testclient: b"]


def test_two_runs_with_one_name_are_told_apart(client, make_run):
    make_run("a")
    make_run("b")
    rows(client)
    edit(client, ["a", "b"], name="best")
    assert {row["name"] for row in rows(client).values()} == {"best (a)", "best (b)"}


def test_the_failure_of_one_run_is_its_own(client, make_run, tmp_path):
    make_run("a")
    (make_run("linked") / FILE).symlink_to(tmp_path / "other")
    (make_run("damaged") / FILE).write_text("[")
    rows(client)
    status, told = edit(client, ["a", "linked", "damaged", "none"], add=["x"])
    assert (status, told["done"]) == (200, [id_of("a")])
    problems = {one: told["problems"][id_of(one)] for one in ("linked", "damaged", "none")}
    assert problems["linked"] == f"linked/{FILE} is a link; remove it"
    assert problems["damaged"].startswith(f"damaged/{FILE} is damaged")
    assert problems["none"].startswith("no run has that id")
    assert not (tmp_path / "other").exists()
    assert "is damaged" in rows(client)["damaged"]["problem"]
    assert rows(client)["damaged"]["state"] == "ended"


@pytest.mark.parametrize(
    "change", [{"name": "two\nlines"}, {"tags": ["two words"]}, {"add": ["x" * 41]}, {"note": "x" * 2001}]
)
def test_labels_out_of_bounds(client, make_run, change):
    folder = make_run("a")
    rows(client)
    assert set(edit(client, ["a"], **change)[1]["problems"]) == {id_of("a")}
    assert not (folder / FILE).exists()


@pytest.mark.parametrize("body", [{}, {"ids": []}, {"ids": ["x"], "colour": 1}, {"ids": ["x"] * (MOST_RUNS + 1)}, []])
def test_bodies_that_say_something_else(client, body):
    for path in ("/api/edit", "/api/remove"):
        answer = client.post(path, content=json.dumps(body), headers=ACTING | {"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert "\n" not in answer.json()["error"]


def test_acting_needs_the_header_and_the_right(page, make_run):
    folder = make_run("a")
    client = page(token="t" * 20, read_only_token="r" * 20)
    body = {"ids": [id_of("a")]}
    looking, acting = {"Authorization": f"Bearer {'r' * 20}"}, {"Authorization": f"Bearer {'t' * 20}"}
    for path in ("/api/edit", "/api/remove"):
        assert client.post(path, json=body, headers=looking | ACTING).status_code == 403
        assert client.post(path, json=body, headers=acting).status_code == 403
        assert client.get(path, headers=acting).status_code == 405
    assert folder.exists()


def test_runs_are_deleted_unless_they_run(client, make_run, alive, monkeypatch):
    monkeypatch.setattr(index, "FRESH_S", 1e9)  # what was removed is gone from the list at once
    ended, gone, running = make_run("x/ended"), make_run("gone", ended=False), make_run("up", ended=False, pid=alive)
    rows(client)
    told = remove(client, "x/ended", "gone", "up", "none")
    assert told["done"] == [id_of("x/ended"), id_of("gone")]
    assert told["problems"][id_of("up")] == "it runs; stop it first"
    assert [folder.exists() for folder in (ended, gone, running)] == [False, False, True]
    assert set(rows(client)) == {"up"}


def test_a_run_that_began_after_the_list_was_made_is_not_deleted(client, make_run, alive, monkeypatch):
    monkeypatch.setattr(index, "FRESH_S", 1e9)
    folder = make_run("a", ended=False)
    rows(client)
    record = json.loads((folder / "run.json").read_text())
    record |= {"pid": alive, "process": index.process_mark(alive)}
    (folder / "run.json").write_text(json.dumps(record))
    assert remove(client, "a")["problems"] == {id_of("a"): "it runs; stop it first"}
    assert folder.exists()
