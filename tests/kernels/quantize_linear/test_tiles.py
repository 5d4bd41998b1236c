import ml_dtypes
import numpy as np
import pytest
from jitted import jitted

from dmlcpu.kernels.quantize_linear import tiles
from dmlcpu.kernels.quantize_linear.work import BFLOAT16, FLOAT16, FLOAT32, INTEGER, NIBBLE

gather, convert, scatter = jitted(tiles.gather), jitted(tiles.convert), jitted(tiles.scatter)
round_to_16_bits = jitted(tiles.round_to_16_bits)
WORDS = np.arange(100, dtype=np.uint32) + 1000


@pytest.mark.parametrize("step", [1, 2, -3, 0])
@pytest.mark.parametrize("block", [1, 2, 7, 100])
@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 9), (5, 9), (13, 1)])
def test_gather(step, block, first, count):
    start = 60 if step < 0 else 3
    line = np.zeros(count + 1, np.uint32)
    gather(WORDS, start, step, block, first, count, INTEGER, line)
    assert line.tolist() == [*WORDS[[start + i // block * step for i in range(first, first + count)]], 0]


@pytest.mark.parametrize("step", [1, 2, -3, 0])
@pytest.mark.parametrize("block", [1, 3])
def test_gather_of_two_elements_a_byte(step, block):
    data = (np.arange(40) * 37 % 256).astype(np.uint8)
    bits = np.stack([data & 15, data >> 4], 1).reshape(-1)
    line = np.zeros(12, np.uint8)
    gather(data, 41, step, block, 2, 12, NIBBLE, line)
    assert line.tolist() == bits[[41 + i // block * step for i in range(2, 14)]].tolist()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, ml_dtypes.int4, ml_dtypes.uint4])
def test_integers_become_floats(dtype):
    row = np.dtype(dtype)
    width, bits = row.itemsize, 4 if row.kind == "V" else 8 * row.itemsize
    values = np.arange(-8, 16).astype(np.int8).astype(dtype)
    words, floats = values.view(f"u{width}"), np.zeros(values.size, np.float32)
    flip = 1 << bits - 1 if row.name.startswith("int") else 0
    convert(words, words.size, INTEGER, (1 << bits) - 1, flip, floats)
    assert floats.tolist() == values.astype(np.float32).tolist()


def test_upper_bits_of_four_do_not_count():
    floats = np.zeros(4, np.float32)
    convert(np.array([0x37, 0xF8, 0x0F, 0xA0], np.uint8), 4, NIBBLE, 15, 8, floats)
    assert floats.tolist() == [7, -8, -1, 0]


@pytest.mark.parametrize(("kind", "dtype"), [(FLOAT16, np.float16), (BFLOAT16, ml_dtypes.bfloat16)])
def test_every_float_of_16_bits_goes_there_and_back(kind, dtype):
    words, floats, back = (
        np.arange(1 << 16).astype(np.uint16),
        np.zeros(1 << 16, np.float32),
        np.zeros(1 << 16, np.uint16),
    )
    convert(words, words.size, kind, 0, 0, floats)
    with np.errstate(invalid="ignore"):
        wanted = words.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(floats, wanted)
    round_to_16_bits(floats, words.size, kind, back)
    is_number = ~np.isnan(wanted)
    assert (back[is_number] == words[is_number]).all()
    assert len(set(back[~is_number].tolist())) == 1


def test_float32_keep_their_bits():
    words, floats = np.array([0x7F800001, 0x80000000, 1], np.uint32), np.zeros(3, np.float32)
    convert(words, 3, FLOAT32, 0, 0, floats)
    assert floats.view(np.uint32).tolist() == words.tolist()


@pytest.mark.parametrize("step", [1, 2, -3])
def test_scatter(step):
    line, words = np.array([7, 8, 9], np.uint8), np.zeros(20, np.uint8)
    scatter(line, 3, words, 10, step, INTEGER)
    assert words[[10, 10 + step, 10 + 2 * step]].tolist() == [7, 8, 9]
    assert words.sum() == 24


@pytest.mark.parametrize("step", [1, 2, -3])
def test_scatter_of_two_elements_a_byte_keeps_the_others(step):
    line, words = np.array([1, 2, 3], np.uint8), np.full(10, 0xFF, np.uint8)
    scatter(line, 3, words, 11, step, NIBBLE)
    bits = np.stack([words & 15, words >> 4], 1).reshape(-1)
    assert bits[[11, 11 + step, 11 + 2 * step]].tolist() == [1, 2, 3]
    assert (bits == 15).sum() == 17
