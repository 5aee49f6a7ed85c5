import asyncio

import pytest

from distrl.apps.serve import gate as module
from distrl.apps.serve.gate import ClientGate, token_of
from distrl.apps.serve.messages import RefusedError
from distrl.apps.web.access import Access
from distrl.apps.web.failures import FAILURES
from tests.clocks import Clock

TOKEN = "token-of-many-letters"
OURS = {b"host": b"127.0.0.1:1"}


def test_the_rate_is_of_each_address_and_allows_a_second_at_once():
    clock = Clock()
    gate = ClientGate(Access("127.0.0.1"), 10.0, clock=clock)
    for _ in range(10):
        gate.count("10.0.0.1", 1)
    with pytest.raises(RefusedError, match="more than 10 observations per second") as refused:
        gate.count("10.0.0.1", 1)
    assert (refused.value.status, refused.value.wait_s) == (429, 0.1)
    gate.count("10.0.0.2", 10)
    clock.now += 0.5
    gate.count("10.0.0.1", 5)
    with pytest.raises(RefusedError):
        gate.count("10.0.0.1", 1)


def test_addresses_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_ADDRESSES", 3)
    gate = ClientGate(Access("127.0.0.1"), 1.0, clock=Clock())
    for number in range(10):
        gate.count(f"10.0.0.{number}", 1)
    assert len(gate._buckets) == 3


def test_wrong_tokens_wait_and_then_are_refused(monkeypatch):
    monkeypatch.setattr(module, "WRONG_TOKEN_S", 0.0)
    gate = ClientGate(Access("0.0.0.0", TOKEN))

    def status(token):
        headers = OURS | {b"authorization": f"Bearer {token}".encode()}
        try:
            return asyncio.run(gate.right(headers, "10.0.0.1"))
        except RefusedError as error:
            return error.status

    assert status(TOKEN) == "act"
    assert [status(f"wrong {number}") for number in range(FAILURES + 1)] == [401] * FAILURES + [429]
    assert status(TOKEN) == 429
    assert gate.right_now(OURS | {b"authorization": f"Bearer {TOKEN}".encode()}, "10.0.0.1") is None


def test_a_token_among_subprotocols():
    assert token_of(["json", "bearer.abc"]) == "abc"
    assert token_of(["json"]) is None
