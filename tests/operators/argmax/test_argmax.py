import numpy as np
import pytest

import dmlcpu

A = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)


@pytest.mark.parametrize(
    ("axis", "expected"), [(0, [[1, 2, 1]]), (1, [[2], [2], [1]]), ((0, 1), [[7]]), (None, [[7]]), (-2, [[1, 2, 1]])]
)
def test_by_hand(axis, expected):
    assert dmlcpu.argmax(A, axis=axis, keepdims=True).tolist() == expected
    assert dmlcpu.argmax(A, axis=axis).ravel().tolist() == np.ravel(expected).tolist()


@pytest.mark.parametrize(
    ("x", "first", "last"),
    [([3, 2, 1, 2, 3], 0, 4), ([True, False, True], 0, 2), ([-128, 127, -1], 1, 1), ([2**64 - 1, 0], 0, 0)],
)
def test_ties(x, first, last):
    assert dmlcpu.argmax(x) == first
    assert dmlcpu.argmax(x, select_last=True) == last


def test_it_is_the_first_of_top_k():
    x = np.random.default_rng(0).integers(0, 5, (30, 40)).astype(np.float32)
    x[::3, ::7] = np.nan
    np.testing.assert_array_equal(dmlcpu.argmax(x, axis=1, keepdims=True), dmlcpu.top_k(x, 1).indices)
