import os
from types import SimpleNamespace

import numpy as np
import pytest

from distrl.errors import DistrlError
from distrl.inference.layout import MOST_BYTES, Layout, make_memory, map_memory, write
from distrl.types import ArraySpec

DESCRIPTION = SimpleNamespace(
    inputs={"picture": ArraySpec((3, 2), "uint8"), "speed": ArraySpec((), "float64")},
    recurrent_state={"h": ArraySpec((5,), "float32")},
    outputs={"value": (), "policy/action": (4,)},
)


def test_both_sides_see_the_same_arrays_each_at_a_place_of_its_own():
    layout = Layout(DESCRIPTION, 3)
    descriptor = make_memory(layout.size)
    ours, theirs = (layout.block(map_memory(descriptor, layout.size)) for _ in range(2))
    os.close(descriptor)
    arrays = [(number, view) for number, view in enumerate(view for group in ours for view in group.values())]
    for number, view in arrays:
        view[...] = number + 1
    shown = {name: (view.shape, view.dtype.name, view.ravel()[-1]) for group in theirs for name, view in group.items()}
    assert shown == {
        "picture": ((3, 3, 2), "uint8", 1),
        "speed": ((3,), "float64", 2),
        "value": ((3,), "float32", 4),
        "policy/action": ((3, 4), "float32", 5),
        "h": ((3, 5), "float32", 6),  # the next state; the state before is 3
    }
    assert (theirs.recurrent_state["h"] == 3).all()
    assert all(view.ctypes.data % 64 == 0 for group in theirs for view in group.values())


def test_only_arrays_that_fit_are_written():
    views = {"x": np.zeros((2, 3), np.float32)}
    write(views, {"x": np.ones((2, 3), np.float32)})
    assert views["x"].sum() == 6
    for odd in (np.ones((1, 3), np.float32), np.ones((2, 3), np.float64)):
        with pytest.raises(DistrlError, match=r"x is .*, not float32 \(2, 3\)"):
            write(views, {"x": odd})
    with pytest.raises(DistrlError, match=r"takes \['x'\], not \['y'\]"):
        write(views, {"y": np.ones((2, 3), np.float32)})


def test_memory_of_another_size_or_without_rows_is_refused():
    descriptor = make_memory(128)
    with pytest.raises(DistrlError, match="has 128 bytes, not 64"):
        map_memory(descriptor, 64)
    with pytest.raises(OSError, match="Operation not permitted"):
        os.ftruncate(descriptor, 64)
    os.close(descriptor)
    for rows in (0, MOST_BYTES):
        with pytest.raises(DistrlError, match=r"not [0-9,]+ rows"):
            Layout(DESCRIPTION, rows)
