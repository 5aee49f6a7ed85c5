"""Spaces in spaces: names and their order, what is refused with which words, and what gymnasium's vectors say of it."""

from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Space, Text, Tuple
from gymnasium.spaces.utils import flatdim, is_space_dtype_shape_equiv
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.config.environment import TextParameters
from distrl.environments.observation_spaces import array_reader
from distrl.environments.random_actions import random_actions
from distrl.environments.spaces import action_writer, env_spec, observation_reader, observation_writer
from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, OneHot
from distrl.unroll_schema import UnrollSchema

NESTED = Dict(
    {
        "c": Dict({"z": Box(0, 1, (2,), np.float32), "text": Text(9)}),
        "b": Tuple((Discrete(3), Dict({"c": MultiBinary(2)}))),
        "a": Box(0, 255, (4, 4, 1), np.uint8),
    }
)
NAMES = ["a", "b/0", "b/1/c", "c/text", "c/z"]


def spec_of(observation: Space, action: Space | None = None, **text: int) -> EnvSpec:
    return env_spec(
        "Env-v0", observation, Discrete(2) if action is None else action, None, None, TextParameters(**text)
    )


def test_what_is_in_no_other_is_named_for_what_it_is() -> None:
    spec = spec_of(Box(-1.0, 1.0, (3,), np.float32), Discrete(5, start=2))
    assert spec.observations == {"observation": ArraySpec((3,), "float32", -1.0, 1.0)}
    assert spec.actions == {"action": DiscreteSpec(5, 2)}


@pytest.mark.row("M04", "E18", "E19")
def test_names_are_paths_in_gymnasiums_order() -> None:
    spec = spec_of(NESTED, length_tokens=5)
    assert list(spec.observations.items()) == [
        ("a", ArraySpec((4, 4, 1), "uint8", 0.0, 255.0)),
        ("b/0", ArraySpec((1,), "uint8", 0.0, 2.0, one_hot=OneHot((), (3,), (0,)))),
        ("b/1/c", ArraySpec((2,), "int8", 0.0, 1.0)),
        ("c/text", ArraySpec((5,), "int32", 0.0, 1023.0, vocabulary=1024)),
        ("c/z", ArraySpec((2,), "float32", 0.0, 1.0)),
    ]
    actions = Tuple((Dict({"turn": Box(0, 1, (1,)), "fire": Discrete(2)}), MultiBinary(2)))
    assert list(spec_of(NESTED, actions).actions.items()) == [
        ("0/fire", DiscreteSpec(2)),
        ("0/turn", BoxSpec((1,), (0.0,), (1.0,))),
        ("1", MultiBinarySpec((2,))),
    ]
    assert list(spec_of(Dict([("b", Discrete(2)), ("a", Discrete(3))])).observations) == ["b", "a"]


def test_spec_has_limits_and_survives_json() -> None:
    spec = env_spec("Env-v0", NESTED, Tuple((Discrete(2), Box(0, 1, (1,)))), 475.0, 500)
    assert (spec.reward_threshold, spec.max_episode_steps) == (475.0, 500)
    back = EnvSpec.from_json(spec.to_json())
    assert back == spec
    assert (list(back.observations), list(back.actions)) == (NAMES, ["0", "1"])


OBSERVED = "Box, Discrete, MultiDiscrete, MultiBinary, Text, and Dict and Tuple of those at any depth are supported"
ACTED = "Discrete, MultiDiscrete, MultiBinary, Box of real numbers, and Dict and Tuple of those at any depth are "
KEYS = "non-empty names without '/' are supported"


