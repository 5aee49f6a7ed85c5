import pytest

from distrl.apps.dashboard import authentication
from distrl.apps.dashboard.access import HEADERS
from distrl.apps.dashboard.app import make_app
from distrl.apps.web.access import Access

TOKEN, READ_ONLY = "token-of-many-letters", "another-of-many-letters"
EVERYWHERE = "0.0.0.0"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(authentication, "WRONG_TOKEN_S", 0.0)


@pytest.fixture
def run_id(make_run):
    from distrl.apps.dashboard.files import id_of

    make_run("a")
    return id_of("a")


def addresses(root, run_id):
    """Every address there is, and some that there are not."""
    app = make_app(root, Access("127.0.0.1"))
    app.state.runs.close()
    paths = [route.path for route in app.routes if hasattr(route, "methods")]
    found = [path.replace("{id}", run_id).replace("{role}", "learner") for path in paths]
    return [*found, "/static/style.css", "/static/js/main.js", "/static/../app.py", "/nothing", "/api/", "//"]


@pytest.mark.row("P14")
def test_without_a_token_nothing_is_answered(page, root, run_id):
    client = page(EVERYWHERE, token=TOKEN)
    for path in addresses(root, run_id):
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            answer = client.request(method, path, follow_redirects=False)
            probed = path == "/healthz" and method in ("GET", "HEAD")
            assert answer.status_code == (200 if probed else 401), (method, path)
            assert answer.text in ("", '{"ok":true}') if probed else "CartPole" not in answer.text


def test_a_probe_needs_no_token_and_tries_none(page):
    client = page(EVERYWHERE, token=TOKEN)
    for token in ("", "wrong" * 5, TOKEN):
        answer = client.get("/healthz", headers={"Authorization": f"Bearer {token}"} if token else {})
        assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert client.get("/healthz", headers={"Cookie": "distrl-8720=wrong"}).status_code == 200
    assert client.post("/healthz").status_code == 401


def test_with_the_token_everything_is(page, root, run_id):
    client = page(EVERYWHERE, token=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert client.get("/api/runs", headers=headers).json()["runs"][0]["name"] == "a"
    assert client.get("/static/style.css", headers=headers).status_code == 200
    assert client.get("/metrics", headers=headers).status_code == 200


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


def test_requests_of_other_pages(page, run_id):
    client = page()
    for site in ("cross-site", "same-site"):
        assert client.get("/api/runs", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors"}).status_code == 403
        assert client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert client.get("/api/runs", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


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
    answer = client.post(path, content=b" " * (authentication.MOST_BODY_BYTES + 1), headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (413, "the body is longer than 16,384 bytes")
    locked = page(EVERYWHERE, token=TOKEN)
    assert locked.post("/login", content=b"token=" + b"x" * authentication.MOST_BODY_BYTES).status_code == 413
    assert locked.post("/login", content=b"&".join(b"a=1" for _ in range(100))).status_code in (400, 401)
