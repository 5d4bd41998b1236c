"""Operations on lines of keys against NumPy, for words of every width."""

import numpy as np
import pytest
from jitted import jitted

from dmlcpu.kernels.top_k import lines
from dmlcpu.kernels.top_k.work import Candidates
from dmlcpu.runtime import intrinsics

WIDTHS = ["uint8", "uint16", "uint32", "uint64"]
reach, exceed = jitted(lines.reach), jitted(lines.exceed)
insert, insert_after_equals = jitted(lines.insert), jitted(lines.insert_after_equals)
lowest_bit, count_bits = jitted(intrinsics.lowest_bit), jitted(lines.count_bits)


def random_words(dtype, size, seed=0):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, size, dtype, endpoint=True)


def lanes_of(words):
    return max(16, 64 // words.itemsize)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_reach(dtype):
    words = random_words(dtype, 200)
    lanes = lanes_of(words)
    for least in (words[13], 0, np.iinfo(dtype).max):
        expected = sum(1 << i for i in range(lanes) if words[5 + i] >= least)
        assert reach(words, 5, np.dtype(dtype).type(least)) == expected


@pytest.mark.parametrize("dtype", WIDTHS)
def test_exceed(dtype):
    words = random_words(dtype, 200) // 2 + np.dtype(dtype).type(1)
    lanes = lanes_of(words)
    others = words.copy()
    assert exceed(words, 3, others, 3) == 0
    others[3 : 3 + lanes] -= np.arange(lanes, dtype=dtype)[::-1] % 3 == 0
    assert exceed(words, 3, others, 3) == sum(1 << lane for lane in range(lanes - 1, -1, -3))


@pytest.mark.parametrize("operation", [insert, insert_after_equals], ids=["before equals", "after equals"])
@pytest.mark.parametrize("dtype", WIDTHS)
def test_insert_keeps_lists_in_order(dtype, operation):
    """Equal keys are inserted before their equals from the last position on, and after them from the first."""
    lanes = lanes_of(np.zeros(0, dtype))
    words = random_words(dtype, (30, lanes)) % 5 + 1  # many ties
    best, positions = np.zeros((4, lanes), dtype), np.zeros((4, lanes), np.uint16)
    for i in range(30) if operation is insert_after_equals else range(29, -1, -1):
        operation(words.reshape(-1), i * lanes, i, Candidates(best.reshape(-1), positions.reshape(-1)), 0, lanes, 4)
    order = 29 - np.argsort(words[::-1], axis=0, kind="stable")[::-1][:4]  # the greatest, the first of equals
    assert (positions == order).all()
    assert (best == np.take_along_axis(words, order, axis=0)).all()


@pytest.mark.parametrize("word", [1, 0x8000_0000_0000_0000, 0xFFFF_FFFF_FFFF_FFFF, 0b10100])
def test_bits(word):
    assert lowest_bit(np.uint64(word)) == (word & -word).bit_length() - 1
    assert count_bits(np.uint64(word)) == word.bit_count()
