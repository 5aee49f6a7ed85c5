import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec


def all_of(acted, spec, *steps):
    kind, _ = acted(spec, np.zeros(1, np.int32), *steps)
    assert isinstance(kind, DiscreteSpec)
    return acted(spec, np.arange(kind.n, dtype=np.int32), *steps)[1]


@pytest.mark.row("D116", "T09")
def test_boxes_become_evenly_spaced_choices(acted, box):
    """The ancestor's check of an int for the number of bins failed on its length."""
    five = all_of(acted, box(-1.0, 1.0), {"step": "discretize_box", "bins": 5})
    assert five.tolist() == [[-1], [-0.5], [0], [0.5], [1]]
    assert five.dtype == np.float32
    whole = all_of(acted, box(0.0, 10.0), {"step": "discretize_box", "bins": 5, "whole_bins": True})
    assert whole.tolist() == [[0], [2], [5], [7], [10]]


@pytest.mark.row("D116")
def test_several_numbers_give_all_combinations(acted):
    box = BoxSpec((2,), (-1.0, 0.0), (1.0, 4.0))
    nine = all_of(acted, box, {"step": "discretize_box", "bins": 3})
    assert nine.tolist() == [[x, y] for x in (-1, 0, 1) for y in (0, 2, 4)]
    six = all_of(acted, box, {"step": "discretize_box", "bins": [2, 3]})
    assert six.tolist() == [[x, y] for x in (-1, 1) for y in (0, 2, 4)]


@pytest.mark.row("D117")
def test_a_box_is_masked(acted, box):
    spec, given = acted(box(-1.0, 1.0), np.float32([[-0.5], [0.25], [7]]), {"step": "mask_box", "low": 0, "high": 1})
    assert spec == BoxSpec((1,), (0.0,), (1.0,))
    assert given.tolist() == [[0], [0.25], [1]]
    spec, _ = acted(box(None, None, 2), np.zeros((1, 2)), {"step": "mask_box", "low": [0, -1], "high": 1})
    assert spec == BoxSpec((2,), (0.0, -1.0), (1.0, 1.0))


@pytest.mark.row("D117")
def test_a_boxs_own_bounds_may_be_written_in_decimals(acted, box):
    bound = float(np.float32(0.7))  # 0.699999988…
    step = {"step": "mask_box", "low": -0.7, "high": 0.7}
    assert acted(box(-bound, bound), np.float32([[1]]), step)[0] == box(-bound, bound)
    assert acted(box(-0.7, 0.7), np.float32([[1]]), step)[0] == box(-bound, bound)  # a box in float64


@pytest.mark.row("D119")
def test_a_box_is_mapped_to_another(acted, box):
    chosen = np.float32([[0], [-1], [1], [0.5], [-9], [9]])
    spec, given = acted(box(0.0, 10.0), chosen, {"step": "map_box"})
    assert spec == BoxSpec((1,), (-1.0,), (1.0,))
    np.testing.assert_array_equal(given, np.float32([[5], [0], [10], [7.5], [0], [10]]), strict=True)


@pytest.mark.row("D119")
def test_each_number_is_mapped_to_its_own_bounds(acted):
    box = BoxSpec((2,), (0.0, -3.0), (1.0, 3.0))
    spec, given = acted(box, np.float32([[0, 0], [4, 1]]), {"step": "map_box", "low": [0, -1], "high": [4, 1]})
    assert spec == BoxSpec((2,), (0.0, -1.0), (4.0, 1.0))
    assert given.tolist() == [[0, 0], [1, 3]]


@pytest.mark.row("D118")
def test_some_discrete_actions(acted):
    partial = {"step": "map_discrete", "actions": [0, 2, 3]}
    assert acted(DiscreteSpec(4), np.int32([1]), partial)[0] == DiscreteSpec(3)
    assert all_of(acted, DiscreteSpec(4), partial).tolist() == [0, 2, 3]
    # Listed in the environment's numbers, on the way counted from 0.
    assert all_of(acted, DiscreteSpec(4, start=10), {"step": "map_discrete", "actions": [13, 10]}).tolist() == [3, 0]
    switches = all_of(acted, MultiBinarySpec((2,)), {"step": "map_discrete", "actions": [[1, 1], [0, 1]]})
    assert switches.tolist() == [[1, 1], [0, 1]]


@pytest.mark.row("D118")
def test_all_discrete_actions(acted):
    full = {"step": "map_discrete"}
    assert all_of(acted, DiscreteSpec(3), full).tolist() == [0, 1, 2]
    assert all_of(acted, MultiBinarySpec((2, 1)), full).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    choices = MultiDiscreteSpec((2, 3), (0, 5))
    assert all_of(acted, choices, full).tolist() == [[x, y] for x in range(2) for y in range(3)]
    listed = all_of(acted, choices, {"step": "map_discrete", "actions": [[1, 7]]})
    assert listed.tolist() == [[1, 2]]
    assert listed.dtype == np.int32


def test_the_way_back_is_the_other_way_round(acted, box):
    steps = [{"step": "mask_box", "low": 0, "high": 4}, {"step": "map_box"}, {"step": "discretize_box", "bins": 3}]
    assert all_of(acted, box(-10.0, 10.0), *steps).tolist() == [[0], [2], [4]]