@pytest.mark.row("E18", "E19", "E24")
@pytest.mark.parametrize(
    ("space", "path", "reason", "supported"),
    [
        (Box(0, 1, (0, 3), np.float32), "observation", "its shape (0, 3) holds no number", OBSERVED),
        (Sequence(Discrete(2)), "observation", "it is a Sequence", OBSERVED),
        (Dict({"a": Tuple((Discrete(2), Sequence(Discrete(2))))}), "observation/a/1", "it is a Sequence", OBSERVED),
        (Dict({}), "observation", "it is an empty Dict", OBSERVED),
        (Tuple(()), "observation", "it is an empty Tuple", OBSERVED),
        (Dict({"a": Tuple((Dict({}),))}), "observation/a/0", "it is an empty Dict", OBSERVED),
        (Dict({"a/b": Discrete(2)}), "observation/a/b", "its key is 'a/b'", KEYS),
        (Tuple((Dict({"": Discrete(2)}),)), "observation/0/", "its key is ''", KEYS),
        (Dict({"a": Dict({1: Discrete(2)})}), "observation/a/1", "its key is 1", KEYS),
    ],
)
def test_an_unsupported_observation_names_path_and_reason(space: Space, path: str, reason: str, supported: str) -> None:
    with pytest.raises(ConfigError) as caught:
        spec_of(space)
    assert str(caught.value) == f"environment Env-v0: the space at '{path}' cannot be used: {reason}; {supported}"
    if "empty" in reason or "key" in reason:
        with pytest.raises(ConfigError) as caught:
            spec_of(Discrete(2), space)
        assert f"at '{path.replace('observation', 'action')}' cannot be used: {reason}; " in str(caught.value)


@pytest.mark.parametrize(
    ("space", "path", "reason"),
    [
        (Box(0, 9, (1,), np.int64), "action", "it is a Box of int64; whole numbers are a MultiDiscrete"),
        (Dict({"say": Text(8)}), "action/say", "it is a Text"),
        (Tuple((Discrete(2), Dict({"arm": Tuple((Text(8),))}))), "action/1/arm/0", "it is a Text"),
    ],
)
def test_an_unsupported_action_names_path_and_reason(space: Space, path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        spec_of(Discrete(2), space)
    assert str(caught.value).startswith(
        f"environment Env-v0: the space at '{path}' cannot be used: {reason}; {ACTED}supported"
    )


def test_text_parameters_without_a_text_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^environment Env-v0: environment\.text is set, but nothing that it shows is"
    ):
        spec_of(Discrete(2), vocabulary=7)


def test_a_vectors_observation_is_read_by_name() -> None:
    raw = {
        "c": {"z": np.float32([[0, 1], [1, 0]]), "text": ("go", "go home")},
        "b": (np.array([2, 0]), {"c": np.int8([[0, 1], [1, 1]])}),
        "a": np.full((2, 4, 4, 1), 9, np.uint8),
    }
    arrays = observation_reader("Env-v0", NESTED, 2, TextParameters(length_tokens=2))(raw)
    assert list(arrays) == NAMES
    np.testing.assert_array_equal(arrays["b/0"], [[2], [0]])
    np.testing.assert_array_equal(arrays["b/1/c"], [[0, 1], [1, 1]])
    assert (arrays["c/text"] > 0).tolist() == [[True, False], [True, True]]
    assert arrays["c/text"][0, 0] == arrays["c/text"][1, 0]
    np.testing.assert_array_equal(arrays["a"], raw["a"], strict=True)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ((np.array([2, 3]), np.zeros((2, 1), np.float32)), r"^observation '0': \[2 3\] lies outside Discrete\(3\)$"),
        ((np.array([2, 0]), np.zeros((2, 2), np.float32)), r"^observation '1': its shape is \(2, 2\), the space of 2"),
        ((np.array([2, 0]),), "^observation '1' is missing$"),
        (None, "^observation '0': 'NoneType' object is not subscriptable$"),
    ],
)
def test_a_bad_observation_names_its_array(raw: object, message: str) -> None:
    read = observation_reader("Env-v0", Tuple((Discrete(3), Box(0, 1, (1,), np.float32))), 2)
    with pytest.raises(ValueError, match=message):
        read(raw)


