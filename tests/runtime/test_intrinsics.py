"""Operations on arrays against NumPy, for words of every width."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from jitted import jitted
from numba import njit
from numba.core import types

from dmlcpu.runtime import intrinsics

WIDTHS = ["uint8", "uint16", "uint32", "uint64"]
line_of, as_words, either = jitted(intrinsics.line_of), jitted(intrinsics.as_words), jitted(intrinsics.either)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_a_line_is_a_cache_line_or_16(dtype):
    assert line_of(np.zeros(0, dtype)) == max(16, 64 // np.dtype(dtype).itemsize)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_as_words(dtype):
    cells = np.arange(6, dtype=np.int64) << 33
    words = as_words(cells, 2, np.zeros(0, dtype))
    assert words.dtype == dtype
    assert words.tobytes() == cells[2:].tobytes()
    words[0] = 7
    assert cells[2] & 0xFF == 7


def test_either_is_flat_and_of_the_size_of_the_chosen_array():
    one, other = np.arange(10), np.arange(100, 106).reshape(2, 3)
    assert either(True, one, 7, other).tolist() == [7, 8, 9]
    assert either(False, one, 7, other).tolist() == other.reshape(-1).tolist()


@intrinsics.emitted
def add_turns(builder, numbers, count):
    with intrinsics.short_loop(builder, count) as index:
        place = numbers.at(index)
        builder.store(builder.add(builder.load(place), index), place)


class Numbered(NamedTuple):
    numbers: Any
    factor: Any


@intrinsics.emitted
def add_products(builder, places, numbered) -> types.intp:
    """Add factor * number to each place; return the number of places."""
    with intrinsics.short_loop(builder, places.count) as i:
        place, number = places.at(builder, i), builder.load(numbered.numbers.at(i))
        product = builder.fmul(number, numbered.factor)
        builder.store(builder.fadd(builder.load(place), product), place)
    return places.count


@pytest.mark.parametrize("step", [3, -2, 0])
def test_an_intrinsic_takes_tuples_of_arrays_and_numbers(step):
    """Numbers keep their types; a literal is one, too."""
    x, numbers = np.zeros((4, 5), np.float32), np.arange(1, 4, dtype=np.float32)

    @njit
    def add(x, numbers, step, factor):
        return add_products(intrinsics.Strided(x, 8, step, 3), Numbered(numbers, factor))

    expected = x.ravel().copy()
    np.add.at(expected, 8 + step * np.arange(3), 2.5 * numbers)
    assert add(x, numbers, step, np.float32(2.5)) == 3
    assert x.ravel().tolist() == expected.tolist()


mark_turns, prefetch_rows = jitted(add_turns), jitted(intrinsics.prefetch_rows)


@pytest.mark.parametrize("count", [-1, 0, 1, 5])
def test_short_loop_has_as_many_turns_as_it_is_told(count):
    turns = np.full(7, 100)
    mark_turns(turns, count)
    expected = [100 + i if i < count else 100 for i in range(7)]
    assert turns.tolist() == expected


def test_prefetches_change_nothing():
    array = np.arange(20, dtype=np.int32)
    prefetch_rows(intrinsics.Strided(array, 3, 1_000, 4))  # beyond the array it does no harm
    assert array.tolist() == list(range(20))
