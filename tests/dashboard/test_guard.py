import re

import pytest

from distrl.dashboard import guard
from distrl.dashboard.access import HEADERS, Access
from distrl.dashboard.app import make_app

TOKEN, READ_ONLY = "token-of-many-letters", "another-of-many-letters"
EVERYWHERE = "0.0.0.0"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(guard, "WRONG_TOKEN_S", 0.0)


@pytest.fixture
def run_id(make_run):
    from distrl.dashboard.files import id_of

    make_run("a")
    return id_of("a")


def addresses(root, run_id):
    """Every address there is, and some that there are not."""
    app = make_app(root, Access("127.0.0.1"))
    app.state.runs.index.close()
    paths = [route.path for route in app.routes if hasattr(route, "methods")]
    found = [path.replace("{id}", run_id).replace("{role}", "learner") for path in paths]
    return [*found, "/static/style.css", "/static/js/main.js", "/static/../app.py", "/nothing", "/api/", "//"]


def test_without_a_token_nothing_is_answered(page, root, run_id):
    client = page(EVERYWHERE, token=TOKEN)
    for path in addresses(root, run_id):
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            answer = client.request(method, path, follow_redirects=False)
            assert answer.status_code == 401, (method, path)
            assert "CartPole" not in answer.text


def test_with_the_token_everything_is(page, root, run_id):
    client = page(EVERYWHERE, token=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert client.get("/api/runs", headers=headers).json()["runs"][0]["name"] == "a"
    assert client.get("/static/style.css", headers=headers).status_code == 200
    assert client.get("/metrics", headers=headers).status_code == 200


def test_signing_in(page, run_id):
    client = page(EVERYWHERE, token=TOKEN, read_only_token=READ_ONLY)
    door = client.get("/", headers={"Accept": "text/html"})
    assert (door.status_code, '<form method="post" action="/login">' in door.text) == (401, True)
    wrong = client.post("/login", data={"token": "wrong"})
    assert (wrong.status_code, "that is not the token" in wrong.text) == (401, True)
    right = client.post("/login", data={"token": TOKEN}, follow_redirects=False)
    assert (right.status_code, right.headers["location"]) == (303, "/")
    cookie = right.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert TOKEN not in cookie
    assert client.get("/api/session").json()["right"] == "act"
    again = client.get("/login", follow_redirects=False)
    assert (again.status_code, again.headers["location"]) == (303, "/")


def test_who_may_only_look_may_sign_in_to_act(page, run_id):
    client = page(EVERYWHERE, token=TOKEN, read_only_token=READ_ONLY)
    client.post("/login", data={"token": READ_ONLY}, follow_redirects=False)
    assert client.get("/api/session").json()["right"] == "look"
    assert client.get("/login", follow_redirects=False).status_code == 401


def test_the_door_does_not_tell_whether_a_token_is_right(page):
    client = page(EVERYWHERE, token=TOKEN)
    answers = {
        client.get("/login", headers={"Authorization": f"Bearer {token}"}, follow_redirects=False).text
        for token in (TOKEN, "wrong-and-long-enough")
    }
    assert len(answers) == 1


def test_the_door_lets_its_own_style_in_alone(page):
    from base64 import b64encode
    from hashlib import sha256

    answer = page(EVERYWHERE, token=TOKEN).get("/login")
    style = re.search(r"<style>(.*)</style>", answer.text, re.DOTALL)[1]
    policy = answer.headers["content-security-policy"]
    assert f"style-src 'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" in policy
    assert "<script" not in answer.text


def test_signing_in_from_another_page(page):
    client = page(EVERYWHERE, token=TOKEN)
    answer = client.post("/login", data={"token": TOKEN}, headers={"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_without_tokens_there_is_no_door(page):
    assert page().get("/login", follow_redirects=False).headers["location"] == "/"


def test_reading_only(page, run_id):
    client = page(EVERYWHERE, token=TOKEN, read_only_token=READ_ONLY)
    headers = {"Authorization": f"Bearer {READ_ONLY}", "X-Distrl": "1"}
    assert client.get("/api/session", headers=headers).json()["right"] == "look"
    answer = client.post(f"/api/runs/{run_id}/control", json={"action": "stop"}, headers=headers)
    assert (answer.status_code, answer.json()) == (403, {"error": "this token may only look"})


def test_what_a_foreign_page_can_send_is_refused(page, run_id):
    client, path = page(), f"/api/runs/{run_id}/control"
    body = '{"action": "stop"}'
    for headers in (
        {"Content-Type": "application/json"},
        {"Content-Type": "text/plain", "X-Distrl": "1"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"X-Distrl": "1"},
        {"X-Distrl": "0", "Content-Type": "application/json"},
    ):
        assert client.post(path, content=body, headers=headers).status_code == 403, headers
    allowed = client.post(
        path, content=body, headers={"X-Distrl": "1", "Content-Type": "application/json; charset=utf-8"}
    )
    assert (allowed.status_code, allowed.json()) == (400, {"error": "a does not run"})


def test_names_that_were_bound_anew_to_loopback(page, run_id):
    client = page()
    answer = client.get("/api/runs", headers={"Host": "evil.example"})
    assert (answer.status_code, "CartPole" in answer.text) == (403, False)
    assert client.get("/api/runs", headers={"Host": "localhost:1234"}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/api/runs", "/static/style.css", "/metrics", "/healthz", "/api/runs/x"]
)
def test_headers_of_every_answer(page, path):
    headers = page().get(path).headers
    assert {name: headers[name] for name in HEADERS} == dict(HEADERS)
    assert "server" not in headers


def test_bodies_are_bounded(page, run_id):
    client, path = page(), f"/api/runs/{run_id}/control"
    headers = {"X-Distrl": "1", "Content-Type": "application/json"}
    answer = client.post(path, content=b" " * (guard.MOST_BODY_BYTES + 1), headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (413, "the body is longer than 16,384 bytes")
    locked = page(EVERYWHERE, token=TOKEN)
    assert locked.post("/login", content=b"token=" + b"x" * guard.MOST_BODY_BYTES).status_code == 413
    assert locked.post("/login", content=b"&".join(b"a=1" for _ in range(100))).status_code in (400, 401)
