"""Preprocessing as configuration: ordered steps between an environment and the policy.

A step is a mapping with its name under `step`; `environments/preprocessing/` implements the steps. Shapes in the
docstrings are those of one observation.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

from distrl.config.layers import Count, Real, number_or_list
from distrl.config.section import Section

REWARD = "reward"
"""Value of `of` for the reward."""

Whole = Annotated[int, Field(strict=True)]
Natural = Annotated[int, Field(ge=0, strict=True)]
Interpolation = Literal["area", "bilinear", "nearest", "bicubic", "lanczos"]
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


def _number_or_name(value: Any) -> str:
    return "name" if isinstance(value, str) else "number"


Part = Annotated[Annotated[Whole, Tag("number")] | Annotated[str, Tag("name")], Discriminator(_number_or_name)]
"""An index, or a name out of the step's `names`."""


class ObservationStep(Section):
    """One step for observations."""

    step: str
    of: str | None = None
    """Name of an observation; null: every one."""


class CropStep(ObservationStep):
    """Cuts a rectangle out of an image [height, width] or [height, width, channels]."""

    step: Literal["crop"] = "crop"
    x: Natural = 0
    """The first column."""
    y: Natural = 0
    """The first row."""
    width: Count
    height: Count


class ResizeStep(ObservationStep):
    """Resizes an image [height, width] or [height, width, channels], to `width` x `height` or by `factor`."""

    step: Literal["resize"] = "resize"
    width: Count | None = None
    height: Count | None = None
    factor: float | None = Field(None, gt=0.0, le=1000.0, strict=True, allow_inf_nan=False)
    """Times both sides, rounded to whole pixels."""
    interpolation: Interpolation = "area"

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.width is None) != (self.height is None) or (self.width is None) == (self.factor is None):
            raise ValueError("resize takes either width and height, or factor")
        return self


class GrayscaleStep(ObservationStep):
    """Weighs the channels of an image [height, width, channels] into one; whole numbers are rounded down."""

    step: Literal["grayscale"] = "grayscale"
    weights: tuple[Real, ...] = Field((0.299, 0.587, 0.114), min_length=1)
    """One for each channel; by default the luma of RGB (ITU-R BT.601)."""
    keep_axis: bool = False
    """[height, width, 1] instead of [height, width]."""


class BinaryStep(ObservationStep):
    """1 where an element is above the threshold, else 0, as uint8."""

    step: Literal["binary"] = "binary"
    threshold: Real = 0.0
    sum_channels: bool = False
    """Compare the sum over the last axis, which is removed."""
    keep_axis: bool = False
    """With `sum_channels`: the last axis stays, with one element."""

    @model_validator(mode="after")
    def _there_is_an_axis_to_keep(self) -> Self:
        if self.keep_axis and not self.sum_channels:
            raise ValueError("keep_axis is of sum_channels: true; without it every axis stays")
        return self


class ClipStep(ObservationStep):
    """Cuts numbers to [low, high]; `of: reward` for rewards."""

    step: Literal["clip"] = "clip"
    low: Real | None = None
    """null: no lower limit."""
    high: Real | None = None
    """null: no upper limit."""

    @model_validator(mode="after")
    def _limits(self) -> Self:
        if self.low is None and self.high is None:
            raise ValueError("clip needs low, high or both")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low: {self.low} is above high: {self.high}")
        return self


class ScaleStep(ObservationStep):
    """Multiplies or divides; whole numbers become float32. `of: reward` for rewards."""

    step: Literal["scale"] = "scale"
    multiply: Real | None = None
    divide: Real | None = None

    @model_validator(mode="after")
    def _one_factor(self) -> Self:
        if (self.multiply is None) == (self.divide is None):
            raise ValueError("scale takes either multiply or divide")
        if 0.0 in (self.multiply, self.divide):
            raise ValueError("scale by 0 leaves nothing")
        return self


class ToDtypeStep(ObservationStep):
    """Converts the dtype. Fractions are cut off, and values beyond an integer type become its nearest value; a value
    beyond a float type is an error of the environment."""

    step: Literal["to_dtype"] = "to_dtype"
    dtype: Literal["uint8", "int16", "int32", "int64", "float16", "float32", "float64"]