def test_actions_find_their_way_back_into_what_they_came_from() -> None:
    space = Dict(
        {"hand": Tuple((Discrete(3, start=5), Dict({"force": Box(-1, 1, (1,), np.float32)}))), "on": Discrete(2)}
    )
    given = {"hand/0": np.int32([0, 2]), "hand/1/force": np.float32([[-3.0], [0.5]]), "on": np.int32([1, 0])}
    taken = action_writer("Env-v0", space)(given)
    assert list(iterate(batch_space(space, 2), taken)) == [
        {"hand": (5, {"force": np.float32([-1.0])}), "on": 1},
        {"hand": (7, {"force": np.float32([0.5])}), "on": 0},
    ]


def test_a_lone_action_is_written_bare() -> None:
    write = action_writer("Env-v0", Box(-1.0, 1.0, (), np.float32))
    np.testing.assert_array_equal(
        write({"action": np.float32([[2.0], [-0.25]])}), np.float32([1.0, -0.25]), strict=True
    )


# Any nesting of any kinds.

CHOICES = st.integers(1, 4)
PLAIN = st.one_of(
    st.builds(Discrete, CHOICES, start=st.integers(-3, 3)),
    st.builds(
        lambda n, start: MultiDiscrete(n, start=start[: len(n)]),
        st.lists(CHOICES, min_size=1, max_size=3),
        st.just([-1, 0, 7]),
    ),
    st.builds(lambda n: MultiDiscrete([n, n]), st.lists(CHOICES, min_size=2, max_size=2)),
    st.builds(MultiBinary, st.sampled_from([1, 3, (2, 2)])),
    st.builds(
        lambda shape, high, dtype: Box(-1.0, high, shape, dtype),
        st.sampled_from([(), (1,), (2, 3)]),
        st.sampled_from([1.0, np.inf]),
        st.sampled_from([np.float32, np.float64]),
    ),
)
OBSERVED_ONLY = st.one_of(
    st.builds(Text, st.integers(1, 6), charset=st.just("ab ")),
    st.builds(lambda shape: Box(0, 255, shape, np.uint8), st.sampled_from([(2,), (3, 3, 1)])),
)


def nested(plain: st.SearchStrategy) -> st.SearchStrategy:
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            st.dictionaries(st.sampled_from(["b", "a", "10", "9", "Ä b"]), inner, min_size=1, max_size=3).map(Dict),
            st.lists(inner, min_size=1, max_size=3).map(Tuple),
        ),
        max_leaves=6,
    )


class Sampler(gymnasium.Env[Any, Any]):
    """Shows samples of its observation space, keeps the actions that it is given."""

    def __init__(self, observation_space: Space, action_space: Space, seed: int) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        observation_space.seed(seed)
        self.shown: list[Any] = []
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.shown.append(self.observation_space.sample())
        return self.shown[-1], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken.append(action)
        observation, info = self.reset()
        return observation, 0.0, False, False, info


def parts(space: Space, sample: Any, path: tuple[object, ...] = ()) -> list[tuple[str, Space, Any]]:
    """(name, space, sample) of everything inside, the obvious way."""
    if isinstance(space, Dict):
        return [part for key in sorted(space.spaces) for part in parts(space[key], sample[key], (*path, key))]
    if isinstance(space, Tuple):
        return [part for i, child in enumerate(space.spaces) for part in parts(child, sample[i], (*path, i))]
    return [("/".join(map(str, path)), space, sample)]


