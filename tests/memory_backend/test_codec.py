"""codec: every field survives, and every way an unroll can be wrong has its drop reason."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl import wire
from distrl.errors import DecodeError, NonFiniteUnrollError, SchemaError
from distrl.memory_backend.codec import decode_unroll, decode_weights, encode_unroll, encode_weights
from distrl.types import (
    EPISODE_FIELDS,
    EPISODE_METRICS,
    PRIORITIES,
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    Unroll,
    UnrollHeader,
    Weights,
)
from distrl.unroll_schema import UnrollSchema

T, B = 3, 2
SPEC = EnvSpec(
    id="Toy-v0",
    observations={"camera": ArraySpec((2, 2), "uint8"), "speed": ArraySpec((), "float32")},
    actions={
        "gear": DiscreteSpec(n=3, start=-1),
        "grid": MultiDiscreteSpec((2, 4), (0, 7)),
        "lamps": MultiBinarySpec((3, 1)),
        "force": BoxSpec((1, 2), (-1.0, None), (1.0, None)),
    },
)
SCHEMA = UnrollSchema.of(SPEC, T, B, {"lstm": ArraySpec((4,), "float32")})


def make_unroll(seed=0):
    rng = np.random.default_rng(seed)
    valid = np.array([[True, True], [False, True], [True, True]])
    return Unroll(
        header=UnrollHeader(actor=1, incarnation=2, sequence=3, weights_version=4, env_steps=5),
        observations={
            "camera": rng.integers(0, 256, (T + 1, B, 2, 2), np.uint8),
            "speed": rng.normal(size=(T + 1, B)).astype(np.float32),
        },
        actions={
            "gear": rng.integers(0, 3, (T, B), np.int32),
            "grid": rng.integers(0, (2, 4), (T, B, 2), np.int32),
            "lamps": rng.integers(0, 2, (T, B, 3), np.int32),
            "force": (9 * rng.normal(size=(T, B, 2))).astype(np.float32),
        },
        rewards=np.where(valid, rng.normal(size=(T, B)), 0).astype(np.float32),
        terminated=np.array([[True, False], [False, False], [False, False]]),
        truncated=np.array([[False, False], [False, False], [False, True]]),
        valid=valid,
        behaviour_log_probabilities=-rng.random((T, B), np.float32),
        recurrent_state={"lstm": rng.normal(size=(1, B, 4)).astype(np.float32)},
        episode_returns=np.array([1.5, -2.0], np.float32),
        episode_lengths_steps=np.array([1, 9], np.int32),
        episode_discounted_returns=np.array([1.5, -1.5], np.float32),
        episode_successes=np.array([1, -1], np.int8),
    )


def decode(unroll, schema=SCHEMA):
    return decode_unroll(unroll.header, encode_unroll(unroll), schema)


def with_value(array, index, value):
    changed = array.copy()
    changed[index] = value
    return changed


@pytest.mark.row("N09")
@given(st.integers(0, 2**32 - 1))
def test_an_unroll_comes_back_field_by_field(seed):
    unroll = make_unroll(seed)
    decoded = decode(unroll)
    for field in fields(Unroll):
        before, after = getattr(unroll, field.name), getattr(decoded, field.name)
        if isinstance(before, dict):
            assert list(before) == list(after)
            for name in before:
                np.testing.assert_array_equal(after[name], before[name], strict=True)
        elif isinstance(before, np.ndarray):
            np.testing.assert_array_equal(after, before, strict=True)
        else:
            assert after == before


def test_the_schema_is_made_of_the_environment_and_the_policys_state():
    assert SCHEMA.actions == {
        "gear": (np.dtype("int32"), (3, 2)),
        "grid": (np.dtype("int32"), (3, 2, 2)),
        "lamps": (np.dtype("int32"), (3, 2, 3)),
        "force": (np.dtype("float32"), (3, 2, 2)),
    }
    assert SCHEMA.highest_choices == {"gear": (2,), "grid": (1, 3), "lamps": (1,)}
    assert SCHEMA.observations == {
        "camera": (np.dtype("uint8"), (4, 2, 2, 2)),
        "speed": (np.dtype("float32"), (4, 2)),
    }
    assert SCHEMA.recurrent_state == {"lstm": (np.dtype("float32"), (1, 2, 4))}


def test_stacks_travel_as_single_frames():
    spec = EnvSpec(
        "Toy-v0",
        {"screen": ArraySpec((4, 4, 6), "uint8", frames=3), "speed": ArraySpec((8,), "float32", frames=4)},
        {"gear": DiscreteSpec(n=3)},
    )
    schema = UnrollSchema.of(spec, T, B, {})
    assert schema.observations == {
        "screen": (np.dtype("uint8"), (T + 3, B, 4, 4, 2)),
        "speed": (np.dtype("float32"), (T + 4, B, 2)),
    }
    assert schema.frames == {"screen": 3, "speed": 4}
    assert SCHEMA.frames == {}
    frames = {name: np.ones(shape, dtype) for name, (dtype, shape) in schema.observations.items()}
    unroll = replace(make_unroll(), observations=frames, actions={"gear": np.zeros((T, B), np.int32)})
    unroll = replace(unroll, recurrent_state={})
    assert decode(unroll, schema).observations["screen"].shape == (T + 3, B, 4, 4, 2)
    with pytest.raises(SchemaError, match=r"observations/screen must be uint8 \(6, 2, 4, 4, 2\), not uint8 \(5, "):
        decode(replace(unroll, observations={**frames, "screen": frames["screen"][1:]}), schema)


def test_no_episode_may_have_ended():
    unroll = replace(make_unroll(), **{name: np.zeros(0, dtype) for name, dtype in EPISODE_FIELDS.items()})
    assert decode(unroll).episode_returns.shape == (0,)


MEASURED = UnrollSchema.of(SPEC, T, B, {"lstm": ArraySpec((4,), "float32")}, metrics=3)
NAN, INF = np.nan, np.inf


def test_metrics_of_episodes_come_back_and_nan_stands_for_unknown():
    metrics = np.array([[1.5, NAN, -2.0], [0.0, 4.0, NAN]], np.float32)
    decoded = decode(replace(make_unroll(), extras={EPISODE_METRICS: metrics}), MEASURED)
    np.testing.assert_array_equal(decoded.extras[EPISODE_METRICS], metrics, strict=True)
    assert MEASURED.most_bytes > SCHEMA.most_bytes
    # Where no metric is declared, not one byte of the message is another.
    assert decode(make_unroll()).extras == {}
    assert b"episode_metrics" not in encode_unroll(make_unroll())


@pytest.mark.parametrize(
    ("metrics", "schema", "error", "told"),
    [
        (None, MEASURED, SchemaError, "an unroll has the fields"),
        (np.zeros((2, 3), np.float32), SCHEMA, SchemaError, "an unroll has the fields"),
        (np.zeros((2, 2), np.float32), MEASURED, SchemaError, r"episode_metrics must be float32 \(2, 3\)"),
        (np.zeros((3, 3), np.float32), MEASURED, SchemaError, r"episode_metrics must be float32 \(2, 3\)"),
        (np.zeros((2, 3)), MEASURED, SchemaError, "episode_metrics must be float32"),
        (np.full((2, 3), -INF, np.float32), MEASURED, NonFiniteUnrollError, "episode_metrics is infinite"),
    ],
)
def test_metrics_that_do_not_fit_the_run_are_refused(metrics, schema, error, told):
    with pytest.raises(error, match=told):
        decode(replace(make_unroll(), extras={} if metrics is None else {EPISODE_METRICS: metrics}), schema)


UNROLL = make_unroll()


def with_actions(name, array):
    return {"actions": {**UNROLL.actions, name: array}}


FAULTS = {
    "another length": with_actions("gear", UNROLL.actions["gear"][:2]),
    "another dtype": with_actions("gear", UNROLL.actions["gear"].astype(np.int64)),
    "whole numbers for real ones": with_actions("force", UNROLL.actions["force"].astype(np.int32)),
    "actions no group": {"actions": UNROLL.actions["gear"]},
    "action missing": {"actions": {name: array for name, array in UNROLL.actions.items() if name != "lamps"}},
    "action unknown": with_actions("horn", UNROLL.actions["gear"]),
    "more choices": with_actions("grid", np.zeros((T, B, 3), np.int32)),
    "another byte order": {"rewards": UNROLL.rewards.astype(">f4")},
    "no array": {"valid": True},
    "a numpy scalar": {"rewards": np.float32(1)},
    "floats for bools": {"terminated": UNROLL.terminated.astype(np.float32)},
    "observation missing": {"observations": {"camera": UNROLL.observations["camera"]}},
    "observation unknown": {"observations": {**UNROLL.observations, "lidar": UNROLL.rewards}},
    "observations without the last row": {
        "observations": {name: array[:-1] for name, array in UNROLL.observations.items()}
    },
    "observations no group": {"observations": UNROLL.rewards},
    "state missing": {"recurrent_state": {}},
    "state of other environments": {"recurrent_state": {"lstm": np.zeros((1, 3, 4), np.float32)}},
    "state of more rows": {"recurrent_state": {"lstm": np.zeros((2, 2, 4), np.float32)}},
    "action too high": with_actions("gear", with_value(UNROLL.actions["gear"], (2, 1), 3)),
    "action negative": with_actions("gear", with_value(UNROLL.actions["gear"], (0, 0), -1)),
    "first choice too high": with_actions("grid", with_value(UNROLL.actions["grid"], (1, 0, 0), 2)),
    "second choice too high": with_actions("grid", with_value(UNROLL.actions["grid"], (1, 0, 1), 4)),
    "choice negative": with_actions("grid", with_value(UNROLL.actions["grid"], (2, 1, 1), -1)),
    "switch too high": with_actions("lamps", with_value(UNROLL.actions["lamps"], (2, 1, 2), 2)),
    "switch negative": with_actions("lamps", with_value(UNROLL.actions["lamps"], (2, 1, 0), -1)),
    "more valid steps than the header says": {"valid": np.ones((T, B), bool)},
    "header and valid disagree": {"header": replace(UNROLL.header, env_steps=6)},
    "more returns than lengths": {"episode_returns": np.zeros(3, np.float32)},
    "episode of no steps": {"episode_lengths_steps": np.array([1, 0], np.int32)},
    "episode returns of two axes": {"episode_returns": np.zeros((2, 1), np.float32)},
    "episode lengths of another dtype": {"episode_lengths_steps": np.array([1, 9], np.int64)},
    "more episodes than steps": {
        "episode_returns": np.zeros(7, np.float32),
        "episode_lengths_steps": np.ones(7, np.int32),
        "episode_discounted_returns": np.ones(7, np.float32),
        "episode_successes": np.ones(7, np.int8),
    },
    "more lengths than successes": {"episode_successes": np.ones(1, np.int8)},
    "a success of another dtype": {"episode_successes": np.ones(2, bool)},
    "a success that is none of three": {"episode_successes": np.array([1, 2], np.int8)},
    "discounted returns in float64": {"episode_discounted_returns": np.ones(2)},
}


@pytest.mark.parametrize("changes", FAULTS.values(), ids=FAULTS)
def test_what_the_schema_does_not_allow(changes):
    with pytest.raises(SchemaError):
        decode(replace(UNROLL, **changes))


def test_each_choice_has_bounds_of_its_own():
    highest = {
        "gear": np.full((T, B), 2, np.int32),
        "grid": np.broadcast_to(np.int32([1, 3]), (T, B, 2)),
        "lamps": np.ones((T, B, 3), np.int32),
        "force": np.full((T, B, 2), -3e38, np.float32),  # beyond the Box: a Gaussian has no bounds
    }
    decoded = decode(replace(UNROLL, actions=highest))
    for name, array in highest.items():
        np.testing.assert_array_equal(decoded.actions[name], array, strict=True)
    swapped = highest["grid"][..., ::-1]
    with pytest.raises(SchemaError, match=r"^actions/grid are 1…3, allowed are 0…1, 0…3$"):
        decode(replace(UNROLL, actions={**highest, "grid": swapped}))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name", ["rewards", "behaviour_log_probabilities", "episode_returns", "speed", "force", "lstm"]
)
def test_what_is_not_finite(name, value):
    if name == "speed":
        speed = with_value(UNROLL.observations["speed"], (T, 1), value)
        changes = {"observations": {**UNROLL.observations, "speed": speed}}
    elif name == "force":
        changes = with_actions("force", with_value(UNROLL.actions["force"], (0, 1, 1), value))
    elif name == "lstm":
        changes = {"recurrent_state": {"lstm": with_value(UNROLL.recurrent_state["lstm"], (0, 1, 3), value)}}
    else:
        array = getattr(UNROLL, name)
        changes = {name: with_value(array, (-1,) * array.ndim, value)}
    with pytest.raises(NonFiniteUnrollError, match=name):
        decode(replace(UNROLL, **changes))


@pytest.mark.parametrize(
    "tree", [None, (), {}, {"actions": UNROLL.actions}], ids=["none", "list", "empty", "one field"]
)
def test_other_fields_than_an_unrolls(tree):
    with pytest.raises(SchemaError, match="has the fields"):
        decode_unroll(UNROLL.header, wire.pack(tree), SCHEMA)


@given(st.data())
def test_a_damaged_payload_is_refused_or_still_fits_the_schema(data):
    payload = bytearray(encode_unroll(UNROLL))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_unroll(UNROLL.header, bytes(payload), SCHEMA)
    except (DecodeError, SchemaError, NonFiniteUnrollError):
        return
    assert decoded.actions["gear"].max() < 3
    assert (decoded.actions["grid"] <= [1, 3]).all()
    assert np.isfinite(decoded.actions["force"]).all()
    assert np.isfinite(decoded.rewards).all()


def test_objects_are_never_encoded():
    with pytest.raises(TypeError):
        encode_unroll(replace(UNROLL, rewards=np.full((T, B), None)))


def test_weights_come_back_in_order():
    arrays = {"b/kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "a/bias": np.zeros(0, np.float32)}
    decoded = decode_weights(encode_weights(Weights(7, arrays)))
    assert decoded.version == 7
    assert list(decoded.arrays) == ["b/kernel", "a/bias"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(decoded.arrays[name], array, strict=True)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        {"version": 1},
        {"version": 1, "arrays": {}, "more": 1},
        {"version": -1, "arrays": {}},
        {"version": True, "arrays": {}},
        {"version": 1.0, "arrays": {}},
        {"version": 1, "arrays": ()},
        {"version": 1, "arrays": {"a": 1.0}},
        {"version": 1, "arrays": {"a": {"b": np.ones(1)}}},
    ],
    ids=str,
)
def test_other_trees_are_no_weights(tree):
    with pytest.raises(DecodeError):
        decode_weights(wire.pack(tree))


NORMALISED = UnrollSchema.of(SPEC, T, B, {"lstm": ArraySpec((4,), "float32")}, normalizes_rewards=True)


def with_moments(count=5.0, mean=-0.25, squares=3.0):
    told = {"count": np.array(count), "mean": np.array(mean), "squares": np.array(squares)}
    return replace(make_unroll(), reward_moments=told)


def test_moments_of_rewards_come_back_exactly():
    told = decode(with_moments(), NORMALISED).reward_moments
    assert {name: array.item() for name, array in told.items()} == {"count": 5.0, "mean": -0.25, "squares": 3.0}
    assert {(array.dtype.name, array.shape) for array in told.values()} == {("float64", ())}


@pytest.mark.parametrize(
    ("unroll", "schema", "error", "message"),
    [
        (with_moments(), SCHEMA, SchemaError, "reward_moments must be"),
        (make_unroll(), NORMALISED, SchemaError, "reward_moments must be"),
        (with_moments(count=6.0), NORMALISED, SchemaError, "reward_moments are of 6.0 steps, the header says 5"),
        (with_moments(count=np.nan), NORMALISED, SchemaError, "reward_moments are of nan steps"),
        (with_moments(squares=-1.0), NORMALISED, SchemaError, "squares is below 0"),
        (with_moments(squares=np.inf), NORMALISED, NonFiniteUnrollError, "reward_moments/squares"),
        (with_moments(mean=np.nan), NORMALISED, NonFiniteUnrollError, "reward_moments/mean"),
        (with_moments(mean=np.float32(1.0)), NORMALISED, SchemaError, "reward_moments/mean must be float64"),
        (with_moments(mean=[1.0, 2.0]), NORMALISED, SchemaError, "reward_moments/mean must be float64"),
    ],
)
def test_moments_of_rewards_that_cannot_be_are_refused(unroll, schema, error, message):
    with pytest.raises(error, match=message):
        decode(unroll, schema)


PRIORITIZED = UnrollSchema.of(SPEC, T, B, {"lstm": ArraySpec((4,), "float32")}, extras=[PRIORITIES])


@pytest.mark.row("O06")
def test_priorities_travel_where_they_are_asked_for_and_nowhere_else():
    priorities = np.array([[0.5, 0.0], [2.0, 1.0], [3.0, 0.25]], np.float32)
    unroll = replace(make_unroll(), extras={PRIORITIES: priorities})
    np.testing.assert_array_equal(decode(unroll, PRIORITIZED).extras[PRIORITIES], priorities, strict=True)
    with pytest.raises(SchemaError, match="an unroll has the fields"):
        decode(make_unroll(), PRIORITIZED)
    with pytest.raises(SchemaError, match="an unroll has the fields"):
        decode(unroll)


@pytest.mark.parametrize(
    ("priorities", "error", "message"),
    [
        (np.zeros((T, B), np.float64), SchemaError, r"priorities must be float32 \(3, 2\)"),
        (np.zeros((T + 1, B), np.float32), SchemaError, r"priorities must be float32 \(3, 2\)"),
        (np.full((T, B), -0.5, np.float32), SchemaError, "priorities must be at least 0, not -0.5"),
        (np.full((T, B), np.nan, np.float32), NonFiniteUnrollError, "priorities is not finite"),
        (np.full((T, B), np.inf, np.float32), NonFiniteUnrollError, "priorities is not finite"),
    ],
)
def test_priorities_are_checked(priorities, error, message):
    with pytest.raises(error, match=message):
        decode(replace(make_unroll(), extras={PRIORITIES: priorities}), PRIORITIZED)
