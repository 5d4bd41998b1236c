"""Memory on the stack that is free again when a function returns, and records in it."""

import numpy as np
import pytest
from jitted import jitted
from numba import njit

from dmlcpu.interop.numba import quantized_matmul, scatter_nd, top_k
from dmlcpu.interop.numba.calls import stack_of, tuple_of, write_record
from dmlcpu.kernels.gemm.cut import Cut
from dmlcpu.kernels.top_k.keys import KeyMap
from dmlcpu.runtime.intrinsics import address_of
from dmlcpu.runtime.records import cells_of, record

on_stack = stack_of(1 << 15)


@njit
def first_address(number):
    cells = on_stack()
    cells[0], cells[-1] = number, number
    return address_of(cells, 0) + 0 * cells[-1]


@njit
def in_a_loop(times):
    least = most = first_address(0)
    for number in range(times):
        place = first_address(number)
        least, most = min(least, place), max(most, place)
    return least % 64, most - least


def test_memory_on_the_stack_starts_a_cache_line_and_does_not_pile_up():
    assert in_a_loop(1000) == (0, 0)  # or it would be 256 MB


TENSOR = record(start=np.int64, strides=(np.int64, 3))
WORK = record(n=np.int64, mask=np.uint64, x=TENSOR, y=TENSOR)
Work, Tensor = tuple_of(WORK), tuple_of(TENSOR)


@njit
def write(works, x):
    y = Tensor(strides=(2, 3, 4), start=1)
    write_record(works, WORK, Work(n=works.size == 10, mask=np.uint64(2**64 - 1), x=x, y=y))


def test_a_record_is_written_by_name():
    works = np.full(10, 9)
    write(works, (-5, (6,)))
    assert works.tolist() == [1, -1, -5, 6, 9, 9, 1, 2, 3, 4]


Other = tuple_of(record(strides=np.int64, start=np.int64))


@pytest.mark.parametrize("x", [(1,), (1, (2,), 3), Other((2,), 1)], ids=["too few", "too many", "others"])
def test_a_tuple_without_the_fields_of_a_record_is_refused(x):
    with pytest.raises(TypeError, match="a record takes start, strides, not "):
        write(np.zeros(10, np.int64), x)


def test_a_record_without_a_field_is_refused():
    @njit
    def forgetful(works):
        write_record(works, TENSOR, Tensor(start=1))

    with pytest.raises(TypeError, match="missing a required argument: 'strides'"):
        forgetful(np.zeros(4, np.int64))


def first_cells(dtype, names=(), start=0):
    """Yield the name and the first cell of each field that is no record."""
    for name, (field, offset, *_) in dtype.fields.items():
        if field.names:
            yield from first_cells(field, (*names, name), start + offset)
        else:
            yield ".".join((*names, name)), (start + offset) // 8


# What writes the work records of compiled callers, and its arguments.
FILLED = [
    (top_k, ((2, 9, 3), 4, KeyMap(*np.arange(4, dtype=np.uint64)), (1, 2), (10, 20))),
    (quantized_matmul, ((2, 3, 4), (1, 2, 3, 4, 5, 6), (0, 128, -128, 127), Cut(1, 1, True, 1, 100))),
    (scatter_nd, (np.array([5, 4, 1]), 3, 1, (1, 0, 1, 0, 1, 1))),
]


@pytest.mark.parametrize(("module", "arguments"), FILLED, ids=["top_k", "quantized_matmul", "scatter_nd"])
def test_no_field_of_a_work_record_is_left_as_it_was(module, arguments):
    fill, (one, other) = jitted(module.fill), np.array([[1 << 40], [1 << 41]]).repeat(cells_of(module.WORK), 1)
    for works in (one, other):
        fill(works, *arguments)
    assert [name for name, cell in first_cells(module.WORK) if one[cell] != other[cell]] == []
