import dataclasses
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.config.environment import EnvironmentConfig
from distrl.environments.preprocessing.pipeline import Pipeline
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, EnvironmentFailedError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, OneHot, Unprocessed

COLOUR = ArraySpec((210, 160, 3), "uint8", 0.0, 255.0)
TENSORFORCE = [
    {"step": "resize", "width": 84, "height": 84},
    {"step": "grayscale"},
    {"step": "center"},
    {"step": "stack", "frames": 4},
]
COACH = [
    {"step": "crop", "x": 0, "y": 34, "width": 160, "height": 160},
    {"step": "grayscale", "weights": [0.2989, 0.5870, 0.1140]},
    {"step": "resize", "width": 84, "height": 84},
    {"step": "stack", "frames": 4},
]


def shapes(trace):
    return [(step, arrays["observation"].shape) for step, arrays in trace]


@pytest.mark.row("L09", "L07")
def test_the_documentations_example_of_tensorforce(pipeline):
    made = pipeline(COLOUR, *TENSORFORCE)
    assert shapes(made.trace) == [
        ("environment", (210, 160, 3)),
        ("resize", (84, 84, 3)),
        ("grayscale", (84, 84)),
        ("center", (84, 84)),
        ("stack", (84, 84, 4)),
    ]
    assert made.spec.observations["observation"] == ArraySpec((84, 84, 4), "float32", -1.0, 1.0, frames=4)
    white = np.full((2, 210, 160, 3), 255, np.uint8)
    out = made.observations({"observation": white}, np.ones(2, bool))["observation"]
    np.testing.assert_array_equal(out, np.ones((2, 84, 84, 4), np.float32), strict=True)


@pytest.mark.row("D100")
def test_coachs_chain_for_atari_stays_in_bytes(pipeline):
    made = pipeline(COLOUR, *COACH)
    assert made.spec.observations["observation"] == ArraySpec((84, 84, 4), "uint8", 0.0, 254.0, frames=4)
    images = np.random.default_rng(0).integers(0, 256, (2, 210, 160, 3), np.uint8)
    out = made.observations({"observation": images}, np.ones(2, bool))["observation"]
    assert (out.shape, out.dtype, out.flags.c_contiguous) == ((2, 84, 84, 4), np.uint8, True)
    for part in range(1, 4):
        np.testing.assert_array_equal(out[..., part], out[..., 0])


@pytest.mark.parametrize(
    ("step", "vocabulary"),
    [
        ({"step": "slice", "low": [0], "high": [2]}, 10),
        ({"step": "scale", "divide": 2}, None),
        ({"step": "to_uint8"}, None),  # levels
        ({"step": "stack"}, 10),
    ],
)
def test_tokens_stay_tokens_while_they_are_whole(pipeline, step, vocabulary):
    made = pipeline(ArraySpec((4,), "int32", 0.0, 9.0, vocabulary=10), step)
    assert made.spec.observations["observation"].vocabulary == vocabulary


CATEGORIES = ArraySpec((2,), "uint8", 0.0, 2.0, one_hot=OneHot((2,), (2, 3), (0, 5)))
NUMBERS = {"observation": np.uint8([[1, 0], [0, 2]])}


@pytest.mark.parametrize(
    "step",
    [
        {"step": "clip", "low": 0},
        {"step": "scale", "divide": 2},
        {"step": "to_dtype", "dtype": "float32"},
        {"step": "to_uint8"},
        {"step": "center"},
        {"step": "normalize"},
        {"step": "standardize"},
        {"step": "binary"},
        {"step": "flatten"},
        {"step": "reshape", "shape": [2, 1]},
        {"step": "select", "keep": [0]},
    ],
)
def test_steps_for_quantities_refuse_categories(pipeline, step):
    with pytest.raises(ConfigError, match="it is of categories, not of quantities; put one_hot before it"):
        pipeline(CATEGORIES, step)
    made = pipeline(CATEGORIES, {"step": "one_hot"}, {**step, **({"shape": [5, 1]} if "shape" in step else {})})
    assert made.spec.observations["observation"].one_hot is None


def test_categories_join_others_one_hot(pipeline):
    both = {"a": CATEGORIES, "b": ArraySpec((1,), "float32")}
    with pytest.raises(ConfigError, match="'a' is of categories, not of quantities; put one_hot before it"):
        pipeline(both, {"step": "concat"})
    made = pipeline(both, {"step": "one_hot", "of": "a"}, {"step": "concat"})
    assert made.spec.observations == {"observation": ArraySpec((6,), "float32")}


