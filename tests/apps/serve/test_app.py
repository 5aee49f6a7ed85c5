"""Replies are what the policy itself says, by every way in."""

import contextlib
import http.client
import json

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from distrl import wire
from distrl.apps.serve.gate import ClientGate
from distrl.apps.web.access import Access
from distrl.serving.run_policy import policy_of_run
from tests.apps.serve.conftest import exchange, serving
from tests.waiting import PATIENCE_S, wait_until

ROWS = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
TOKEN, READ_ONLY = "token-of-many-letters", "another-token-of-letters"


@pytest.fixture(scope="module")
def policy(trained):
    return policy_of_run(trained("mlp"))


@pytest.fixture(scope="module")
def recurrent(trained):
    return policy_of_run(trained("lstm"))


def test_the_first_page_describes_the_policy(mlp):
    status, page = mlp.ask("GET", "/")
    assert (status, page["environment"], page["remembers"]) == (200, "CartPole-v1", False)
    assert page["observations"]["observation"]["shape"] == [4]
    assert page["actions"] == {"action": {"n": 2, "start": 0, "kind": "discrete"}}
    assert page["policies"]["main"]["algorithm"] == "impala"
    assert mlp.ask("GET", "/healthz") == (200, {"ok": True})


def test_the_game_is_found_without_its_slash(mlp, trained):
    assert "/demo/" not in mlp.ask("GET", "/nothing")[1]["error"]
    with serving(trained("mlp"), demo=True) as served:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port)) as connection:
            connection.request("GET", "/demo")
            answer = connection.getresponse()
            assert (answer.status, answer.headers["Location"]) == (307, "demo/")
        assert served.ask("GET", "/demo/")[0] == 200
        assert "/demo/" in served.ask("GET", "/nothing")[1]["error"]


@pytest.mark.parametrize("way", ["http", "http msgpack", "json", "msgpack"])
def test_an_action_is_the_policys(mlp, policy, way):
    expected = policy.act(ROWS).action.tolist()
    assert {*expected} == {0, 1}
    if way == "http":
        found = [mlp.act(observation=row.tolist()) for row in ROWS]
    elif way == "http msgpack":
        kind = {"Content-Type": "application/msgpack"}
        replies = [mlp.ask("POST", "/act", wire.pack({"observation": row}), kind) for row in ROWS]
        found = [wire.unpack(reply) for _, reply in replies]
    else:
        with mlp.socket(way) as websocket:
            found = [exchange(websocket, observation=row.tolist()) for row in ROWS]
    assert found == [{"action": action, "version": policy.exported.weights_version} for action in expected]


def test_what_is_wanted_is_what_the_policy_computes(mlp, policy):
    before = policy.fresh(len(ROWS))
    choice = policy.decide({"observation": ROWS}, before, np.ones(len(ROWS), bool), np.random.default_rng(0))
    reply = mlp.act(observations=ROWS.tolist(), want=["value", "log_probability", "distribution"], id="a")
    assert reply["id"] == "a"
    np.testing.assert_allclose(reply["value"], choice.outputs["value"].reshape(-1), rtol=1e-6)
    np.testing.assert_allclose(reply["log_probability"], policy.log_probabilities(choice), rtol=1e-6)
    logits = [row["action"]["parameters"] for row in reply["distribution"]]
    np.testing.assert_allclose(logits, choice.outputs["policy/action"], rtol=1e-6)
    chances = np.array([row["action"]["probabilities"] for row in reply["distribution"]])
    taken = chances[np.arange(len(ROWS)), reply["actions"]]
    np.testing.assert_allclose(np.log(taken), reply["log_probability"], rtol=1e-4)


def test_drawn_actions_follow_the_distribution(mlp):
    row = ROWS[0].tolist()
    replies = mlp.act(observations=[row] * 1000, greedy=False, want=["distribution", "log_probability"])
    chances = replies["distribution"][0]["action"]["probabilities"]
    drawn = np.bincount(replies["actions"], minlength=2) / 1000
    np.testing.assert_allclose(drawn, chances, atol=0.06)
    expected = np.log(np.array(chances))[replies["actions"]]
    np.testing.assert_allclose(replies["log_probability"], expected, rtol=1e-4)


def test_sessions_remember_their_own_episodes(lstm, recurrent):
    """Two sessions by HTTP, and two of one WebSocket, beside each other: each as if it were alone."""
    expected, state = [], None
    for row in [*ROWS[:10], *ROWS[:5]]:
        restarted = state is not None and len(expected) == 10
        decision = recurrent.act(row, state.restarted([True]) if restarted else state)
        state = decision.state
        expected.append(decision.action)
    assert lstm.ask("POST", "/sessions", {"foo": 1})[0] == 400
    sessions = [lstm.ask("POST", "/sessions")[1]["session"] for _ in range(2)]
    with lstm.socket() as websocket:
        found = {name: [] for name in (*sessions, 7, "x")}
        for step, row in enumerate([*ROWS[:10], *ROWS[:5]]):
            message = {"observation": row.tolist(), "want": ["value"], **({"begins": True} if step == 10 else {})}
            for name in sessions:
                found[name].append(lstm.act(session=name, **message))
            for name in (7, "x"):
                found[name].append(exchange(websocket, session=name, **message))
        assert exchange(websocket, end=7) == {"ended": 7}
        assert exchange(websocket, end=7)["status"] == 404
    for name, replies in found.items():
        assert [reply["action"] for reply in replies] == expected, name
        values = [reply["value"] for reply in replies]
        assert values[10:] == pytest.approx(values[:5], rel=1e-5)  # a new episode begins without memory
    assert lstm.ask("DELETE", f"/sessions/{sessions[0]}") == (200, {"ended": sessions[0]})
    assert lstm.act(observation=ROWS[0].tolist(), session=sessions[0])["status"] == 404


