import math

import pytest
from pydantic import ValidationError

from distrl.config.environment import EnvironmentConfig
from distrl.config.load import dump, load
from distrl.config.preprocessing import (
    BinaryStep,
    CenterStep,
    ClipStep,
    ConcatStep,
    CropStep,
    DiscretizeBoxStep,
    EwmaBaselineStep,
    GrayscaleStep,
    MapDiscreteStep,
    ReshapeStep,
    ResizeStep,
    ScaleStep,
    SelectStep,
    SliceStep,
    StackStep,
    steps_from_json,
    steps_to_json,
)
from distrl.errors import ConfigError

STEPS = (
    CropStep(x=1, y=2, width=3, height=4, of="camera"),
    SelectStep(names=("x", "y"), keep=("y", 0)),
    ClipStep(of="reward", low=-1, high=1),
    EwmaBaselineStep(alpha=0.5),
    DiscretizeBoxStep(bins=(3, 2)),
    MapDiscreteStep(actions=(0, (1, 2))),
)
YAML = """environment:
  preprocessing:
    - {step: crop, of: camera, x: 1, y: 2, width: 3, height: 4}
    - {step: select, names: [x, y], keep: [y, 0]}
    - {step: clip, of: reward, low: -1, high: 1}
    - {step: ewma_baseline, alpha: 0.5}
    - {step: discretize_box, bins: [3, 2]}
    - {step: map_discrete, actions: [0, [1, 2]]}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(YAML)
    return path


@pytest.mark.row("D100", "L09")
def test_steps_are_a_list_in_yaml(file):
    assert load(file=file).config.environment.preprocessing == STEPS


def test_the_effective_configuration_is_read_back(file, tmp_path):
    loaded = load(file=file)
    written = tmp_path / "config.yaml"
    written.write_text(dump(loaded))
    assert load(file=written).config == loaded.config


def test_json_and_back():
    assert steps_from_json(steps_to_json(STEPS)) == STEPS
    assert steps_to_json(()) == "[]"


def refused(step):
    with pytest.raises(ConfigError) as caught:
        load(sets=[f"environment.preprocessing=[{{step: flatten}}, {step}]"])
    return str(caught.value).replace("environment.preprocessing", "…").replace(" (from flag --set)", "")


@pytest.mark.parametrize(
    ("step", "line"),
    [
        ("{step: crop, width: 3}", "….1.height is missing"),
        ("{step: crop, width: 3, height: 0}", "….1.height: 0 must be greater than or equal to 1"),
        ("{step: crop, width: 3, height: 1, hight: 2}", "unknown key ….1.hight; did you mean ….1.height?"),
        ("{step: stack, alpha: 3}", "unknown key ….1.alpha; only step ewma_baseline has it"),
        ("{step: clip, low: true}", "….1.low: true must be a valid number"),
        ("{step: clip, low: .nan}", "….1.low: .nan must be a finite number"),
        ("{step: resize, factor: .inf}", "….1.factor: .inf must be a finite number"),
        ("{step: map_box, high: [.inf]}", "….1.high.0: .inf must be a finite number"),
        ("{step: discretize_box, bins: 1}", "….1.bins: 1 must be greater than or equal to 2"),
        ("{step: discretize_box, bins: [2, 1.5]}", "….1.bins.1: 1.5 must be a valid integer"),
        ("{step: ewma_baseline, of: x}", "….1.of: 'x' must be 'reward'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(step, line):
    assert refused(step) == line


def test_the_longest_step_has_an_end():
    with pytest.raises(ValidationError, match=r"step_timeout_s\n.*finite number"):
        EnvironmentConfig(step_timeout_s=math.inf)


def test_an_unknown_step_names_the_nearest():
    line = refused("{step: grayscal}")
    assert line.startswith("….1: {step: grayscal} must have a step of crop, resize, grayscale,")
    assert line.endswith("; did you mean grayscale?")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: ResizeStep(width=3), "either width and height, or factor"),
        (lambda: ResizeStep(width=3, height=3, factor=0.5), "either width and height, or factor"),
        (lambda: ResizeStep(), "either width and height, or factor"),
        (lambda: ResizeStep(factor=math.inf), "less than or equal to 1000|finite number"),
        (lambda: ClipStep(low=-math.inf), "finite number"),
        (lambda: BinaryStep(threshold=math.nan), "finite number"),
        (lambda: GrayscaleStep(weights=(math.inf,)), "finite number"),
        (lambda: ScaleStep(multiply=math.inf), "finite number"),
        (lambda: ConcatStep(to=""), "to\n.*should match pattern"),
        (lambda: ConcatStep(to="a/b"), "to\n.*should match pattern"),
        (lambda: BinaryStep(keep_axis=True), "keep_axis is of sum_channels: true"),
        (lambda: ClipStep(), "clip needs low, high or both"),
        (lambda: ClipStep(low=2, high=1), "low: 2.0 is above high: 1.0"),
        (lambda: CenterStep(low=1, high=1), "low: 1.0 is not below high: 1.0"),
        (lambda: ScaleStep(), "either multiply or divide"),
        (lambda: ScaleStep(multiply=1, divide=1), "either multiply or divide"),
        (lambda: ReshapeStep(shape=(-1, -1)), "at most one -1"),
        (lambda: ReshapeStep(shape=(0, 2)), "numbers from 1"),
        (lambda: SelectStep(), "either keep or discard"),
        (lambda: SelectStep(keep=("x",), discard=("y",)), "either keep or discard"),
        (lambda: SelectStep(names=("x",), keep=("y",)), "'y' is not in names"),
        (lambda: SelectStep(discard=("y",)), "'y' is not in names"),
        (lambda: SelectStep(keep=()), "at least 1 item"),
        (lambda: GrayscaleStep(weights=()), "at least 1 item"),
        (lambda: SliceStep(low=(0,), high=(-2,)), "greater than or equal to -1"),
        (lambda: StackStep(frames=1), "greater than or equal to 2"),
    ],
)
def test_what_makes_no_sense_is_refused(make, why):
    with pytest.raises(ValidationError, match=why):
        make()


@pytest.mark.row("D112")
@pytest.mark.parametrize("factor", [{"multiply": 0}, {"divide": 0}])
def test_a_factor_of_zero_is_refused(factor):
    with pytest.raises(ValueError, match="scale by 0 leaves nothing"):
        ScaleStep(**factor)


@pytest.mark.row("D111", "T09")
def test_a_limit_of_zero_is_a_limit():
    assert (ClipStep(high=0).low, ClipStep(high=0).high) == (None, 0.0)