@pytest.mark.row("E01", "E04")
@settings(max_examples=60, deadline=None)
@given(nested(PLAIN | OBSERVED_ONLY), nested(PLAIN), st.integers(0, 2**31 - 1))
def test_any_nesting_goes_through_gymnasiums_vector_both_ways(observed: Space, acted: Space, seed: int) -> None:
    vector = SyncVectorEnv([lambda: Sampler(observed, acted, seed)] * 2)
    spec = spec_of(observed, acted)
    assert EnvSpec.from_json(spec.to_json()) == spec
    read, write = observation_reader("Env-v0", observed, 2), action_writer("Env-v0", acted)
    raw, _ = vector.reset()
    actions = random_actions(spec.actions, 2, np.random.default_rng(seed))
    rows = [read(raw), read(vector.step(write(actions))[0])]
    for index, environment in enumerate(vector.envs):
        for arrays, shown in zip(rows, environment.shown, strict=True):
            # one array for each, equal to what gymnasium sampled
            for (name, space, sample), (read_name, array) in zip(parts(observed, shown), arrays.items(), strict=True):
                assert read_name == (name or "observation")
                assert (array.shape[1:], array.dtype.name) == (
                    spec.observations[read_name].shape,
                    spec.observations[read_name].dtype,
                )
                own = array_reader(space, TextParameters(), 1)((sample,))[0]
                np.testing.assert_array_equal(array[index], own)
                if isinstance(space, Box | MultiBinary):
                    np.testing.assert_array_equal(array[index], sample)
                elif isinstance(space, Discrete):
                    assert space.start + array[index].item() == sample
        (taken,) = environment.taken
        assert [name or "action" for name, *_ in parts(acted, taken)] == list(spec.actions)
        for _, space, value in parts(acted, taken):
            assert space.contains(np.asarray(value) if isinstance(space, Box) else value)


# What RLgraph's spaces could do, row by row, by gymnasium's own functions and the specs made of its spaces.

FOUR = Box(-1.0, 1.0, (4,), np.float32)
KINDS = [
    Box(-1.0, 1.0, (3,), np.float32),
    Box(-np.inf, np.inf, (2,), np.float64),
    Box(0, 255, (2, 2), np.uint8),
    Discrete(6),
    Discrete(3, start=2),
    MultiDiscrete([2, 3]),
    MultiBinary(3),
    Text(5),
    Dict({"b": Tuple((Discrete(3), MultiBinary(1))), "a": FOUR}),
]
BOTH = [space for space in KINDS if not isinstance(space, Text) and space.dtype != np.uint8]


def full(value: object) -> object:
    """For `create_empty_array`: arrays of nothing but `value`."""
    return partial(np.full, fill_value=value)


@pytest.mark.row("E01")
@pytest.mark.parametrize("space", KINDS, ids=str)
def test_every_kind_has_a_batch_rank_and_a_time_rank_by_request(space: Space) -> None:
    assert deepcopy(space) == space
    # [T, B, ...]; texts have no axes, there are T times B of them
    unrolled = batch_space(batch_space(space, 3), 2)
    assert unrolled.contains(unrolled.sample())
    if not isinstance(space, Dict | Text):
        assert unrolled.shape == (2, 3, *space.shape)
    assert EnvSpec.from_json(spec_of(space).to_json()) == spec_of(space)


@pytest.mark.row("E02")
def test_membership() -> None:
    assert [Discrete(5).contains(value) for value in (4, 5, 1.5)] == [True, False, False]
    assert [FOUR.contains(np.full(4, value, np.float32)) for value in (1.0, np.nan)] == [True, False]


@pytest.mark.row("E03")
def test_the_flat_size_is_the_product_of_a_shape_and_the_sum_over_a_container() -> None:
    matrix = Box(0.0, 1.0, (3, 4), np.float32)
    both = Dict({"matrix": matrix, "scalar": Box(0.0, 1.0, (), np.float32)})
    assert (flatdim(matrix), flatdim(both)) == (12, 13)
    assert sum(int(np.prod(array.shape)) for array in spec_of(both).observations.values()) == 13


@pytest.mark.row("E04")
def test_names_of_what_a_container_holds() -> None:
    space = Dict({"b": Tuple((Discrete(3), MultiBinary(1))), "a": FOUR})
    assert list(spec_of(space).observations) == ["a", "b/0", "b/1"]


