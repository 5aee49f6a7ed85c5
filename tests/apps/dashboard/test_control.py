import json
from dataclasses import asdict

import pytest

from distrl.apps.dashboard.bodies import TooLateError
from distrl.apps.dashboard.control import ControlRequest, apply
from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.memory_backend.backend import connect
from distrl.memory_backend.steering import Steering
from distrl.memory_backend.stream import QueueCaps


class Hands:
    """A steering that notes what it is told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *arguments: self.told.append((name, *arguments))


@pytest.mark.parametrize(
    ("body", "call", "words"),
    [
        ('{"action": "pause"}', ("pause",), "pause requested"),
        ('{"action": "resume", "value": null}', ("resume",), "resume requested"),
        ('{"action": "stop"}', ("stop",), "stop requested"),
        ('{"action": "checkpoint"}', ("checkpoint",), "checkpoint requested"),
        ('{"action": "evaluate"}', ("evaluate",), "evaluate requested"),
        ('{"action": "scale", "value": 4}', ("scale", 4), "requested 4 actors"),
        ('{"action": "scale", "value": 1}', ("scale", 1), "requested 1 actor"),
        (
            '{"action": "set", "value": {"path": "network.learning_rate", "value": 1e-3}}',
            ("change", {"network.learning_rate": 1e-3}),
            "requested network.learning_rate = 0.001",
        ),
        (
            '{"action": "set", "value": {"path": "environment.kwargs.windy", "value": false}}',
            ("change", {"environment.kwargs.windy": False}),
            "requested environment.kwargs.windy = false",
        ),
    ],
)
def test_actions(body, call, words):
    hands = Hands()
    assert apply(ControlRequest.read(body.encode()), hands) == words
    assert hands.told == [call]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "the body: Invalid JSON"),
        (b"[]", "the body: Input should be an object"),
        (b'{"action": "explode"}', "action: Input should be"),
        (b'{"action": "pause", "more": 1}', "more: Extra inputs"),
        (b'{"action": "scale", "value": 1.5}', "value"),
        (b'{"action": "scale", "value": true}', "value"),
        (b"\xff", "the body: Invalid JSON"),
    ],
)
def test_bodies_that_are_none(body, problem):
    with pytest.raises(ConfigError, match=problem):
        ControlRequest.read(body)


@pytest.mark.parametrize("value", ["null", "0", "-1", "10001", "{}"])
def test_numbers_of_actors(value):
    with pytest.raises(ConfigError, match="scale wants a number of actors from 1 to 10,000"):
        apply(ControlRequest.read(f'{{"action": "scale", "value": {value}}}'.encode()), Hands())


@pytest.mark.parametrize("value", ["null", "3", "{}", '{"path": 1, "value": 2}', '{"path": "a"}'])
def test_assignments(value):
    with pytest.raises(ConfigError, match="set wants a path and its value"):
        apply(ControlRequest.read(f'{{"action": "set", "value": {value}}}'.encode()), Hands())


@pytest.mark.parametrize("value", ["null", "[1]", "{}"])
def test_values_that_no_parameter_has(value):
    with pytest.raises(ConfigError, match="a wants a number or a word"):
        apply(ControlRequest.read(f'{{"action": "set", "value": {{"path": "a", "value": {value}}}}}'.encode()), Hands())


def test_a_request_after_its_deadline_is_not_carried_out():
    hands = Hands()
    late = ControlRequest.read(b'{"action": "pause", "deadline": 1000.5}')
    with pytest.raises(TooLateError, match="came 40 s too late and was not carried out; repeat it"):
        apply(late, hands, lambda: 1040.5)
    assert hands.told == []
    assert apply(late, hands, lambda: 1000.0) == "pause requested"
    for odd in (b"NaN", b"1e999", b'"soon"', b"true"):
        with pytest.raises(ConfigError, match=r"deadline|Invalid JSON"):
            ControlRequest.read(b'{"action": "pause", "deadline": ' + odd + b"}")


def test_through_the_registry():
    backend = connect("local:", "r1", QueueCaps(1, 1), name="test", give_up_s=1.0)
    backend.create(json.dumps({"config": RunConfig().model_dump(mode="json")}))
    hands = Steering(backend, "ada, a test")
    for body in ('{"action": "scale", "value": 3}', '{"action": "checkpoint"}', '{"action": "pause"}'):
        apply(ControlRequest.read(body.encode()), hands)
    change = b'{"action": "set", "value": {"path": "network.learning_rate", "value": 0.125}}'
    apply(ControlRequest.read(change), hands)
    control = backend.registry.control()
    assert (control.paused, control.target_actors, control.checkpoint.asked) == (True, 3, 1)
    assert control.settings == {"network.learning_rate": 0.125}
    first = asdict(hands.steerable()[0])
    assert {"path": "network.learning_rate", "kind": "number", "value": 0.125}.items() <= first.items()
    for refused in ('{"action": "evaluate"}', change.decode().replace("0.125", "-1")):
        with pytest.raises(ConfigError):
            apply(ControlRequest.read(refused.encode()), hands)
    assert [request.by for _, request in backend.registry.requests("0")] == ["ada, a test"] * 4
