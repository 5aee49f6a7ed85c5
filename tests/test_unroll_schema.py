"""The table of what algorithms can ask unrolls to carry, and what the schema makes of it."""

from importlib import import_module

import numpy as np
import pytest

from distrl.config.algorithms import ALGORITHMS
from distrl.errors import ConfigError
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec
from distrl.unroll_schema import STEP_EXTRAS, UnrollSchema, step_extras

SPEC = EnvSpec("toy", {"observation": ArraySpec((2,), "float32")}, {"action": DiscreteSpec(3)})


@pytest.mark.parametrize("extra", STEP_EXTRAS, ids=lambda extra: extra.name)
def test_every_extra_has_its_collector(extra):
    module, _, name = extra.collector.partition(":")
    assert module.startswith("distrl.actors.extras.")
    assert callable(getattr(import_module(module), name).close)


def test_extras_travel_in_the_order_of_the_table_whatever_the_order_in_which_they_are_asked_for():
    assert [extra.name for extra in step_extras(["priorities", "choice_probabilities"])] == [
        "choice_probabilities",
        "priorities",
    ]
    schema = UnrollSchema.of(SPEC, 4, 2, {}, extras=["priorities", "choice_probabilities"], metrics=5)
    assert schema.extras == ("choice_probabilities", "priorities", "episode_metrics")
    assert schema.steps["choice_probabilities"] == (np.dtype("float32"), (4, 2, 3))
    assert schema.steps["priorities"] == (np.dtype("float32"), (4, 2))
    assert schema.batch_extras == ("choice_probabilities",)
    assert schema.episodes["episode_metrics"] == (np.dtype("float32"), (5,))
    plain = UnrollSchema.of(SPEC, 4, 2, {})
    assert schema.fields - plain.fields == {*schema.extras}
    assert (plain.extras, plain.batch_extras) == ((), ())


def test_an_extra_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="unroll_extras: 'bonus' is none of choice_probabilities, priorities"):
        UnrollSchema.of(SPEC, 4, 2, {}, extras=["bonus"])


def test_what_built_in_algorithms_ask_for_is_there():
    asked = {name: section().unroll_extras for name, section in ALGORITHMS.items()}
    assert {name: names for name, names in asked.items() if step_extras(names)} == {
        "acer": ("choice_probabilities",),
        "apex": ("priorities",),
        "r2d2": ("priorities",),
    }