@pytest.mark.row("E05")
def test_one_observation_needs_its_batch_axis_and_gets_it_from_gymnasium() -> None:
    one = np.float32([1, 2, 3, 4]) / 4
    batch = concatenate(FOUR, [one], create_empty_array(FOUR, 1))
    assert batch.shape == (1, 4)
    np.testing.assert_array_equal(observation_reader("Env-v0", FOUR, 1)(batch)["observation"], batch)
    two = np.stack([one, one])
    np.testing.assert_array_equal(observation_reader("Env-v0", FOUR, 2)(two)["observation"], two)
    for wrong in (one, np.stack([two, two])):  # without a batch axis; with a time axis
        with pytest.raises(ValueError, match="its shape is"):
            observation_reader("Env-v0", FOUR, 2)(wrong)


@pytest.mark.row("E06")
def test_ranks_come_first() -> None:
    schema = UnrollSchema.of(spec_of(FOUR, FOUR), 5, 2, {})
    assert schema.observations["observation"][1] == (6, 2, 4)  # the first of the next unroll is among them
    assert schema.actions["action"][1] == (5, 2, 4)


@pytest.mark.row("E07", "E11")
@pytest.mark.parametrize("space", [space for space in KINDS if not isinstance(space, Dict | Text)], ids=str)
def test_buffers_are_zeros_of_the_right_type(space: Space) -> None:
    buffer = create_empty_array(space, 7)
    np.testing.assert_array_equal(buffer, np.zeros((7, *space.shape), space.dtype), strict=True)


@pytest.mark.row("E08")
def test_a_container_has_the_shapes_of_its_parts() -> None:
    spec = spec_of(Dict({"text": Text(9), "image": Box(0, 255, (80, 80, 3), np.uint8)}))
    shapes = {name: (len(array.shape), array.shape, array.dtype) for name, array in spec.observations.items()}
    assert shapes == {
        "image": (3, (80, 80, 3), "uint8"),
        "text": (1, (TextParameters().length_tokens,), "int32"),  # a text has no shape; its tokens have
    }


@pytest.mark.row("E09")
@pytest.mark.parametrize("space", BOTH, ids=str)
def test_samples_of_any_number(space: Space) -> None:
    several = batch_space(space, 5)
    rows = list(iterate(several, several.sample()))
    assert len(rows) == 5
    assert all(space.contains(row) for row in rows)
    drawn = random_actions(spec_of(FOUR, space).actions, 5, np.random.default_rng(0))
    assert all(space.contains(row) for row in iterate(several, action_writer("Env-v0", space)(drawn)))


@pytest.mark.row("E09", "E16", "T11")
def test_samples_of_one_value() -> None:
    np.testing.assert_array_equal(create_empty_array(FOUR, 5, full(7)), np.full((5, 4), 7.0))
    switches = create_empty_array(MultiBinary(3), 2, full(True))
    np.testing.assert_array_equal(switches, np.ones((2, 3)))
    np.testing.assert_array_equal(
        observation_reader("Env-v0", MultiBinary(3), 2)(switches.astype(bool))["observation"], switches, strict=True
    )


@pytest.mark.row("E10")
@pytest.mark.parametrize("space", BOTH, ids=str)
def test_more_ranks_leave_the_space_as_it_was(space: Space) -> None:
    before = deepcopy(space)
    batch_space(batch_space(space, 3), 2).sample()
    assert space == before
    np.testing.assert_equal(space.sample(), before.sample())  # nor is its random state another


@pytest.mark.row("E12")
def test_bounds_for_all_or_for_each() -> None:
    each = Box(np.float32([0, -1]), np.float32([1, np.inf]))
    action = spec_of(FOUR, each).actions["action"]
    assert (action.low, action.high) == ((0.0, -1.0), (1.0, None))
    shared = spec_of(FOUR).observations["observation"]
    assert (shared.low, shared.high) == (-1.0, 1.0)
    with pytest.raises(ValueError, match="shape"):
        Box(np.zeros(2, np.float32), np.ones(3, np.float32))


