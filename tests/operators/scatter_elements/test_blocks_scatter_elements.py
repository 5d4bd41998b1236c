"""scatter_elements in blocks."""

import numpy as np
import pytest
from sources import Unreadable, Watched, assert_refused_alike, in_blocks

from dmlcpu.common.regions import Tensor
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError, UnsupportedError
from dmlcpu.operators.scatter_elements import blocks


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("memory", [1 << 13, 1 << 20])
def test_blocks_of_whole_lines_and_less_indices_than_x_has(axis, memory, small_blocks):
    rng = np.random.default_rng(1)
    x, sizes = rng.random((8, 9, 10), np.float32), [5, 6, 7]
    sizes[axis] = 11
    indices, updates = rng.integers(-8, 8, sizes), rng.random(sizes, np.float32)
    sources = {"x": Watched(x), "indices": Watched(indices), "updates": Watched(updates)}
    found = in_blocks("scatter_elements", {**sources, "axis": axis, "reduction": "add"}, memory)
    expected = x.copy()
    target = np.ix_(*(range(n) for n in sizes))
    places = [np.broadcast_to(each, sizes) for each in target]
    places[axis] = indices
    np.add.at(expected, tuple(places), updates)
    assert found[0].tobytes() == expected.tobytes()
    assert sources["x"].reads > (1 if memory < 1 << 20 else 0)


def test_shapes_and_types_are_told_without_reading():
    x, updates = Unreadable(np.zeros((5, 6), np.float16)), Unreadable(np.zeros((2, 6), np.float16))
    told = blocks.estimate(x=x, indices=np.zeros((2, 6), int), updates=updates, axis=0)
    assert told.results == {"y": Tensor((5, 6), np.dtype("float16"))}
    assert told.memory >= 2 * 60 + 96 + 24
    assert told.kernel == "scatter_lines"


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"indices": np.array([[0, 5, 0]])}, IndexOutOfRangeError, r"indices\[0, 1\] is 5; allowed: -5 to 4 \(axis 0"),
        ({"indices": np.array([[0, 0, -6]], np.int8)}, IndexOutOfRangeError, r"indices\[0, 2\] is -6"),
        ({"indices": np.array([[0.0, 1, 2]])}, UnsupportedError, "indices.dtype"),
        ({"updates": np.zeros((1, 3))}, BindingError, "updates.dtype"),
        ({"updates": np.zeros((2, 3), np.float32)}, BindingError, "updates.shape"),
        ({"axis": 2}, DmlError, "axis is 2"),
        ({"mode": "wrap"}, DmlError, "mode is 'wrap'"),
        ({"x": np.zeros((0, 3), np.float32), "mode": "clip"}, IndexOutOfRangeError, "clipped into an empty dimension"),
    ],
)
def test_what_the_function_refuses_is_refused(changed, error, message, small_blocks):
    x, updates = np.zeros((5, 3), np.float32), np.ones((1, 3), np.float32)
    given_as = {"x": x, "indices": np.array([[0, 4, 2]]), "updates": updates, "axis": 0, **changed}
    assert_refused_alike("scatter_elements", given_as, error, message)


def test_the_first_bad_index_of_many_is_named(small_blocks):
    indices = np.zeros((40, 50), np.int32)
    indices[30, 7], indices[31, 0] = 5, 9
    arguments = {"x": np.zeros((5, 50)), "indices": Watched(indices), "updates": np.zeros((40, 50)), "axis": 0}
    with pytest.raises(IndexOutOfRangeError, match=r"indices\[30, 7\] is 5"):
        blocks.run(arguments, {}, 1 << 16, lambda: False)
