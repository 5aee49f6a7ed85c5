import re
from base64 import b64encode
from hashlib import sha256

import pytest

from distrl.apps.dashboard import authentication
from distrl.apps.dashboard.sessions import LONGEST_S
from distrl.apps.web.failures import FAILURES

TOKEN, READ_ONLY = "token-of-many-letters", "another-of-many-letters"
EVERYWHERE = "0.0.0.0"
COOKIE = "distrl-8720"
HTML = {"Accept": "text/html"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(authentication, "WRONG_TOKEN_S", 0.0)


@pytest.fixture
def client(page):
    return page(EVERYWHERE, token=TOKEN, read_only_token=READ_ONLY)


def sign_in(client, token=TOKEN, **headers):
    return client.post("/login", data={"token": token}, follow_redirects=False, headers=headers)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("header", "right"),
    [
        (f"Bearer {TOKEN}", "act"),
        (f"bearer  {TOKEN} ", "act"),
        (f"Bearer {READ_ONLY}", "look"),
        (f"Bearer {TOKEN}x", None),
        ("Bearer ", None),
        ("Bearer", None),
        (f"Basic {TOKEN}", None),
        ("", None),
    ],
)
def test_by_header(client, header, right):
    answer = client.get("/api/session", headers={"Authorization": header})
    assert (answer.json().get("right"), answer.status_code) == (right, 200 if right else 401)


def test_signing_in_and_out(client):
    form = client.get("/", headers=HTML)
    assert (form.status_code, '<form method="post" action="/login">' in form.text) == (401, True)
    wrong = sign_in(client, "wrong")
    assert (wrong.status_code, "that is not the token" in wrong.text) == (401, True)
    right = sign_in(client)
    assert (right.status_code, right.headers["location"]) == (303, "/")
    attributes = {part.strip() for part in right.headers["set-cookie"].split(";")}
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= attributes
    assert "Secure" not in attributes
    told = client.get("/api/session").json()
    assert (told["right"], told["signed_in"]) == ("act", True)
    again = client.get("/login", follow_redirects=False)
    assert (again.status_code, again.headers["location"]) == (303, "/")
    stolen = client.cookies[COOKIE]
    out = client.post("/logout", json={}, headers={"X-Distrl": "1"})
    assert (out.status_code, out.json(), COOKIE in client.cookies) == (200, {"message": "signed out"}, False)
    client.cookies.set(COOKIE, stolen)
    assert client.get("/api/session").status_code == 401


def test_a_session_is_a_function_of_nothing(client, page):
    """The same token gives another cookie each time, under a name that does not depend on it."""
    values = set()
    for other in (client, page(EVERYWHERE, token=TOKEN), page(EVERYWHERE, token=TOKEN[::-1])):
        for token in (TOKEN, TOKEN[::-1]):
            other.cookies.clear()
            if sign_in(other, token).status_code == 303:
                assert list(other.cookies) == [COOKIE]
                values.add(other.cookies[COOKIE])
    assert len(values) == 3
    assert min(map(len, values)) >= 43  # 256 bits


def test_a_session_is_of_one_server(client, page):
    sign_in(client)
    cookie = client.cookies[COOKIE]
    other = page(EVERYWHERE, token=TOKEN)
    assert other.get("/api/session", headers={"Cookie": f"{COOKIE}={cookie}"}).status_code == 401


def test_one_cookie_is_read(client):
    """A request cannot carry many guesses."""
    sign_in(client)
    right = f"{COOKIE}={client.cookies[COOKIE]}"
    client.cookies.clear()
    assert client.get("/api/session", headers={"Cookie": f"other=1; {right}"}).status_code == 200
    for cookies in (f"{right}; {COOKIE}=guess", f"{COOKIE}=guess; {right}"):
        assert client.get("/api/session", headers={"Cookie": cookies}).status_code == 401


def test_cookies_of_other_dashboards_on_the_host_are_no_attempts(client):
    answers = [client.get("/api/runs", headers={"Cookie": f"{COOKIE}1=x; my-{COOKIE}=y"}) for _ in range(FAILURES + 1)]
    assert {(answer.status_code, "set-cookie" in answer.headers) for answer in answers} == {(401, False)}


