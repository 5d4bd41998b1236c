"""Each machine operation against NumPy, for words of every width."""

import numpy as np
import pytest
from numba import njit

from dmlcpu.runtime import intrinsics

WIDTHS = ["uint8", "uint16", "uint32", "uint64"]


def random_words(dtype, size, seed=0):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, size, dtype, endpoint=True)


@njit
def lanes_of(words):
    return intrinsics.line_of(words)


@njit
def reach(words, index, least):
    return intrinsics.reach(words, index, least)


@njit
def exceed(words, index, others, place):
    return intrinsics.exceed(words, index, others, place)


@njit
def greatest_line(words, first, step, end, target, place):
    intrinsics.greatest_line(words, first, step, end, target, place)


@njit
def insert_after_equals(words, new, position, best, positions, first, step, count):
    intrinsics.insert_after_equals(words, new, position, best, positions, first, step, count)


@njit
def insert(words, new, position, best, positions, first, step, count):
    intrinsics.insert(words, new, position, best, positions, first, step, count)


@njit
def as_words(cells, start, like):
    return intrinsics.as_words(cells, start, like)


@njit
def load_word(array, index):
    return intrinsics.load_word(array, index)


@njit
def copy_range(source, target, first, last):
    intrinsics.copy_range(source, target, first, last)


@njit
def fetch_add(cells, index):
    return intrinsics.fetch_add(cells, index)


@njit
def bits(word):
    return intrinsics.lowest_bit(word), intrinsics.count_bits(word)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_a_line_is_a_cache_line_or_16(dtype):
    assert lanes_of(np.zeros(0, dtype)) == max(16, 64 // np.dtype(dtype).itemsize)


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


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("lines", [1, 2, 5])
def test_greatest_line(dtype, lines):
    lanes = lanes_of(np.zeros(0, dtype))
    words, target = random_words(dtype, 7 + lines * 3 * lanes), np.zeros(lanes + 2, dtype)
    greatest_line(words, 7, 3 * lanes, words.size - 2 * lanes, target, 1)
    expected = words[7:].reshape(lines, 3, lanes)[:, 0].max(axis=0)
    assert target.tolist() == [0, *expected.tolist(), 0]


@pytest.mark.parametrize("dtype", WIDTHS)
def test_insert_keeps_lists_in_order_and_the_newcomer_before_its_equals(dtype):
    lanes = lanes_of(np.zeros(0, dtype))
    words = random_words(dtype, (30, lanes)) % 5  # many ties
    best, positions = np.zeros((4, lanes), dtype), np.zeros((4, lanes), np.uint16)
    for i in range(29, -1, -1):
        insert(words.reshape(-1), i * lanes, i, best.reshape(-1), positions.reshape(-1), 0, lanes, 4)
    order = np.argsort(words[::-1], axis=0, kind="stable")[::-1][:4]  # from the last, the greatest, the first of equals
    assert (positions == 29 - order).all()
    assert (best == np.take_along_axis(words, 29 - order, axis=0)).all()


@pytest.mark.parametrize("dtype", WIDTHS)
def test_insert_after_equals_keeps_lists_in_order(dtype):
    lanes = lanes_of(np.zeros(0, dtype))
    words = random_words(dtype, (30, lanes)) % 5 + 1
    best, positions = np.zeros((4, lanes), dtype), np.zeros((4, lanes), np.uint16)
    for i in range(30):
        insert_after_equals(words.reshape(-1), i * lanes, i, best.reshape(-1), positions.reshape(-1), 0, lanes, 4)
    order = 29 - np.argsort(words[::-1], axis=0, kind="stable")[::-1][:4]
    assert (positions == order).all()
    assert (best == np.take_along_axis(words, order, axis=0)).all()


@pytest.mark.parametrize("dtype", WIDTHS)
def test_as_words(dtype):
    cells = np.arange(6, dtype=np.int64) << 33
    words = as_words(cells, 2, np.zeros(0, dtype))
    assert words.dtype == dtype
    assert words.tobytes() == cells[2:].tobytes()
    words[0] = 7
    assert cells[2] & 0xFF == 7


@pytest.mark.parametrize("word", [1, 0x8000_0000_0000_0000, 0xFFFF_FFFF_FFFF_FFFF, 0b10100])
def test_bits(word):
    assert bits(np.uint64(word)) == ((word & -word).bit_length() - 1, word.bit_count())


def test_load_word_needs_no_alignment():
    array = np.arange(1, 9, dtype=np.uint8)
    assert [load_word(array, i) for i in (0, 1, 4)] == [0x04030201, 0x05040302, 0x08070605]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float64])
def test_copy_range(dtype):
    source, target = np.arange(1, 101).astype(dtype), np.zeros(100, dtype)
    copy_range(source, target, 7, 7)
    assert not target.any()
    copy_range(source, target, 3, 90)
    assert target.tolist() == [0] * 3 + source[3:90].tolist() + [0] * 10


def test_take_number():
    cells = np.array([3, 8])
    assert [fetch_add(cells, 1), fetch_add(cells, 1)] == [8, 9]
    assert cells.tolist() == [3, 10]


@njit
def sum_of_either(condition, one, first, other):
    chosen = intrinsics.either(condition, one, first, other)
    total = 0
    for i in range(chosen.size):
        total += chosen[i]
    return total, chosen.size


def test_either_array_is_flat_and_of_its_own_size():
    one, other = np.arange(10), np.arange(100, 106).reshape(2, 3)
    assert sum_of_either(True, one, 7, other) == (7 + 8 + 9, 3)
    assert sum_of_either(False, one, 7, other) == (other.sum(), 6)
