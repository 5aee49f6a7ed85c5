"""Images whose channels are first are recognised by their shape, turned once, and everything after has them last."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from distrl.config.environment import EnvironmentConfig
from distrl.environments.preprocessing.pipeline import Pipeline
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError
from distrl.types import ArraySpec


class Picture(gymnasium.Env):
    """Shows an array of these shapes that counts its numbers, further on with every step."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], dtype: str = "uint8") -> None:
        self.observation_space = Dict(
            {name: Box(0, 255, shape, np.dtype(dtype).type) for name, shape in shapes.items()}
        )
        self.action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._steps = 0
        return self.shown(), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        return self.shown(), 1.0, False, False, {}

    def shown(self) -> dict[str, np.ndarray]:
        spaces = self.observation_space.spaces.items()
        return {name: counted(space.shape, self._steps).astype(space.dtype) for name, space in spaces}


def counted(shape: tuple[int, ...], start: int) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) + start) % 251


def make(shapes: dict[str, tuple[int, ...]], dtype: str = "uint8", **config: Any) -> VectorEnvironment:
    kwargs = {"shapes": shapes, "dtype": dtype}
    return VectorEnvironment(
        EnvironmentConfig.model_validate({"id": f"{__name__}:Picture", "kwargs": kwargs, **config}), 2
    )


@pytest.mark.parametrize(
    ("shape", "turned"),
    [
        ((1, 84, 84), True),
        ((3, 84, 84), True),
        ((4, 84, 84), True),  # EnvPool's Atari
        ((9, 64, 48), True),  # dmc2gym's stack of three
        ((2, 9, 9), True),  # planes of a board
        ((84, 84, 3), False),
        ((210, 160, 3), False),
        ((1, 84, 84, 3), False),
        ((84, 84), False),
        ((2, 5, 3), False),  # a small map in colours
        ((7, 7, 7), False),
        ((10, 10, 4), False),
        ((10, 10, 10), False),
        ((64, 3, 64), False),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_the_shape_says_where_the_channels_are(shape: tuple[int, ...], turned: bool, dtype: str) -> None:
    environment = make({"x": shape}, dtype)
    expected = (*shape[1:], shape[0]) if turned else shape
    assert environment.spec.observations == {"x": ArraySpec(expected, dtype, 0.0, 255.0)}
    assert environment.notices == (
        (
            f"environment {__name__}:Picture: observation 'x' {list(shape)} looks like an image with its channels "
            "first; networks take them last. If its axes are height, width and channels, set "
            "environment.image_channels: last",
        )
        if turned
        else ()
    )


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_every_number_is_at_its_place_also_for_a_policy_that_is_given_the_environments_own(vectorization: str) -> None:
    environment = make({"image": (3, 8, 6), "other": (4,)}, vectorization=vectorization)
    policys = Pipeline.of(environment.spec)
    shown = environment.reset(0)
    for steps in range(3):
        raw = {"image": np.stack([counted((3, 8, 6), steps)] * 2).astype(np.uint8), "other": shown["other"]}
        expected = np.moveaxis(raw["image"], 1, -1)
        np.testing.assert_array_equal(shown["image"], expected, strict=True)
        assert shown["image"].flags.c_contiguous
        np.testing.assert_array_equal(policys.observations(raw, np.ones(2, np.bool_))["image"], expected, strict=True)
        shown = environment.step({"action": np.zeros(2, np.int32)}).observations
    assert policys.raw.observations["image"].shape == (3, 8, 6)
    environment.close()


def test_what_the_configuration_says_is_done_without_a_word() -> None:
    shapes = {"small": (2, 3, 4), "wide": (3, 84, 84), "flat": (5,)}
    first, last = (make(shapes, image_channels=where) for where in ("first", "last"))
    assert {name: spec.shape for name, spec in first.spec.observations.items()} == {
        "small": (3, 4, 2),
        "wide": (84, 84, 3),
        "flat": (5,),
    }
    assert {name: spec.shape for name, spec in last.spec.observations.items()} == shapes
    assert last.spec.unprocessed is None
    assert first.notices == last.notices == ()
    with pytest.raises(ConfigError, match=r"environment\.image_channels: first, but no observation has three axes"):
        make({"flat": (5,)}, image_channels="first")


@pytest.mark.parametrize(
    "own", [{"step": "move_axis", "source": 0, "destination": 2}, {"step": "transpose", "of": "x", "axes": [1, 2, 0]}]
)
def test_what_the_configurations_own_steps_turn_is_left_to_them(own: dict[str, Any]) -> None:
    environment = make({"x": (3, 84, 84)}, preprocessing=[own])
    assert environment.spec.observations["x"].shape == (84, 84, 3)
    assert environment.notices == ()


def test_the_configurations_steps_come_after_and_are_counted_without_it() -> None:
    stacked = make({"x": (3, 84, 84)}, preprocessing=[{"step": "grayscale"}, {"step": "stack", "frames": 4}])
    assert stacked.spec.observations["x"] == ArraySpec((84, 84, 4), "uint8", 0.0, 255.0, frames=4)
    with pytest.raises(ConfigError, match=r"environment\.preprocessing\[0\] \(squeeze\) does not fit"):
        make({"x": (3, 84, 84)}, preprocessing=[{"step": "squeeze", "axis": 0}])
