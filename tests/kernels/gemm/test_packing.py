"""The vector operations that pack, against NumPy."""

import numpy as np
import pytest
from jitted import jitted

from dmlcpu.kernels.gemm.microkernels import packing
from dmlcpu.kernels.gemm.microkernels.microkernel import NR

RNG = np.random.default_rng(3)


pack_groups = jitted(packing.pack_groups)
pack_words = jitted(packing.pack_words)
sum_of_words = jitted(packing.sum_of_words)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_pack_groups(dtype, count):
    b = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (4 * count + 1, 50)).astype(dtype)
    words, sums = np.zeros(2 + count * NR, np.uint32), np.arange(1 + NR)
    flip = 0 if dtype == np.int8 else 0x80
    pack_groups(b.view(np.uint8).reshape(-1), 7, 50, count, flip, words, 2, sums, 1)
    signed = b[: 4 * count, 7 : 7 + NR].astype(np.int64) - (0 if dtype == np.int8 else 128)
    packed = words[2:].view(np.int8).reshape(count, NR, 4)
    np.testing.assert_array_equal(packed, signed.reshape(count, 4, NR).swapaxes(1, 2))
    assert sums.tolist() == [0, *(np.arange(1, 1 + NR) + signed.sum(axis=0)).tolist()]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_pack_words_and_their_sum(dtype):
    a = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, 3 + 8 * packing.STEP).astype(dtype)
    words = np.zeros(2 + 2 * packing.STEP, np.uint32)
    flip = 0x80 if dtype == np.int8 else 0
    pack_words(a.view(np.uint8), 3, 2, flip, words, 2)
    unsigned = a[3:].astype(np.int64) + (128 if dtype == np.int8 else 0)
    assert words[2:].view(np.uint8).tolist() == unsigned.tolist()
    assert sum_of_words(words, 2, 2) == unsigned.sum()
    assert sum_of_words(words, 2, 0) == 0


def test_load_word_needs_no_alignment():
    load_word = jitted(packing.load_word)
    array = np.arange(1, 9, dtype=np.uint8)
    assert [load_word(array, i) for i in (0, 1, 4)] == [0x04030201, 0x05040302, 0x08070605]
