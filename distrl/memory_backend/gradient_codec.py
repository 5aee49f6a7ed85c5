"""Hop 4 of gradient actors: encode a gradient, and decode it with every array checked against the network's.

Checks run in the order of `codec`: `decode`, `schema`, `nonfinite`. A gradient that leaves `decode_contribution` can be
applied.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distrl import wire
from distrl.errors import NonFiniteUnrollError, SchemaError
from distrl.memory_backend.codec import (
    check_episodes,
    check_finite,
    check_group,
    check_reward_moments,
    named,
)
from distrl.types import (
    EPISODE_FIELDS,
    MOMENTS,
    Array,
    Contribution,
    Differentiated,
    Form,
    UnrollHeader,
)
from distrl.unroll_schema import episode_forms

_BESIDE = (*EPISODE_FIELDS, "reward_moments")
_LOSS = "loss"
MAX_METRICS = 100


@dataclass(frozen=True)
class GradientSchema:
    """Names, dtypes and shapes of every gradient of a run; names in the network's order.

    Attributes:
        steps: T x B, the most steps and the most ends of episodes in one unroll.
        gradients: Weight name -> (float32, shape).
        averages: Weight name -> (float32, shape).
        moments: Input name -> "count", "mean" and "squares" -> (float64, shape).
        reward_moments: `MOMENTS`; empty where rewards are not normalised.
        metrics: M of `EPISODE_METRICS`.
    """

    steps: int
    gradients: Mapping[str, Form]
    averages: Mapping[str, Form]
    moments: Mapping[str, Mapping[str, Form]]
    reward_moments: Mapping[str, Form]
    metrics: int = 0

    @property
    def episodes(self) -> dict[str, Form]:
        """As of `UnrollSchema`."""
        return episode_forms(self.metrics)

    @property
    def extras(self) -> tuple[str, ...]:
        """Names of the `extras`."""
        return tuple(name for name in self.episodes if name not in EPISODE_FIELDS)

    @property
    def fields(self) -> frozenset[str]:
        """Names of the parts of an encoded gradient."""
        return frozenset({*Differentiated._fields, *_BESIDE, *self.extras})

    @property
    def max_items(self) -> int:
        """Bound for `wire.unpack` on the elements of one contribution."""
        named = (self.gradients, self.averages, self.reward_moments)
        return wire.items_of(sum(map(len, named)) + 3 * len(self.moments) + MAX_METRICS + len(self.fields))

    @staticmethod
    def of(
        steps: int,
        gradients: Mapping[str, tuple[int, ...]],
        averages: Mapping[str, tuple[int, ...]],
        normalized: Mapping[str, tuple[int, ...]],
        *,
        normalizes_rewards: bool = False,
        metrics: int = 0,
    ) -> "GradientSchema":
        """Return the schema for these shapes by name of trainable weights, moving averages and rows of inputs."""
        single, double = np.dtype("float32"), np.dtype("float64")
        return GradientSchema(
            steps=steps,
            gradients={name: (single, shape) for name, shape in gradients.items()},
            averages={name: (single, shape) for name, shape in averages.items()},
            moments={
                name: {"count": (double, ()), "mean": (double, shape), "squares": (double, shape)}
                for name, shape in normalized.items()
            },
            reward_moments=MOMENTS if normalizes_rewards else {},
            metrics=metrics,
        )


def encode_contribution(contribution: Contribution) -> bytes:
    """Encode a gradient; its header travels as plain fields of the stream entry.

    Raises:
        TypeError: An array of a kind that has no encoding.
    """
    beside = {name: getattr(contribution, name) for name in _BESIDE}
    return wire.pack({**contribution.differentiated._asdict(), **beside, **contribution.extras})


def decode_contribution(header: UnrollHeader, payload: bytes, schema: GradientSchema) -> Contribution:
    """Decode and check a gradient; its arrays are read-only views of the decoded bytes.

    Raises:
        DecodeError: The bytes are not on the strict decoder's allow-list.
        SchemaError: Names, dtypes, shapes, episode lengths or the header's number of steps do not fit the schema.
        NonFiniteUnrollError: NaN or infinity in gradients, averages, moments, metrics or episode returns.
    """
    tree = wire.unpack(payload, max_items=schema.max_items)
    if not isinstance(tree, dict) or tree.keys() != schema.fields:
        raise SchemaError(f"a gradient has the fields {sorted(schema.fields)}, not {named(tree)}")
    check_group("gradients", tree["gradients"], schema.gradients)
    check_group("averages", tree["averages"], schema.averages)
    _check_moments(tree["moments"], schema.moments)
    _check_metrics(tree["metrics"])
    check_episodes(tree, schema.steps, schema.episodes)
    if header.env_steps > schema.steps:
        raise SchemaError(f"the header says {header.env_steps} steps, an unroll has {schema.steps}")
    check_reward_moments(tree["reward_moments"], schema.reward_moments, header)
    contribution = Contribution(
        header,
        Differentiated(
            gradients={name: tree["gradients"][name] for name in schema.gradients},
            averages=tree["averages"],
            metrics=tree["metrics"],
            moments=tree["moments"],
        ),
        **{name: tree[name] for name in _BESIDE},
        extras={name: tree[name] for name in schema.extras},
    )
    _check_finite(contribution)
    return contribution


def _check_moments(moments: Any, expected: Mapping[str, Mapping[str, Form]]) -> None:
    if not isinstance(moments, dict) or moments.keys() != expected.keys():
        raise SchemaError(f"moments must be {sorted(expected)}, not {named(moments)}")
    for name, forms in expected.items():
        check_group(f"moments/{name}", moments[name], forms)
        for key in ("count", "squares"):
            if (moments[name][key] < 0.0).any():
                raise SchemaError(f"moments/{name}/{key} is below 0")


def _check_metrics(metrics: Any) -> None:
    if not isinstance(metrics, dict) or _LOSS not in metrics or len(metrics) > MAX_METRICS:
        raise SchemaError(f"metrics must be at most {MAX_METRICS} numbers by name, the loss among them")
    if odd := [name for name, value in metrics.items() if type(value) is not float]:
        raise SchemaError(f"metrics/{odd[0][:50]} must be a float")


def _check_finite(contribution: Contribution) -> None:
    taken = contribution.differentiated
    for name, value in taken.metrics.items():
        if not math.isfinite(value):
            raise NonFiniteUnrollError(f"metrics/{name[:50]} is not finite")
    arrays: list[tuple[str, Array]] = [
        *((name, getattr(contribution, name)) for name in EPISODE_FIELDS),
        *((f"reward_moments/{name}", array) for name, array in contribution.reward_moments.items()),
        *((f"gradients/{name}", array) for name, array in taken.gradients.items()),
        *((f"averages/{name}", array) for name, array in taken.averages.items()),
        *((f"moments/{name}/{key}", value) for name, group in taken.moments.items() for key, value in group.items()),
    ]
    check_finite(arrays)