@pytest.mark.row("E13")
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.uint8])
def test_whole_numbers_end_below_their_number(dtype: type) -> None:
    space = Discrete(6, dtype=dtype)
    drawn = random_actions(spec_of(FOUR, space).actions, 10_000, np.random.default_rng(0))
    taken = action_writer("Env-v0", space)(drawn)
    assert (taken.min(), taken.max(), taken.dtype) == (0, 5, dtype)
    samples = batch_space(space, 10_000).sample()
    assert (samples.min(), samples.max()) == (0, 5)
    assert spec_of(Box(0, 5, (2,), dtype)).observations["observation"].dtype == dtype.__name__


@pytest.mark.row("E14", "T11")
def test_categories_are_counted_from_where_they_start() -> None:
    five, three = Discrete(5), Discrete(3, start=2)  # 2, 3, 4; RLgraph made five categories of it
    assert (flatdim(five), flatdim(three)) == (5, 3)
    assert [spec_of(space).observations["observation"].expanded.shape for space in (five, three)] == [(5,), (3,)]
    rows = observation_reader("Env-v0", three, 2)(np.array([2, 4]))["observation"]
    np.testing.assert_array_equal(rows, [[0], [2]])


@pytest.mark.row("E15")
def test_samples_without_bounds_are_finite() -> None:
    space = Box(-np.inf, np.inf, (1000,), np.float32)
    assert np.isfinite(space.sample()).all()
    assert np.isfinite(random_actions(spec_of(FOUR, space).actions, 10, np.random.default_rng(0))["action"]).all()


@pytest.mark.row("E17", "T11")
def test_texts() -> None:
    assert Text(5).contains("abc")
    rows = observation_reader("Env-v0", Text(5), 2)(("abc", np.str_("abc")))["observation"]
    np.testing.assert_array_equal(rows[0], rows[1])


@pytest.mark.row("E20", "T11")
def test_samples_of_a_container_in_both_directions() -> None:
    """RLgraph repeated one sample."""
    space = Dict({"a": Discrete(1000), "b": Tuple((Discrete(1000),))})
    several = batch_space(space, 100)
    columns = several.sample()
    rows = list(iterate(several, columns))
    assert len(rows) == 100
    assert len({int(row["a"]) for row in rows}) > 50
    assert len({int(row["b"][0]) for row in rows}) > 50
    np.testing.assert_array_equal([row["a"] for row in rows], columns["a"])


@pytest.mark.row("E21")
def test_equivalence() -> None:
    two, three = Box(0.0, 1.0, (2,), np.float32), Box(0.0, 1.0, (3,), np.float32)
    assert not is_space_dtype_shape_equiv(two, three)
    assert spec_of(two) != spec_of(three)
    # A batched space is another space, and the single one is what describes an environment.
    assert spec_of(batch_space(two, 3)) != spec_of(two)
    assert spec_of(two) == spec_of(deepcopy(two))


@pytest.mark.row("D194")
def test_any_selection_of_three_is_an_action() -> None:
    space = MultiBinary(3)
    actions = spec_of(FOUR, space).actions
    assert actions == {"action": MultiBinarySpec((3,))}
    taken = action_writer("Env-v0", space)(random_actions(actions, 500, np.random.default_rng(0)))
    assert len(np.unique(taken, axis=0)) == 8
    assert all(space.contains(row) for row in taken)


def test_observations_are_written_as_they_were_read():
    inner = {
        "deep": Box(-1.0, 1.0, (2, 3), np.float64),
        "choices": MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, -2]]),
        "switches": MultiBinary(3),
    }
    space = Tuple((Discrete(4, start=-1), Dict(inner)))
    shown = batch_space(space, 5).sample()
    written = observation_writer("an environment", space)(observation_reader("an environment", space, 5)(shown))
    for one, other in zip((written[0], *written[1].values()), (shown[0], *shown[1].values()), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    assert [*written[1]] == [*shown[1]]