def test_one_hot_makes_the_networks_row_of_categories(pipeline):
    made = pipeline(CATEGORIES, {"step": "one_hot"})
    assert made.spec.observations["observation"] == CATEGORIES.expanded == ArraySpec((5,), "float32", 0.0, 1.0)
    rows = made.observations(NUMBERS, np.ones(2, bool))["observation"]
    np.testing.assert_array_equal(rows, np.float32([[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]), strict=True)
    with pytest.raises(ConfigError, match="its space says how many categories it has; leave categories out"):
        pipeline(CATEGORIES, {"step": "one_hot", "categories": 3})


def test_stacks_of_categories_are_stacks_of_their_rows(pipeline):
    stacked, rows = (
        pipeline(CATEGORIES, *steps, {"step": "stack", "frames": 2}) for steps in ((), ({"step": "one_hot"},))
    )
    spec = stacked.spec.observations["observation"]
    assert (spec.shape, spec.dtype, spec.frames) == ((4,), "uint8", 2)
    assert spec.expanded == rows.spec.observations["observation"]
    for numbers, valid in ((NUMBERS, [False, False]), ({"observation": np.uint8([[0, 1], [1, 1]])}, [True, False])):
        found, expected = (made.observations(numbers, np.array(valid))["observation"] for made in (stacked, rows))
        np.testing.assert_array_equal(spec.expand(found), expected, strict=True)


def test_one_hot_rows_of_an_earlier_version_take_any_step(pipeline):
    earlier = replace(CATEGORIES.expanded, one_hot=CATEGORIES.one_hot)
    spec = pipeline(earlier, {"step": "to_uint8"}).spec.observations["observation"]
    assert spec == ArraySpec((5,), "uint8", 0.0, 255.0)


def test_tokens_stay_along_one_axis(pipeline):
    given = ArraySpec((4,), "int32", 0.0, 9.0, vocabulary=10)
    square = {"step": "reshape", "shape": [2, 2]}
    with pytest.raises(ConfigError, match="its tokens would not lie along one axis any more; put to_dtype: float32"):
        pipeline(given, square)
    numbers = pipeline(given, {"step": "to_dtype", "dtype": "float32"}, square)
    assert numbers.spec.observations["observation"] == ArraySpec((2, 2), "float32", 0.0, 9.0)


@pytest.mark.parametrize("step", [{"step": "center"}, {"step": "stack"}, {"step": "concat", "to": "whole"}])
def test_what_the_environment_stacks_is_stacked_by_a_step_instead(pipeline, step):
    given = ArraySpec((84, 84, 4), "uint8", 0.0, 255.0, frames=4)
    with pytest.raises(ConfigError, match=r"set environment\.atari\.stack: 1 and put a stack step last"):
        pipeline(given, step)
    with pytest.raises(ConfigError, match=r"'observation' is a stack of frames; stack is the last step"):
        pipeline(dataclasses.replace(given, frames=1), {"step": "stack"}, step)


@pytest.mark.row("D100", "L07")
def test_each_observation_has_steps_of_its_own(pipeline):
    specs = {"camera": ArraySpec((4, 4), "uint8", 0.0, 255.0), "speed": ArraySpec((2,), "float32", -4.0, 4.0)}
    steps = ({"step": "resize", "of": "camera", "factor": 0.5}, {"step": "center"}, {"step": "stack", "of": "speed"})
    made = pipeline(specs, *steps)
    assert made.spec.observations == {
        "camera": ArraySpec((2, 2), "float32", -1.0, 1.0),
        "speed": ArraySpec((8,), "float32", -1.0, 1.0, frames=4),
    }
    out = made.observations(
        {"camera": np.full((1, 4, 4), 255, np.uint8), "speed": np.float32([[-4, 2]])}, np.ones(1, bool)
    )
    assert out["camera"].tolist() == [[[1, 1], [1, 1]]]
    assert out["speed"].tolist() == [[-1, 0.5] * 4]


def test_what_comes_out_lies_in_one_piece(pipeline):
    made = pipeline(ArraySpec((3, 4, 5), "uint8"), {"step": "move_axis", "source": 0, "destination": -1})
    out = made.observations({"observation": np.zeros((2, 3, 4, 5), np.uint8)}, np.ones(2, bool))["observation"]
    assert (out.shape, out.flags.c_contiguous) == ((2, 4, 5, 3), True)


@pytest.mark.row("G09")
def test_without_steps_nothing_changes(pipeline):
    made = pipeline(COLOUR)
    assert made.spec is made.raw
    assert (made.spec.unprocessed, made.trace) == (None, [("environment", {"observation": COLOUR})])
    rewards = np.float32([3, 0])
    assert made.rewards(rewards, np.array([True, False])) is rewards
    assert made.actions({"action": np.int32([1])})["action"].tolist() == [1]
    images = {"observation": np.full((2, *COLOUR.shape), 7, COLOUR.dtype)}
    np.testing.assert_array_equal(
        made.observations(images, np.array([True, True]))["observation"], images["observation"], strict=True
    )


def narrow(raw, *steps):
    return Pipeline(EnvironmentConfig.model_validate({"preprocessing": steps}).preprocessing, raw, narrow=True)


def test_what_networks_take_in_32_bits_leaves_in_32_bits():
    """After the steps, which see all bits: 1e9 + 0.25 is 1e9 in float32, and 0.25 of the way from 1e9 to 1e9 + 1."""
    raw = EnvSpec("Task", {"t": ArraySpec((1,), "float64"), "n": ArraySpec((), "int64")}, {"action": DiscreteSpec(2)})
    seen = {"t": np.float64([[1e9 + 0.25]]), "n": np.int64([7])}
    plain = narrow(raw)
    assert plain.spec == dataclasses.replace(
        raw, observations={"t": ArraySpec((1,), "float32"), "n": raw.observations["n"]}
    )
    centred = narrow(raw, {"step": "center", "of": "t", "low": 1e9 - 1, "high": 1e9 + 1})
    assert [arrays["t"].dtype for _, arrays in centred.trace] == ["float64", "float64"]
    for made, expected in ((plain, 1e9), (centred, 0.25), (Pipeline.of(centred.spec), 0.25)):
        assert (made.narrowed, made.spec.observations["t"].dtype) == ({"t"}, "float32")
        out = made.observations(seen, np.ones(1, bool))
        np.testing.assert_array_equal(out["t"], np.float32([[expected]]), strict=True)
        np.testing.assert_array_equal(out["n"], seen["n"], strict=True)
    assert Pipeline.of(centred.spec).spec == centred.spec
    assert Pipeline.of(plain.spec).narrowed == set()  # nothing of the wide numbers is left to know


def test_a_step_that_does_not_fit_is_named_by_its_place(pipeline):
    with pytest.raises(ConfigError) as caught:
        pipeline(ArraySpec((10, 10), "uint8"), {"step": "flatten"}, {"step": "crop", "width": 1, "height": 1})
    assert str(caught.value) == (
        "environment Task: environment.preprocessing[1] (crop) does not fit observation 'observation', uint8 (100,): "
        "images are [height, width] or [height, width, channels]"
    )


def test_rewards_and_observations_of_one_step_do_not_meet(pipeline):
    made = pipeline(ArraySpec((1,), "float32"), {"step": "clip", "low": 0, "high": 1})
    assert made.rewards(np.float32([5]), np.ones(1, bool)).tolist() == [5]


def test_actions_go_back_by_name(pipeline):
    kinds = {"arm": BoxSpec((2,), (0.0,) * 2, (8.0,) * 2), "grip": DiscreteSpec(3)}
    made = pipeline(ArraySpec((1,), "float32"), {"step": "map_box", "of": "arm"}, actions=kinds)
    assert made.spec.actions == {"arm": BoxSpec((2,), (-1.0,) * 2, (1.0,) * 2), "grip": DiscreteSpec(3)}
    given = {"arm": np.float32([[0, 1]]), "grip": np.int32([2])}
    out = made.actions(given)
    assert (out["arm"].tolist(), out["grip"].tolist()) == ([[4, 8]], [2])
    assert given["arm"].tolist() == [[0, 1]]


def test_a_spec_makes_its_pipeline_again(pipeline):
    steps = [*COACH, {"step": "scale", "of": "reward", "divide": 10}, {"step": "map_discrete", "actions": [1, 0]}]
    made = pipeline(COLOUR, *steps)
    again = Pipeline.of(EnvSpec.from_json(made.spec.to_json()))
    assert (again.spec, again.raw, again.trace) == (made.spec, made.raw, made.trace)
    images = np.random.default_rng(0).integers(0, 256, (1, 210, 160, 3), np.uint8)
    seen = [one.observations({"observation": images}, np.ones(1, bool))["observation"] for one in (made, again)]
    np.testing.assert_array_equal(*seen, strict=True)
    assert again.rewards(np.float32([5]), np.ones(1, bool)).tolist() == [0.5]
    assert again.actions({"action": np.int32([0])})["action"].tolist() == [1]
    assert Pipeline.of(made.raw).spec == made.raw


def test_steps_of_another_distrl_are_refused_in_one_line(pipeline):
    spec = dataclasses.replace(
        pipeline(COLOUR).spec, unprocessed=Unprocessed({}, {}, '[{"step":"clip","low":0,"hihg":1}]')
    )
    with pytest.raises(ConfigError, match=r"environment Task: preprocessing\[0\].clip.hihg is not valid: Extra inputs"):
        Pipeline.of(spec)


@pytest.mark.row("D109", "D111", "L11")
@pytest.mark.parametrize("vectorization", ["sync", "own"])
def test_a_vector_of_environments_steps_through_it(vectorization):
    """The cue environment's observations end in the share of the episode that is over: 0, 1/3, 2/3, 1 and again."""
    steps = [
        {"step": "select", "keep": [-1]},
        {"step": "scale", "multiply": 3},
        {"step": "stack", "frames": 2},
        {"step": "scale", "of": "reward", "multiply": -4},
        {"step": "clip", "of": "reward", "low": -1, "high": 0},
        {"step": "map_discrete", "actions": [1]},
    ]
    task = {"id": "distrl.environments.worlds.toy:MemoryCue", "kwargs": {"n": 2, "delay_steps": 2}}
    environment = VectorEnvironment(
        EnvironmentConfig.model_validate({**task, "vectorization": vectorization, "preprocessing": steps}), 8
    )
    assert environment.vectorization == vectorization
    assert environment.spec.observations == {"observation": ArraySpec((2,), "float32", 0.0, 3.0, frames=2)}
    assert environment.spec.actions == {"action": DiscreteSpec(1)}
    assert environment.reset(seed=3)["observation"].tolist() == [[0, 0]] * 8
    seen, paid, learned = [], [], []
    for _ in range(5):
        step = environment.step({"action": np.zeros(8, np.int32)})
        assert {array.dtype.name for array in (step.rewards, step.raw_rewards)} == {"float32"}
        seen.append(np.round(step.observations["observation"]).tolist())
        paid.append(step.raw_rewards.tolist())
        learned.append(step.rewards.tolist())
    # The fourth step resets: a stack of the new episode's first observation.
    assert seen == [[pair] * 8 for pair in ([0, 1], [1, 2], [2, 3], [0, 0], [0, 1])]
    assert 0 < sum(paid[2]) < 8  # whose cue was 1
    assert learned == [[-reward for reward in row] for row in paid]
    assert [any(row) for row in paid] == [False, False, True, False, False]
    assert environment.reset(seed=4)["observation"].tolist() == [[0, 0]] * 8
    environment.close()


def test_an_environment_with_a_step_that_does_not_fit_is_not_made():
    config = EnvironmentConfig.model_validate({"preprocessing": [{"step": "grayscale"}]})
    with pytest.raises(ConfigError, match=r"environment CartPole-v1: environment.preprocessing\[0\] \(grayscale\)"):
        VectorEnvironment(config, 1)


def test_what_fails_in_a_step_is_the_environments_failure():
    config = {
        "id": "distrl.environments.worlds.toy:StepCounter",
        "preprocessing": [{"step": "to_dtype", "dtype": "int64"}],
    }
    config["preprocessing"].append({"step": "one_hot", "categories": 2})
    environment = VectorEnvironment(EnvironmentConfig.model_validate(config), 1)
    environment.reset(seed=0)
    environment.step({"action": np.zeros(1, np.int32)})
    with pytest.raises(EnvironmentFailedError, match="failed in step: ValueError: one_hot: 2 … 2 is not within 0 … 1"):
        environment.step({"action": np.zeros(1, np.int32)})
    environment.close()


# Random pipelines: whatever fits is applied, and what comes out is what was foretold.

DTYPES = ("uint8", "int64", "float32", "float64", "bool", "int16", "float16")
SIZES = st.integers(1, 4)
STEPS = st.one_of(
    st.builds(lambda a, b: {"step": "clip", "low": min(a, b), "high": max(a, b)}, *[st.integers(-3, 300)] * 2),
    st.builds(lambda a: {"step": "clip", "low": a}, st.integers(-3, 300)),
    st.sampled_from([{"step": "scale", "multiply": 0.3}, {"step": "scale", "divide": -7}]),
    st.sampled_from(["uint8", "int16", "int32", "float16", "float32", "float64"]).map(
        lambda dtype: {"step": "to_dtype", "dtype": dtype}
    ),
    st.sampled_from(["normalize", "standardize", "flatten", "squeeze", "center", "to_uint8", "binary", "one_hot"]).map(
        lambda name: {"step": name}
    ),
    st.just({"step": "to_uint8", "low": -10, "high": 20}),
    st.builds(lambda x, y, w, h: {"step": "crop", "x": x, "y": y, "width": w, "height": h}, SIZES, SIZES, SIZES, SIZES),
    st.builds(
        lambda w, h, how: {"step": "resize", "width": w, "height": h, "interpolation": how},
        *[st.integers(1, 7)] * 2,
        st.sampled_from(["area", "bilinear", "nearest", "bicubic", "lanczos"]),
    ),
    st.builds(
        lambda weights, keep: {"step": "grayscale", "weights": weights, "keep_axis": keep},
        st.lists(st.sampled_from([0.299, 0.587, -0.25, 1.0]), min_size=1, max_size=4),
        st.booleans(),
    ),
    st.just({"step": "move_axis", "source": 0, "destination": -1}),
    st.just({"step": "transpose", "axes": [1, 0]}),
    st.just({"step": "reshape", "shape": [2, -1]}),
    st.just({"step": "select", "keep": [-1, 0]}),
    st.just({"step": "slice", "low": [0, 1], "high": [-1, 2]}),
    st.just({"step": "stack", "frames": 3}),
)


@st.composite
def arrays_and_steps(draw):
    """A spec, and steps that fit it in that order."""
    dtype = draw(st.sampled_from(DTYPES))
    bounds = {"uint8": (0.0, 255.0), "bool": (0.0, 1.0)}.get(
        dtype, draw(st.sampled_from([(None, None), (-20.0, 31.0)]))
    )
    if dtype in ("int64", "float32", "float64") and draw(st.booleans()):
        bounds = (-1e6, 1e6)  # beyond float16
    given = ArraySpec(tuple(draw(st.lists(SIZES, max_size=3))), dtype, *bounds)
    steps = []
    for step in draw(st.lists(STEPS, max_size=6)):
        try:
            made = pipeline_of(given, [*steps, step])
        except ConfigError:
            continue
        if math.prod(made.spec.observations["observation"].shape) < 10_000:  # not one_hot of a million, which is slow
            steps.append(step)
    return given, steps


def pipeline_of(given, steps):
    config = EnvironmentConfig.model_validate({"preprocessing": steps})
    return Pipeline(config.preprocessing, EnvSpec("Task", {"observation": given}, {"action": DiscreteSpec(2)}))


def random_rows(given, batch, seed):
    random = np.random.default_rng(seed)
    low, high = (-20.0 if given.low is None else given.low), (31.0 if given.high is None else given.high)
    rows = random.uniform(low, high, (batch, *given.shape))
    rows = np.where(random.random(rows.shape) < 0.3, random.choice([low, high], rows.shape), rows)  # the edges, too
    return rows.astype(given.dtype)


def seen_by(made, rows, valid):
    return made.observations({"observation": rows}, valid)["observation"]


@pytest.mark.row("D100", "L07", "L09")
@settings(max_examples=150)
@given(arrays_and_steps(), st.integers(0, 2**32 - 1))
def test_the_space_is_known_beforehand(case, seed):
    given_spec, steps = case
    made = pipeline_of(given_spec, steps)
    spec = made.spec.observations["observation"]
    for _ in range(2):
        out = seen_by(made, random_rows(given_spec, 5, seed), np.ones(5, bool))
        assert (out.shape, out.dtype.name) == ((5, *spec.shape), spec.dtype)
        assert spec.low is None or (out >= spec.low).all(), (out.min(), spec)
        assert spec.high is None or (out <= spec.high).all(), (out.max(), spec)
        assert np.isfinite(out).all()


@settings(max_examples=100)
@given(arrays_and_steps(), st.integers(0, 2**32 - 1))
def test_a_batch_is_so_many_single_rows(case, seed):
    """Every row by itself, with episodes that begin at times of their own."""
    given_spec, steps = case
    together = pipeline_of(given_spec, steps)
    alone = [pipeline_of(given_spec, steps) for _ in range(3)]
    random = np.random.default_rng(seed)
    for time in range(4):
        rows, valid = random_rows(given_spec, 3, seed + time), random.random(3) < 0.6
        whole = seen_by(together, rows, valid)
        for row, single in enumerate(alone):
            if not valid[row]:
                single.reset()
            np.testing.assert_array_equal(
                seen_by(single, rows[row : row + 1], valid[row : row + 1])[0], whole[row], strict=True
            )
