"""Words of any array, and memory on the stack that is free again when a function returns."""

import numpy as np
from numba import njit

from dmlcpu.interop.numba.memory import stack_of, words_of
from dmlcpu.runtime.intrinsics import address_of

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


@njit
def words(x):
    return words_of(x, np.uint16).copy()


def test_words_of_any_contiguous_array():
    for x in (np.arange(6.0).reshape(2, 3), np.array(3.5), np.array(["ab", "c"]), np.zeros((0, 4), np.int32)):
        x.flags.writeable = False
        assert np.array_equal(words(x), np.frombuffer(x.tobytes(), np.uint16))
