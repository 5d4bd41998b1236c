import numpy as np
import pytest
from jitted import jitted

from dmlcpu.kernels.measure import memory
from dmlcpu.runtime.memory import aligned_empty
from dmlcpu.runtime.records import LINE_CELLS

BLOCK = memory.READ_CELLS


@pytest.mark.parametrize("place", range(0, BLOCK, LINE_CELLS))
def test_every_cache_line_of_a_range_is_read(place):
    """Of a line, the bits of the first element are found."""
    bits_of = jitted(memory.bits_of)
    x = np.zeros(6 * BLOCK, np.int64)
    for block in range(6):
        x[block * BLOCK + place] = 1 << block
    assert bits_of(x, BLOCK, 4 * BLOCK) == 0b011110


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_the_parts_read_all(parts):
    x = np.zeros(7 * BLOCK, np.int64)
    x[::BLOCK] = 1 << np.arange(7)
    found = np.zeros(parts * LINE_CELLS, np.int64)
    memory.read(parts, x, found)
    assert np.bitwise_or.reduce(found) == 0b1111111
    assert found.sum() == 0b1111111  # each once


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_the_parts_copy_all(parts):
    x, y = aligned_empty(7 * BLOCK, np.int64), aligned_empty(7 * BLOCK, np.int64)
    x[...], y[...] = np.arange(x.size), -1
    memory.copy(parts, x, y)
    assert (x == y).all()
