"""gradient codec: every field survives, and every way a gradient can be wrong has its drop reason."""

from dataclasses import replace

import numpy as np
import pytest

from distrl import types, wire
from distrl.errors import DecodeError, NonFiniteUnrollError, SchemaError
from distrl.memory_backend.gradient_codec import GradientSchema, decode_contribution, encode_contribution
from distrl.types import EPISODE_FIELDS, EPISODE_METRICS, Contribution, Differentiated, UnrollHeader

HEADER = UnrollHeader(actor=1, incarnation=2, sequence=3, weights_version=4, env_steps=5)
SCHEMA = GradientSchema.of(6, {"b/kernel": (2, 3), "a/bias": (3,)}, {"norm/mean": (2,)}, {"observation": (2,)})


def make():
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    return Contribution(
        header=HEADER,
        differentiated=Differentiated(
            gradients={"a/bias": normal(3), "b/kernel": normal(2, 3)},
            averages={"norm/mean": normal(2)},
            metrics={"loss": -1.25, "entropy": 0.5},
            moments={
                "observation": {
                    "count": np.array(5.0),
                    "mean": rng.normal(size=2),
                    "squares": rng.random(2),
                }
            },
        ),
        episode_returns=np.array([1.5, -2.0], np.float32),
        episode_lengths_steps=np.array([3, 1], np.int32),
        episode_discounted_returns=np.array([1.25, -2.0], np.float32),
        episode_successes=np.array([0, 1], np.int8),
    )


def change(**fields):
    """The contribution with parts of what was differentiated replaced."""
    made = make()
    return replace(made, differentiated=made.differentiated._replace(**fields))


def decode(contribution, header=HEADER):
    return decode_contribution(header, encode_contribution(contribution), SCHEMA)


def test_every_field_survives_in_the_networks_order():
    made, decoded = make(), decode(make())
    assert decoded.header == HEADER
    assert list(decoded.differentiated.gradients) == ["b/kernel", "a/bias"]  # the schema's, not the sender's
    for group in ("gradients", "averages"):
        for name, array in getattr(made.differentiated, group).items():
            np.testing.assert_array_equal(getattr(decoded.differentiated, group)[name], array, strict=True)
    assert decoded.differentiated.metrics == {"loss": -1.25, "entropy": 0.5}
    for name, array in made.differentiated.moments["observation"].items():
        np.testing.assert_array_equal(decoded.differentiated.moments["observation"][name], array, strict=True)
    for name in EPISODE_FIELDS:
        np.testing.assert_array_equal(getattr(decoded, name), getattr(made, name), strict=True)


def test_metrics_of_episodes_travel_beside_the_gradient():
    metrics = np.array([[1.5, np.nan], [0.0, 4.0]], np.float32)
    payload = encode_contribution(replace(make(), extras={EPISODE_METRICS: metrics}))
    decoded = decode_contribution(HEADER, payload, replace(SCHEMA, metrics=2))
    np.testing.assert_array_equal(decoded.extras[EPISODE_METRICS], metrics, strict=True)
    with pytest.raises(SchemaError, match="a gradient has the fields"):
        decode_contribution(HEADER, payload, SCHEMA)
    with pytest.raises(SchemaError, match=r"episode_metrics must be float32 \(2, 3\)"):
        decode_contribution(HEADER, payload, replace(SCHEMA, metrics=3))


