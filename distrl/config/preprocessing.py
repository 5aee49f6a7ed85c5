"""Preprocessing as configuration: ordered steps between an environment and the policy.

A step is a mapping with its name under `step`. `environments/preprocessing/` implements the steps.
"""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter

from distrl.config.layers import Real, number_or_list
from distrl.config.observation_steps import (
    BinaryStep,
    CenterStep,
    ClipStep,
    ConcatStep,
    CropStep,
    FlattenStep,
    GrayscaleStep,
    MoveAxisStep,
    NormalizeStep,
    OneHotStep,
    ReshapeStep,
    ResizeStep,
    ScaleStep,
    SelectStep,
    SliceStep,
    SqueezeStep,
    StackStep,
    StandardizeStep,
    ToDtypeStep,
    ToUint8Step,
    TransposeStep,
    Whole,
)
from distrl.config.section import Section

REWARD = "reward"
"""Value of `of` for the reward."""

Bins = Annotated[int, Field(ge=2, strict=True)]


Reals = Annotated[
    Annotated[Real, Tag("number")] | Annotated[tuple[Real, ...], Tag("list")], Discriminator(number_or_list)
]
"""One number for all elements, or one for each."""

BinCounts = Annotated[
    Annotated[Bins, Tag("number")] | Annotated[tuple[Bins, ...], Tag("list")], Discriminator(number_or_list)
]

Target = Annotated[
    Annotated[Whole, Tag("number")] | Annotated[tuple[Whole, ...], Tag("list")], Discriminator(number_or_list)
]
"""A discrete action: a number, or one for each of the choices."""


class ActionStep(Section):
    """One step for actions: the policy acts in a new space, and its actions are mapped back to the environment's."""

    step: str
    of: str | None = None
    """Name of an action; null: every one."""


class EwmaBaselineStep(Section):
    """Subtracts from each reward the exponentially weighted moving average of all rewards so far, its own included.

    Each environment of an actor has its own average. The first reward is its first value; episodes do not interrupt it.
    """

    step: Literal["ewma_baseline"] = "ewma_baseline"
    of: Literal["reward"] = "reward"
    alpha: float = Field(0.01, gt=0.0, le=1.0, strict=True)
    """Weight of the newest reward."""


class DiscretizeBoxStep(ActionStep):
    """A bounded box becomes one choice among evenly spaced values, in all combinations, the last number fastest."""

    step: Literal["discretize_box"] = "discretize_box"
    bins: BinCounts
    """Values from bound to bound, both included."""
    whole_bins: bool = False
    """Truncate the values to whole numbers."""


class MaskBoxStep(ActionStep):
    """Restricts a box to a smaller one."""

    step: Literal["mask_box"] = "mask_box"
    low: Reals
    high: Reals


class MapBoxStep(ActionStep):
    """The policy acts in [low, high], which is mapped to the bounds of the environment's box."""

    step: Literal["map_box"] = "map_box"
    low: Reals = -1.0
    high: Reals = 1.0


class MapDiscreteStep(ActionStep):
    """One choice among actions of a discrete, multi-discrete or multi-binary space."""

    step: Literal["map_discrete"] = "map_discrete"
    actions: tuple[Target, ...] | None = Field(None, min_length=1)
    """The environment's own numbers; null: all there are, in all combinations, the last number fastest."""


PreprocessingStep = Annotated[
    CropStep
    | ResizeStep
    | GrayscaleStep
    | BinaryStep
    | ClipStep
    | ScaleStep
    | ToDtypeStep
    | ToUint8Step
    | CenterStep
    | NormalizeStep
    | StandardizeStep
    | OneHotStep
    | SliceStep
    | MoveAxisStep
    | TransposeStep
    | SqueezeStep
    | ReshapeStep
    | FlattenStep
    | SelectStep
    | ConcatStep
    | StackStep
    | EwmaBaselineStep
    | DiscretizeBoxStep
    | MaskBoxStep
    | MapBoxStep
    | MapDiscreteStep,
    Field(discriminator="step"),
]
"""A step as it is written: a mapping with its name under `step`."""

_STEPS: TypeAdapter[tuple[PreprocessingStep, ...]] = TypeAdapter(tuple[PreprocessingStep, ...])


def steps_to_json(steps: tuple[PreprocessingStep, ...]) -> str:
    """Return the steps as one line of JSON, for the policy bundle."""
    return _STEPS.dump_json(steps).decode()


def steps_from_json(text: str) -> tuple[PreprocessingStep, ...]:
    """Invert `steps_to_json`.

    Raises:
        pydantic.ValidationError: These are not steps.
    """
    return _STEPS.validate_json(text)
