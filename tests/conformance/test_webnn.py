"""WebNN's gatherElements, scatterElements, argMin and argMax in numbers.

The first three gathers and scatters are the examples of its specification.
"""

import numpy as np
import pytest

import dmlcpu
from dmlcpu import reference

ROWS = [[0, 1, 2], [10, 11, 12], [20, 21, 22], [30, 31, 32]]
SQUARES = [[[0, 1], [10, 11]], [[100, 101], [110, 111]], [[200, 201], [210, 211]], [[300, 301], [310, 311]]]

GATHERS = [  # input, axis, indices, output
    (ROWS, 0, [[3, 1, 1], [2, 0, 3]], [[30, 11, 12], [20, 1, 32]]),
    (ROWS, 1, [[2], [1], [0], [2]], [[2], [11], [20], [32]]),
    (SQUARES, 0, [[[0, 2], [1, 3]]], [[[0, 201], [110, 311]]]),
    (ROWS, 0, [[-1, -4, -2], [0, 3, -3]], [[30, 1, 22], [0, 31, 12]]),
    (SQUARES, 2, [[[1, 1, 0]] * 2] * 4, [[[row[1], row[1], row[0]] for row in each] for each in SQUARES]),
    ([7, 8, 9], 0, [2, 0, 2, 1, -3], [9, 7, 9, 8, 7]),
]

SCATTERS = [  # input, axis, indices, updates, output
    (
        ROWS,
        0,
        [[3, 1, 1], [2, 0, 3]],
        [[-1, -2, -3], [-4, -5, -6]],
        [[0, -5, 2], [10, -2, -3], [-4, 21, 22], [-1, 31, -6]],
    ),
    (
        ROWS,
        1,
        [[2], [1], [0], [2]],
        [[-1], [-2], [-3], [-4]],
        [[0, 1, -1], [10, -2, 12], [-3, 21, 22], [30, 31, -4]],
    ),
    (
        SQUARES,
        0,
        [[[0, 2], [1, 3]]],
        [[[-1, -2], [-3, -4]]],
        [[[-1, 1], [10, 11]], [[100, 101], [-3, 111]], [[200, -2], [210, 211]], [[300, 301], [310, -4]]],
    ),
    (ROWS, 0, [[-1, -4, -2]], [[-1, -2, -3]], [[0, -2, 2], [10, 11, 12], [20, 21, -3], [-1, 31, 32]]),
    ([7, 8, 9], 0, [2, 0], [-1, -2], [-2, 8, -1]),
]

# Of shape (2, 2, 3).
DEEP = [[[4, -7, 9], [0, 3, -5]], [[-2, 8, 1], [6, -9, 5]]]
PLACES = [  # axis, argMin, argMax
    (0, [[1, 0, 1], [0, 1, 0]], [[0, 1, 0], [1, 0, 1]]),
    (1, [[1, 0, 1], [0, 1, 0]], [[0, 1, 0], [1, 0, 1]]),
    (2, [[1, 2], [0, 1]], [[2, 1], [1, 0]]),
]

each_type = pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "int8"])
each_index = pytest.mark.parametrize("index_dtype", ["int32", "int64", "uint32"])


def as_indices(indices, index_dtype):
    """Return indices, or skip a test of negative ones."""
    array = np.array(indices)
    if index_dtype == "uint32" and array.min() < 0:
        pytest.skip("uint32 has no negative numbers")
    return array.astype(index_dtype)


@each_index
@each_type
@pytest.mark.parametrize(("x", "axis", "indices", "expected"), GATHERS)
def test_gather_elements(x, axis, indices, expected, dtype, index_dtype):
    given = np.array(x).astype(dtype), as_indices(indices, index_dtype)
    for module in (dmlcpu, reference):
        y = module.gather_elements(*given, axis=axis)
        np.testing.assert_array_equal(y, np.array(expected).astype(dtype), strict=True)


@each_index
@each_type
@pytest.mark.parametrize(("x", "axis", "indices", "updates", "expected"), SCATTERS)
def test_scatter_elements(x, axis, indices, updates, expected, dtype, index_dtype):
    given = np.array(x).astype(dtype), as_indices(indices, index_dtype), np.array(updates, dtype)
    for module in (dmlcpu, reference):
        y = module.scatter_elements(*given, axis=axis)
        np.testing.assert_array_equal(y, np.array(expected).astype(dtype), strict=True)


def test_indices_out_of_range_are_clamped():
    """WebNN leaves it to the implementation, if nothing outside is read or written; these are of mode "clip"."""
    assert dmlcpu.gather_elements(ROWS, [[4, -5, 100]], axis=0, mode="clip").tolist() == [[30, 1, 32]]
    y = dmlcpu.scatter_elements([7, 8, 9], [3, -4], [-1, -2], axis=0, mode="clip")
    assert y.tolist() == [-2, 8, -1]


@each_type
@pytest.mark.parametrize("output_type", ["int32", "int64"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("axis", "least", "greatest"), PLACES)
def test_arg_min_and_max(axis, least, greatest, keep, output_type, dtype):
    for operator, expected in (("argmin", least), ("argmax", greatest)):
        right = np.array(expected, output_type)
        right = np.expand_dims(right, axis) if keep else right
        for module in (dmlcpu, reference):
            y = getattr(module, operator)(np.array(DEEP, dtype), axis=axis, keepdims=keep, index_dtype=output_type)
            np.testing.assert_array_equal(y, right, strict=True)
