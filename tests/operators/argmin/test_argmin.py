import numpy as np
import pytest

import dmlcpu

A = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)


@pytest.mark.parametrize(("axis", "expected"), [(0, [[0, 1, 2]]), (1, [[0], [1], [0]]), ((0, 1), [[4]]), (None, [[4]])])
def test_by_hand(axis, expected):
    assert dmlcpu.argmin(A, axis=axis, keepdims=True).tolist() == expected
    assert dmlcpu.argmin(A, axis=axis).ravel().tolist() == np.ravel(expected).tolist()


@pytest.mark.parametrize(
    ("x", "first", "last"),
    [([1, 2, 3, 2, 1], 0, 4), ([True, False, False], 1, 2), ([127, -128, -1], 1, 1), ([0, 2**64 - 1], 0, 0)],
)
def test_ties(x, first, last):
    assert dmlcpu.argmin(x) == first
    assert dmlcpu.argmin(x, select_last=True) == last