def test_a_session_that_is_over_is_forgotten_by_the_browser(client):
    client.cookies.set(COOKIE, "of-an-earlier-server", domain="0.0.0.0")
    answer = client.get("/", headers=HTML)
    assert (answer.status_code, "<form" in answer.text) == (401, True)
    assert "Max-Age=0" in answer.headers["set-cookie"]


def test_a_session_ends(client, monkeypatch):
    sign_in(client)
    assert client.get("/api/session").status_code == 200
    real = authentication.Sessions.right

    def later(self, identifier):
        clock, self._clock = self._clock, lambda: clock() + LONGEST_S
        try:
            return real(self, identifier)
        finally:
            self._clock = clock

    monkeypatch.setattr(authentication.Sessions, "right", later)
    assert client.get("/api/session").status_code == 401


def test_who_may_only_look_may_sign_in_to_act_and_sign_out(client):
    sign_in(client, READ_ONLY)
    assert client.get("/api/session").json()["right"] == "look"
    assert client.get("/login", follow_redirects=False).status_code == 401
    looked = client.cookies[COOKIE]
    sign_in(client)
    assert client.get("/api/session").json()["right"] == "act"
    assert client.get("/api/session", headers={"Cookie": f"{COOKIE}={looked}"}).status_code == 401
    sign_in(client, READ_ONLY)
    assert client.post("/logout", json={}, headers={"X-Distrl": "1"}).status_code == 200


def test_tokens_are_limited_by_address(client, caplog):
    """Headers and the form share the limit; the right token is not recognised while it holds."""
    for guess in range(FAILURES):
        if guess % 2:
            assert sign_in(client, f"guess-{guess}").status_code == 401
        else:
            assert client.get("/api/runs", headers=bearer(f"guess-{guess}")).status_code == 401
    for token in ("another-guess", TOKEN):
        answer = client.get("/api/runs", headers=bearer(token))
        assert (answer.status_code, "too many failed attempts" in answer.json()["error"]) == (429, True)
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
        form = sign_in(client, token)
        assert (form.status_code, "too many wrong tokens" in form.text, "set-cookie" in form.headers) == (
            429,
            True,
            False,
        )
    told = [record.getMessage() for record in caplog.records if "wrong" in record.getMessage()]
    assert told == ["wrong tokens from testclient: 1"]
    assert "guess" not in caplog.text


def test_sessions_go_on_while_tokens_and_cookies_are_limited(client, caplog):
    sign_in(client)
    good = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
    client.cookies.clear()
    answers = [
        client.get("/api/runs", headers={"Cookie": f"{COOKIE}=guess-{n}"}).status_code for n in range(FAILURES + 3)
    ]
    assert answers == [401] * FAILURES + [429] * 3
    assert client.get("/api/runs", headers=good).status_code == 200
    assert client.get("/api/runs", headers=bearer(TOKEN)).status_code == 200  # a count of its own
    assert "wrong session cookies from testclient: 1" in caplog.text


def test_a_header_does_not_change_the_address(client):
    for guess in range(FAILURES):
        client.get("/api/runs", headers=bearer("guess") | {"X-Forwarded-For": f"10.0.0.{guess}"})
    assert client.get("/api/runs", headers=bearer("guess")).status_code == 429


def test_the_door_does_not_tell_whether_a_token_is_right(client):
    answers = {
        client.get("/login", headers=bearer(token), follow_redirects=False).text for token in (TOKEN, "wrong-and-long")
    }
    assert len(answers) == 1


def test_the_door_lets_its_own_style_in_alone(client):
    answer = client.get("/login")
    style = re.search(r"<style>(.*)</style>", answer.text, re.DOTALL)[1]
    policy = answer.headers["content-security-policy"]
    assert f"style-src 'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" in policy
    assert "<script" not in answer.text


def test_signing_in_from_another_page(client):
    answer = sign_in(client, **{"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_behind_tls_the_cookie_is_for_tls_alone(client):
    assert "Secure" in sign_in(client, Origin="https://runs.example").headers["set-cookie"]


def test_without_tokens_there_is_no_door(page):
    assert page().get("/login", follow_redirects=False).headers["location"] == "/"