class BoundedStep(ObservationStep):
    """A step that needs bounds of its input."""

    low: Real | None = None
    """null: the observation's own bound."""
    high: Real | None = None
    """null: the observation's own bound."""

    @model_validator(mode="after")
    def _low_is_low(self) -> Self:
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low: {self.low} is not below high: {self.high}")
        return self


class ToUint8Step(BoundedStep):
    """Maps [low, high] to 0 … 255, rounded down; values beyond are clipped."""

    step: Literal["to_uint8"] = "to_uint8"


class CenterStep(BoundedStep):
    """Maps [low, high] to [-1, 1]; values beyond stay beyond."""

    step: Literal["center"] = "center"


class NormalizeStep(ObservationStep):
    """Each observation by itself: subtracts its smallest element, divides by the range; zeros where all are equal."""

    step: Literal["normalize"] = "normalize"


class StandardizeStep(ObservationStep):
    """Each observation by itself: subtracts its mean, divides by its standard deviation; zeros where all are equal."""

    step: Literal["standardize"] = "standardize"


class OneHotStep(ObservationStep):
    """Every whole number becomes as many numbers as there are categories, one of them 1: [...] to [..., categories]."""

    step: Literal["one_hot"] = "one_hot"
    categories: Count | None = None
    """null: from the observation's bounds."""


class SliceStep(ObservationStep):
    """Cuts every axis to low … high - 1."""

    step: Literal["slice"] = "slice"
    low: tuple[Natural, ...]
    """One for each axis."""
    high: tuple[Annotated[int, Field(ge=-1, strict=True)], ...]
    """One for each axis; -1: to the end."""


class MoveAxisStep(ObservationStep):
    """Moves one axis to another place; the others keep their order."""

    step: Literal["move_axis"] = "move_axis"
    source: Whole
    destination: Whole


class TransposeStep(ObservationStep):
    """All axes in a new order."""

    step: Literal["transpose"] = "transpose"
    axes: tuple[Natural, ...]


class SqueezeStep(ObservationStep):
    """Drops axes with one element."""

    step: Literal["squeeze"] = "squeeze"
    axis: Whole | None = None
    """null: all of them."""


class ReshapeStep(ObservationStep):
    """Another shape for the same elements."""

    step: Literal["reshape"] = "reshape"
    shape: tuple[Annotated[int, Field(ge=-1, strict=True)], ...]
    """At most one -1, for the remaining elements."""

    @model_validator(mode="after")
    def _one_is_left(self) -> Self:
        if self.shape.count(-1) > 1 or 0 in self.shape:
            raise ValueError("shape takes numbers from 1 and at most one -1")
        return self


class FlattenStep(ObservationStep):
    """All elements along one axis."""

    step: Literal["flatten"] = "flatten"


class SelectStep(ObservationStep):
    """Keeps or discards parts along an axis, by index or, where `names` are given, by name."""

    step: Literal["select"] = "select"
    names: tuple[str, ...] | None = None
    """Names of all parts along the axis, in order."""
    keep: tuple[Part, ...] | None = Field(None, min_length=1)
    """These, in this order."""
    discard: tuple[Part, ...] | None = Field(None, min_length=1)
    """All but these."""
    axis: Whole = -1

    @model_validator(mode="after")
    def _parts(self) -> Self:
        if (self.keep is None) == (self.discard is None):
            raise ValueError("select takes either keep or discard")
        parts = self.keep or self.discard or ()
        unknown = next((part for part in parts if isinstance(part, str) and part not in (self.names or ())), None)
        if unknown is not None:
            raise ValueError(f"{unknown!r} is not in names")
        return self


class ConcatStep(Section):
    """Several observations become one, along an axis, in the given order."""

    step: Literal["concat"] = "concat"
    of: tuple[str, ...] | None = Field(None, min_length=1)
    """Names of observations; null: all, in the environment's order."""
    to: str = Field("observation", pattern="^[^/]+$")
    """Name of the result; it must not contain "/", which separates the levels of nested spaces."""
    axis: Whole = -1


class StackStep(ObservationStep):
    """The newest `frames` observations along the last axis, newest last; [height, width] gets an axis for them.

    An episode's first observation fills the whole stack. The last step of its observation.
    """

    step: Literal["stack"] = "stack"
    frames: Annotated[int, Field(ge=2, strict=True)] = 4


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
    action_mask: str | None = None
    """Observation that masks the environment's own choices, of its only action; it becomes the mask of the new ones,
    each allowed where all of its parts are. null: the one called action_mask if it fits."""


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