@pytest.mark.parametrize(
    ("spec", "step", "why"),
    [
        (DiscreteSpec(2), {"step": "map_box"}, "action 'action', discrete: it is no box"),
        (BoxSpec((1,), (0.0,), (1.0,)), {"step": "map_discrete"}, "it is a box; discretize_box makes choices of it"),
        (BoxSpec((1,), (0.0,), (None,)), {"step": "map_box"}, "its numbers have no bounds; put mask_box before it"),
        (
            BoxSpec((1,), (0.0,), (1.0,)),
            {"step": "discretize_box", "bins": [2, 2]},
            "bins has 2 numbers, the box has 1",
        ),
        (BoxSpec((9,), (0.0,) * 9, (1.0,) * 9), {"step": "discretize_box", "bins": 9}, "combinations are 387420489"),
        (
            BoxSpec((1,), (0.0,), (1.0,)),
            {"step": "mask_box", "low": -1, "high": 1},
            r"\[-1, 1\] is not inside its bounds \[0.0, 1.0\]",
        ),
        (BoxSpec((1,), (0.0,), (1.0,)), {"step": "mask_box", "low": 1, "high": 1}, "low: 1 is not below high: 1"),
        (
            BoxSpec((1,), (0.0,), (1.0,)),
            {"step": "map_box", "low": 0.7, "high": 0.70000001},
            "low: 0.7 is not below high: 0.7",
        ),
        (BoxSpec((1,), (0.0,), (1.0,)), {"step": "map_box", "high": 1e300}, "is more than float32 can hold"),
        (
            MultiDiscreteSpec((1,) * 64 + (2,), (0,) * 65),
            {"step": "map_discrete"},
            "it has 65 choices at once; 64 is the most; list its actions",
        ),
        (DiscreteSpec(2), {"step": "map_discrete", "actions": [0, 2]}, "2 is none of its actions"),
        (DiscreteSpec(2, start=5), {"step": "map_discrete", "actions": [0]}, "0 is none of its actions"),
        (MultiBinarySpec((2,)), {"step": "map_discrete", "actions": [[0, 2]]}, r"\[0, 2\] is none of its actions"),
        (DiscreteSpec(2), {"step": "map_discrete", "of": "x"}, "there is no action 'x'; there is action"),
    ],
)
def test_what_does_not_fit_is_refused(pipeline, spec, step, why):
    with pytest.raises(ConfigError, match=why):
        pipeline(ArraySpec((1,), "float32"), step, actions=spec)


@pytest.mark.parametrize(
    ("action", "step", "mask", "allowed"),
    [
        (MultiDiscreteSpec((2, 3), (0, 5)), {}, [[1, 0, 1, 0, 1], [0, 0, 1, 1, 1]], [[1, 0, 1, 0, 0, 0], [0] * 6]),
        (MultiDiscreteSpec((2, 3), (0, 5)), {"actions": [[1, 5], [0, 7]]}, [[1, 0, 1, 0, 1]], [[0, 1]]),
        (MultiBinarySpec((2,)), {}, [[1, 0], [0, 0], [1, 1]], [[1, 0, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]),
        (DiscreteSpec(3, start=4), {"actions": [6, 4]}, [[1, 1, 0]], [[0, 1]]),
    ],
)
@pytest.mark.parametrize("name", ["action_mask", "legal"])
def test_the_mask_of_a_mapped_action_is_that_of_its_combinations(pipeline, action, step, mask, allowed, name):
    array = np.array(mask, np.int8)
    named = {} if name == "action_mask" else {"action_mask": name}
    observations = {name: ArraySpec(array.shape[1:], "int8", 0.0, 1.0), "x": ArraySpec((1,), "float32")}
    made = pipeline(observations, {"step": "map_discrete", **step, **named}, actions=action)
    expected = np.array(allowed, np.int8)
    assert made.spec.observations[name] == ArraySpec(expected.shape[1:], "int8", 0.0, 1.0)
    shown = made.observations({name: array, "x": np.zeros((len(array), 1), np.float32)}, np.ones(len(array), np.bool_))
    np.testing.assert_array_equal(shown[name], expected, strict=True)
    # Any choice that is allowed is allowed by the environment's own mask.
    for row, choice in zip(*np.nonzero(expected), strict=True):
        (given,) = made.actions({"action": np.array([choice], np.int32)})["action"].reshape(1, -1)
        if isinstance(action, MultiBinarySpec):
            assert (array[row][given == 1] != 0).all()
        else:
            sizes = action.choices if isinstance(action, MultiDiscreteSpec) else (action.n,)
            assert array[row][given + np.cumsum([0, *sizes[:-1]])].all()


def test_a_mask_that_does_not_fit_is_refused_and_one_that_is_not_named_is_left_alone(pipeline):
    observations = {"legal": ArraySpec((4,), "int8", 0.0, 1.0)}
    action = MultiDiscreteSpec((2, 3), (0, 0))
    assert pipeline(observations, {"step": "map_discrete"}, actions=action).spec.observations == observations
    with pytest.raises(
        ConfigError, match=r"\[0\] \(map_discrete\) does not fit its mask: .* must be \[5\], one for each"
    ):
        pipeline(observations, {"step": "map_discrete", "action_mask": "legal"}, actions=action)
