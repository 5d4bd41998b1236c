"""Copies of ranges of elements against NumPy."""

import numpy as np
import pytest
from jitted import jitted
from numba import njit

from dmlcpu.kernels.scatter_nd.rows import copy_range as copy_range_intrinsic, fence, stream
from dmlcpu.runtime.memory import aligned_empty

copy_range = jitted(copy_range_intrinsic)


@njit
def stream_lines(source, first, target, place, count):
    stream(source, first, target, place, count)
    fence()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float64])
def test_copy_range(dtype):
    source, target = np.arange(1, 101).astype(dtype), np.zeros(100, dtype)
    copy_range(source, target, 7, 7)
    assert not target.any()
    copy_range(source, target, 3, 90)
    assert target.tolist() == [0] * 3 + source[3:90].tolist() + [0] * 10


def test_stream_copies_whole_lines():
    source, target = aligned_empty(64, np.int64), aligned_empty(64, np.int64)
    source[:] = np.arange(64)
    target[:] = -1
    stream_lines(source, 8, target, 32, 16)
    assert target.tolist() == [-1] * 32 + list(range(8, 24)) + [-1] * 16
    stream_lines(source, 0, target, 0, 0)
    assert target[0] == -1