def test_a_policy_that_remembers_wants_a_session(lstm):
    row = ROWS[0].tolist()
    assert "this policy remembers earlier steps" in lstm.act(observation=row)["error"]
    assert lstm.act(observation=row, begins=True)["action"] in (0, 1)


def test_masks_are_observations(trained):
    """Greedy or drawn, only allowed choices; batches of requests and of rows."""
    rng = np.random.default_rng(1)
    masks = rng.integers(0, 2, (200, 6))
    masks[np.arange(200), rng.integers(0, 6, 200)] = 1
    shown = [{"action_mask": mask.tolist(), "x": [0.1, 0.2]} for mask in masks]
    with serving(trained("masked")) as served, served.socket() as websocket:
        for greedy in (True, False):
            many = served.act(observations=shown, greedy=greedy)["actions"]
            one_by_one = [exchange(websocket, observation=one, greedy=greedy)["action"] for one in shown[:50]]
            assert masks[np.arange(200), many].all()
            assert masks[np.arange(50), one_by_one].all()


def test_tokens(trained):
    access = Access("127.0.0.1", TOKEN, READ_ONLY, "DISTRL_SERVE_TOKEN")
    row = {"observation": [0.0] * 4}
    with serving(trained("mlp"), access=access) as served:
        for token, looks, acts in ((None, 401, 401), (READ_ONLY, 200, 403), (TOKEN, 200, 200)):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            assert served.ask("GET", "/metrics", headers=headers)[0] == looks
            assert served.ask("POST", "/act", row, headers)[0] == acts
        assert served.ask("POST", "/act", row, {"Authorization": "Bearer wrong"})[0] == 401
        assert served.ask("GET", "/healthz")[0] == 200
        with served.socket("json", f"bearer.{TOKEN}") as websocket:  # as a page in a browser does
            assert exchange(websocket, **row)["action"] in (0, 1)
        with served.socket(additional_headers={"Authorization": f"Bearer {TOKEN}"}) as websocket:
            assert exchange(websocket, **row)["action"] in (0, 1)


def test_pages_of_other_origins_are_refused_unless_named(trained):
    gate = ClientGate(Access("127.0.0.1"), origins=frozenset({"https://game.example"}))
    row = {"observation": [0.0] * 4}
    with serving(trained("mlp"), gate=gate) as served:
        assert served.ask("POST", "/act", row, {"Origin": "https://evil.example"})[0] == 403
        assert served.ask("POST", "/act", row, {"Host": "evil.example"})[0] == 403
        assert served.ask("POST", "/act", row, {"Origin": f"http://127.0.0.1:{served.port}"})[0] == 200
        assert served.ask("POST", "/act", row, {"Origin": "https://game.example"})[0] == 200
        assert served.ask("OPTIONS", "/act", headers={"Origin": "https://game.example"})[0] == 200


def test_the_metrics_count_what_was_done(trained):
    with serving(trained("mlp")) as served, served.socket() as websocket:
        served.act(observations=ROWS.tolist())
        exchange(websocket, observation=[0.0] * 4)
        served.act(observation=[0.0] * 3)
        text = served.ask("GET", "/metrics")[1].decode()
    for line in (
        'distrl_serve_requests_total{status="200",transport="http"} 1.0',
        'distrl_serve_requests_total{status="400",transport="http"} 1.0',
        'distrl_serve_requests_total{status="200",transport="websocket"} 1.0',
        "distrl_serve_websockets 1.0",
        'distrl_serve_batch_rows_bucket{le="64.0"} 2.0',
        "distrl_serve_latency_seconds_count 2.0",
        "distrl_serve_actions_total 65.0",
    ):
        assert line in text, text


def test_a_canary_takes_its_share_of_sessions(trained, copied):
    from distrl.learner.policy_files import read_policy, write_weights
    from distrl.types import Weights

    other = copied("mlp")
    write_weights(other / "policy", Weights(99, read_policy(other).weights.arrays))
    with serving(trained("mlp"), other, share=0.3) as served:
        replies = [served.act(observation=[0.0] * 4) for _ in range(200)]
        session = served.ask("POST", "/sessions")[1]["session"]
        versions = {served.act(observation=[0.0] * 4, session=session)["version"] for _ in range(20)}
    canaries = [reply for reply in replies if reply.get("policy") == "canary"]
    assert {reply["version"] for reply in canaries} == {99}
    assert 30 <= len(canaries) <= 90
    assert len(versions) == 1


def test_the_end_answers_what_is_under_way(trained):
    """Requests that wait for their batch when the server is told to end, by both ways; then connections are closed."""
    row = {"observation": [0.0] * 4}
    with serving(trained("mlp"), window_s=2.0) as served, served.socket() as websocket:
        by_http = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
        by_http.request("POST", "/act", json.dumps(row), {"Content-Type": "application/json"})
        for number in range(3):
            websocket.send(json.dumps(row | {"id": number}))
        wait_until(lambda: b"distrl_serve_waiting 4.0" in served.ask("GET", "/metrics")[1], "all of them wait")
        served.server.should_exit = True
        answer = by_http.getresponse()
        assert (answer.status, json.loads(answer.read())["action"] in (0, 1)) == (200, True)
        assert answer.headers["Connection"] == "close"
        by_http.close()
        assert [json.loads(websocket.recv(timeout=PATIENCE_S))["id"] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ConnectionClosed) as closed:
            websocket.recv(timeout=PATIENCE_S)
        assert closed.value.rcvd.code == 1012
