import numpy as np
import pytest
from numba import njit

from dmlcpu.kernels.brief import make_brief, section
from dmlcpu.kernels.gemm import work as product_brief
from dmlcpu.kernels.grid import flatten
from dmlcpu.kernels.top_k import brief as top_k_brief


@njit
def unpack(x, brief):
    return top_k_brief.unpack(x, brief)


@njit
def scratch_of(part, parts, x, brief, scratch):
    return top_k_brief.scratch_of(part, parts, x, brief, scratch)


def test_sections_come_out_as_they_went_in():
    sections = [7, -1], [], np.arange(6).reshape(2, 3), [2**62]
    brief = make_brief(*sections)
    assert brief.dtype == np.int64
    assert [section.py_func(brief, i).tolist() for i in range(4)] == [[7, -1], [], [0, 1, 2, 3, 4, 5], [2**62]]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_what_top_k_is_told(dtype):
    codes = np.array([1, 2, 3, 4, np.iinfo(dtype).max], dtype)
    grid = np.arange(8).reshape(4, 2)
    brief = top_k_brief.make_brief((*range(10), 5, 3), codes, grid)
    x = np.zeros(1, dtype)
    scratch = np.zeros(100, np.int64)
    *numbers, found_grid, found_codes = unpack(x, brief)
    assert numbers == list(range(10))
    assert found_grid.tolist() == flatten(grid).tolist()
    assert list(found_codes) == codes.tolist()
    shares = [scratch_of(part, 2, x, brief, scratch) for part in range(2)]
    for number, (keys, positions) in enumerate(shares, start=1):
        assert (keys.shape, keys.dtype) == ((5,), dtype)
        assert (positions.shape, positions.dtype) == ((3,), np.int64)
        keys[...] = number
        positions[...] = number
    assert [(keys.tolist(), positions.tolist()) for keys, positions in shares] == [
        ([1] * 5, [1] * 3),
        ([2] * 5, [2] * 3),
    ]


@njit
def unpack_product(brief):
    return product_brief.unpack(brief)


def test_what_quantized_matmul_is_told():
    numbers = product_brief.Numbers(*range(100, 100 + len(product_brief.Numbers._fields)))
    brief = product_brief.make_brief(numbers, np.arange(20).reshape(10, 2))
    assert unpack_product(brief) == numbers
