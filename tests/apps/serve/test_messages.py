import numpy as np
import pytest

from distrl.apps.serve.messages import (
    CODECS,
    JSON,
    MOST_ROWS,
    MSGPACK,
    RefusedError,
    codec_of_media_type,
    error_reply,
    request_of,
)


def test_a_whole_request():
    request = request_of(
        {"observation": [1], "session": "a", "begins": True, "greedy": False, "want": ["value"], "id": 7}
    )
    assert (request.observations, request.single, request.session, request.begins) == ([[1]], True, "a", True)
    assert (request.greedy, request.want, request.id) == (False, {"value"}, 7)
    many = request_of({"observations": np.zeros((3, 2))})
    assert (len(many.observations), many.single, many.greedy, many.want) == (3, False, None, frozenset())


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ([1], "a message is a map of fields, not list"),
        (None, "not NoneType"),
        ({}, "a message has either observation, or observations"),
        ({"observation": 1, "observations": [1]}, "has either observation, or observations"),
        ({"observation": 1, "rewards": 1.0}, "unknown field: rewards; there are begins, greedy, id"),
        ({"observation": 1, "reward": 1.0}, "a reward, or an end, is of a session's episode: name the session"),
        ({"session": 1, "observation": 1, "reward": 1.0, "begins": True}, "a first observation comes without"),
        ({"session": 1, "observation": 1, "step": 0}, "reward is missing"),
        ({"session": 1, "reward": 1.0}, "a message has either observation"),
        ({"session": 1, "reward": 1.0, "truncated": True, "observation": None}, "truncated: send the last observation"),
        ({"session": 1, "reward": float("nan"), "terminated": True}, "reward is not a number from -1e.09 to 1e.09"),
        ({"session": 1, "reward": True, "terminated": True}, "reward is not a number"),
        ({"session": 1, "reward": 10**400, "terminated": True}, "reward is not a number"),
        ({"session": 1, "reward": 1, "terminated": 1}, "terminated is true or false"),
        ({"session": 1, "reward": 0, "terminated": True, "metrics": [1]}, "metrics is a map of at most 64 names"),
        ({"session": 1, "reward": 0, "terminated": True, "metrics": {"a": "b"}}, "a is not a number from -3.4e"),
        ({"session": 1, "reward": 0, "terminated": True, "step": -1}, "step is a whole number"),
        ({"observations": 3}, "observations are a list of 1 to 1,024"),
        ({"observations": []}, "observations are a list"),
        ({"observations": [0] * (MOST_ROWS + 1)}, "observations are a list"),
        ({"observations": [1], "session": 1}, "observations of one session come one by one"),
        ({"observation": 1, "greedy": 1}, "greedy is true or false"),
        ({"observation": 1, "begins": "yes"}, "begins is true or false"),
        ({"observation": 1, "session": 1.5}, "session is a text"),
        ({"observation": 1, "session": True}, "session is a text"),
        ({"observation": 1, "id": 2**53}, "id is a text"),
        ({"observation": 1, "id": "x" * 129}, "id is a text of at most 128"),
        ({"observation": 1, "want": "value"}, "want is a list of distribution, log_probability, value"),
        ({"observation": 1, "want": ["advice"]}, "want is a list"),
        ({"observation": 1, "want": [[]]}, "want is a list"),
    ],
)
def test_a_request_that_is_none(message, problem):
    with pytest.raises(RefusedError, match=problem) as refused:
        request_of(message)
    assert refused.value.status == 400


@pytest.mark.parametrize("codec", CODECS)
def test_messages_travel(codec):
    tree = {"action": [1, 2.5, None, "a"], "nested": {"x": [[0.25]]}}
    found = codec.load(codec.dump(tree))
    assert found["nested"]["x"][0][0] == 0.25
    assert list(found["action"]) == tree["action"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000, b'{"a": 1}x'])
def test_what_is_no_json(body):
    with pytest.raises(RefusedError, match="the message is not JSON"):
        JSON.load(body)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\x91" * 2000, b"\x01\x01"])
def test_what_is_no_msgpack(body):
    with pytest.raises(RefusedError, match="the message is not msgpack"):
        MSGPACK.load(body)


def test_content_types():
    assert {codec_of_media_type(kind) for kind in (b"", b"application/json; charset=utf-8")} == {JSON}
    assert codec_of_media_type(b"application/x-msgpack") is MSGPACK
    with pytest.raises(RefusedError) as refused:
        codec_of_media_type(b"text/html")
    assert refused.value.status == 415


def test_an_error_is_one_line():
    assert error_reply(RefusedError(429, "a\n  b", 2.0)) == {"error": "a b", "status": 429, "wait_s": 2.0}
