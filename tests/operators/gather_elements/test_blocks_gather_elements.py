"""gather_elements in blocks."""

import numpy as np
import pytest
from sources import Watched, assert_refused_alike, in_blocks

from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError, UnsupportedError


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("memory", [1 << 13, 1 << 20])
def test_blocks_of_whole_lines_and_less_indices_than_x_has(axis, memory, small_blocks):
    rng = np.random.default_rng(1)
    x, sizes = rng.random((8, 9, 10), np.float32), [5, 6, 7]
    sizes[axis] = 31
    indices = rng.integers(-8, 8, sizes)
    found = in_blocks("gather_elements", {"x": Watched(x), "indices": Watched(indices), "axis": axis}, memory)
    part = x[tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(sizes))]
    assert found[0].tobytes() == np.take_along_axis(part, indices, axis).tobytes()


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"indices": np.array([[0, 5, 0]])}, IndexOutOfRangeError, r"indices\[0, 1\] is 5; allowed: -5 to 4 \(axis 0"),
        ({"indices": np.array([[0.0, 1, 2]])}, UnsupportedError, "indices.dtype"),
        ({"indices": np.zeros((1, 4), int)}, BindingError, "indices.shape"),
        ({"axis": 2}, DmlError, "axis is 2"),
        ({"mode": "drop"}, DmlError, "mode is 'drop'"),
        ({"x": np.zeros((0, 3), np.float32), "mode": "clip"}, IndexOutOfRangeError, "clipped into an empty dimension"),
    ],
)
def test_what_the_function_refuses_is_refused(changed, error, message, small_blocks):
    given_as = {"x": np.zeros((5, 3), np.float32), "indices": np.array([[0, 4, 2]]), "axis": 0, **changed}
    assert_refused_alike("gather_elements", given_as, error, message)