KERNEL = np.ones((2, 3), np.float32)
BIAS = np.ones(3, np.float32)
MOMENTS = {"count": np.array(5.0), "mean": np.zeros(2), "squares": np.ones(2)}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"gradients": {"a/bias": BIAS}}, "gradients must be"),
        ({"gradients": {"a/bias": BIAS, "b/kernel": KERNEL, "c": BIAS}}, "gradients must be"),
        ({"gradients": {"a/bias": BIAS, "b/kernel": KERNEL.T}}, r"gradients/b/kernel must be float32 \(2, 3\)"),
        ({"gradients": {"a/bias": BIAS.astype(np.float64), "b/kernel": KERNEL}}, "gradients/a/bias must be float32"),
        ({"averages": {}}, "averages must be"),
        ({"averages": {"norm/mean": BIAS}}, "averages/norm/mean must be"),
        ({"moments": {}}, "moments must be"),
        ({"moments": {"observation": {"count": np.array(1.0)}}}, "moments/observation must be"),
        ({"moments": {"observation": {**MOMENTS, "count": np.array(-1.0)}}}, "moments/observation/count is below 0"),
        ({"moments": {"observation": {**MOMENTS, "squares": -np.ones(2)}}}, "moments/observation/squares is below 0"),
        ({"metrics": {"entropy": 1.0}}, "the loss among them"),
        ({"metrics": {"loss": 1}}, "metrics/loss must be a float"),
        ({"metrics": {"loss": 1.0, "entropy": "high"}}, "metrics/entropy must be a float"),
        ({"metrics": {"loss": 1.0, **{f"m{i}": 0.0 for i in range(100)}}}, "at most 100"),
    ],
)
def test_what_does_not_fit_the_network_breaks_the_schema(fields, told):
    with pytest.raises(SchemaError, match=told):
        decode(change(**fields))


def test_headers_and_episodes_must_be_possible():
    assert decode(make(), replace(HEADER, env_steps=6)).header.env_steps == 6
    with pytest.raises(SchemaError, match="the header says 7 steps, an unroll has 6"):
        decode(make(), replace(HEADER, env_steps=7))
    seven = {name: np.ones(7, dtype) for name, dtype in EPISODE_FIELDS.items()}
    with pytest.raises(SchemaError, match=r"7 episode_returns, .* in 6 steps"):
        decode(replace(make(), **seven))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("make_fields", "told"),
    [
        (lambda v: {"gradients": {"a/bias": BIAS * np.float32(v), "b/kernel": KERNEL}}, "gradients/a/bias"),
        (lambda v: {"averages": {"norm/mean": np.array([0.0, v], np.float32)}}, "averages/norm/mean"),
        (lambda v: {"metrics": {"loss": v}}, "metrics/loss"),
        (lambda v: {"moments": {"observation": {**MOMENTS, "mean": np.array([0.0, v])}}}, "moments/observation/mean"),
    ],
)
def test_what_is_not_finite_has_its_own_reason(make_fields, told, value):
    with pytest.raises(NonFiniteUnrollError, match=f"{told} is not finite") as raised:
        decode(change(**make_fields(value)))
    assert raised.value.reason == "nonfinite"


def test_returns_that_are_not_finite():
    with pytest.raises(NonFiniteUnrollError, match="episode_returns"):
        decode(replace(make(), episode_returns=np.array([np.nan, 1.0], np.float32)))


@pytest.mark.parametrize("payload", [b"", b"\xc1", wire.pack({"gradients": {}}), wire.pack([1, 2])])
def test_other_bytes_are_refused(payload):
    with pytest.raises((DecodeError, SchemaError)):
        decode_contribution(HEADER, payload, SCHEMA)


NORMALISED = replace(SCHEMA, reward_moments=types.MOMENTS)


def with_moments(count=5.0, squares=3.0):
    told = {"count": np.array(count), "mean": np.array(-0.25), "squares": np.array(squares)}
    return replace(make(), reward_moments=told)


def test_moments_of_rewards_come_back_exactly():
    decoded = decode_contribution(HEADER, encode_contribution(with_moments()), NORMALISED)
    told = {name: array.item() for name, array in decoded.reward_moments.items()}
    assert told == {"count": 5.0, "mean": -0.25, "squares": 3.0}
    assert GradientSchema.of(6, {}, {}, {}, normalizes_rewards=True).reward_moments == types.MOMENTS
    assert GradientSchema.of(6, {}, {}, {}).reward_moments == {}


@pytest.mark.parametrize(
    ("given", "schema", "error", "message"),
    [
        (with_moments(), SCHEMA, SchemaError, "reward_moments must be"),
        (make(), NORMALISED, SchemaError, "reward_moments must be"),
        (with_moments(count=4.0), NORMALISED, SchemaError, "of 4.0 steps, the header says 5"),
        (with_moments(squares=np.inf), NORMALISED, NonFiniteUnrollError, "reward_moments/squares"),
    ],
)
def test_moments_of_rewards_that_cannot_be_are_refused(given, schema, error, message):
    with pytest.raises(error, match=message):
        decode_contribution(HEADER, encode_contribution(given), schema)
