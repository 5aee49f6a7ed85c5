import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from distrl import nest
from distrl.types import (
    ArraySpec,
    Batch,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    UnrollHeader,
)

CARTPOLE = EnvSpec(
    id="CartPole-v1",
    observations={"observation": ArraySpec((4,), "float32")},
    actions={"action": DiscreteSpec(2)},
    reward_threshold=475.0,
    max_episode_steps=500,
)

bounds = st.none() | st.floats(allow_nan=False, allow_infinity=False)
array_specs = st.builds(
    ArraySpec,
    st.lists(st.integers(1, 99), max_size=3).map(tuple),
    st.sampled_from(["float32", "uint8"]),
    bounds,
    bounds,
    st.integers(1, 4),
)
shapes = st.lists(st.integers(1, 9), max_size=2).map(tuple)
action_specs = st.one_of(
    st.builds(DiscreteSpec, st.integers(1, 99), st.integers(-9, 9)),
    st.lists(st.tuples(st.integers(1, 99), st.integers(-9, 9)), min_size=1, max_size=3).map(
        lambda pairs: MultiDiscreteSpec(*map(tuple, zip(*pairs, strict=True)))
    ),
    st.builds(MultiBinarySpec, shapes),
    st.lists(st.tuples(bounds, bounds), min_size=1, max_size=3).map(
        lambda pairs: BoxSpec((len(pairs),), *map(tuple, zip(*pairs, strict=True)))
    ),
)
env_specs = st.builds(
    EnvSpec,
    id=st.text(min_size=1, max_size=9),
    observations=st.dictionaries(st.text(min_size=1, max_size=5), array_specs, min_size=1, max_size=4),
    actions=st.dictionaries(st.text(min_size=1, max_size=5), action_specs, min_size=1, max_size=4),
    reward_threshold=bounds,
    max_episode_steps=st.none() | st.integers(1, 9999),
)


@given(env_specs)
def test_env_spec_survives_json_in_wire_order(spec):
    back = EnvSpec.from_json(spec.to_json())
    assert back == spec
    assert list(back.observations) == list(spec.observations)
    assert list(back.actions) == list(spec.actions)
    assert [type(action) for action in back.actions.values()] == [type(action) for action in spec.actions.values()]
    assert all(type(array.shape) is tuple for array in back.observations.values())


def test_env_spec_is_plain_json_for_people_and_other_programs():
    assert CARTPOLE.to_json() == (
        '{"id":"CartPole-v1","observations":{"observation":{"shape":[4],"dtype":"float32","low":null,"high":null,"frames":1,'
        '"vocabulary":null,"one_hot":null}},'
        '"actions":{"action":{"n":2,"start":0,"kind":"discrete"}},"reward_threshold":475.0,"max_episode_steps":500,'
        '"unprocessed":null,"rows":1,"adjustable":[]}'
    )


@pytest.mark.parametrize("text", ["{}", "[]", '{"id":"x","observations":{},"actions":{"action":{"n":"many"}}}'])
def test_what_is_no_spec_is_refused(text):
    with pytest.raises(ValidationError):
        EnvSpec.from_json(text)


@pytest.mark.parametrize(
    ("action", "array"),
    [
        (DiscreteSpec(4, start=9), ArraySpec((), "int32", 0, 3)),
        (MultiDiscreteSpec((2, 6, 3), (0, 1, 2)), ArraySpec((3,), "int32", 0, 5)),
        (MultiBinarySpec((2, 5)), ArraySpec((10,), "int32", 0, 1)),
        (BoxSpec((3, 2), (0.0,) * 6, (None,) * 6), ArraySpec((6,), "float32")),
    ],
)
def test_actions_travel_flat_and_counted_from_0(action, array):
    assert action.array == array


def test_one_frame_of_a_stack():
    assert ArraySpec((84, 84, 12), "uint8", frames=4).frame_shape == (84, 84, 3)
    assert ArraySpec((6,), "float32", frames=3).frame_shape == (2,)
    assert ArraySpec((), "float32").frame_shape == ()
    stacked = {"screen": ArraySpec((2, 2, 4), "uint8", frames=4), "speed": ArraySpec((1,), "float32")}
    assert EnvSpec("Toy", stacked, {}).frames == {"screen": 4}


def test_sequences_are_counted_within_actor_and_incarnation():
    header = UnrollHeader(actor=3, incarnation=7, sequence=0, weights_version=1, env_steps=64)
    assert header.producer == (3, 7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        header.sequence = 1


def test_a_batch_is_a_tree():
    batch = Batch({"position": 1}, {"turn": 2, "fire": 9}, 3, 4, 5, 6, 7, {"h": 8})
    doubled = nest.map(lambda leaf: 2 * leaf, batch)
    assert isinstance(doubled, Batch)
    assert doubled.observations == {"position": 2}
    assert doubled.actions == {"turn": 4, "fire": 18}
    assert doubled.recurrent_state == {"h": 16}


PLANE = {"position": ArraySpec((2,), "float32", -1.0, 1.0), "wind": ArraySpec((), "float32")}
STEERING = {"turn": BoxSpec((1,), (-1.0,), (1.0,)), "gear": DiscreteSpec(3)}


@pytest.mark.parametrize(
    ("observations", "actions", "told"),
    [
        ({}, {}, ""),
        ({"wind": None}, {}, "its observations are position, those of the training are position, wind"),
        (
            {"position": ArraySpec((3,), "float32")},
            {},
            "its observation 'position' has shape (3,), that of the training has shape (2,)",
        ),
        (
            {"wind": ArraySpec((), "uint8")},
            {},
            "its observation 'wind' has dtype uint8, that of the training has dtype float32",
        ),
        ({}, {"gear": DiscreteSpec(4)}, "its action 'gear' has n 4, that of the training has n 3"),
        (
            {},
            {"gear": BoxSpec((1,), (None,), (None,))},
            "its action 'gear' has kind box, that of the training has kind discrete",
        ),
        (
            {},
            {"turn": BoxSpec((1,), (-2.0,), (1.0,))},
            "its action 'turn' has low (-2.0,), that of the training has low (-1.0,)",
        ),
    ],
)
def test_the_first_difference_between_two_environments(observations, actions, told):
    def changed(spaces, changes):
        return {name: space for name, space in (spaces | changes).items() if space is not None}

    other = EnvSpec("Other", changed(PLANE, observations), changed(STEERING, actions), reward_threshold=1.0, rows=3)
    assert EnvSpec("Plane", PLANE, STEERING).unlike(other) == told
