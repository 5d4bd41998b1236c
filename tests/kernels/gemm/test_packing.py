"""The vector operations that pack, against NumPy."""

import os

import numpy as np
import pytest
from jitted import jitted
from processes import run

import dmlcpu
from dmlcpu.kernels.gemm.microkernels import packing
from dmlcpu.kernels.gemm.microkernels.microkernel import NR, ROW_STEP
from dmlcpu.runtime.intrinsics import Strided

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
    pack_groups(Strided(b.view(np.uint8).reshape(-1), 7, 50, 4 * count), flip, words, 2, sums, 1)
    signed = b[: 4 * count, 7 : 7 + NR].astype(np.int64) - (0 if dtype == np.int8 else 128)
    packed = words[2:].view(np.int8).reshape(count, NR, 4)
    np.testing.assert_array_equal(packed, signed.reshape(count, 4, NR).swapaxes(1, 2))
    assert sums.tolist() == [0, *(np.arange(1, 1 + NR) + signed.sum(axis=0)).tolist()]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 37])
def test_pack_words_and_their_sums(dtype, count):
    rows, step = 3, 4 * 37 + 5
    a = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, 3 + rows * step).astype(dtype)
    words = np.full(2 + rows * ROW_STEP, 7, np.uint32)
    flip = 0x80 if dtype == np.int8 else 0
    pack_words(Strided(a.view(np.uint8), 3, step, rows), count, flip, words, 2)
    unsigned = a.astype(np.int64) + (128 if dtype == np.int8 else 0)
    for row in range(rows):
        expected, line = unsigned[3 + row * step :][: 4 * count], words[2 + row * ROW_STEP :][:ROW_STEP]
        assert line[:count].view(np.uint8).tolist() == expected.tolist()
        assert (line[count:] == 7).all()
        assert sum_of_words(words, 2 + row * ROW_STEP, count) == expected.sum()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("columns", [1, 16, 31, 33, 80])
@pytest.mark.parametrize("depth", [1, 4, 30, 259, 600])
def test_panels_and_sums_of_matrices_of_any_width(depth, columns, dtype):
    """Rows of narrow panels are read together with what follows them, which must not show."""
    limits = np.iinfo(dtype)
    wide = RNG.integers(limits.min, limits.max + 1, (2, depth + 1, columns + 40)).astype(dtype)
    for b in wide[:, :-1, 7 : 7 + columns], wide[:, ::-1, :columns][:, 1:], wide[:, 1:, -columns:]:
        for matrices in b, np.ascontiguousarray(b), np.broadcast_to(b[:, :1], b.shape):
            packed = dmlcpu.pack_b(matrices)
            padding = (0, 0), (0, -depth % 4), (0, -matrices.shape[2] % NR)
            signed = np.pad(matrices.astype(np.int64) - (0 if dtype == np.int8 else 128), padding)
            groups = signed.reshape(2, -1, 4, signed.shape[2] // NR, NR).transpose(0, 3, 1, 4, 2)
            np.testing.assert_array_equal(packed.panels.view(np.int8).reshape(groups.shape), groups)
            np.testing.assert_array_equal(packed.sums.reshape(2, -1), signed.sum(axis=1))


def test_load_word_needs_no_alignment():
    load_word = jitted(packing.load_word)
    array = np.arange(1, 9, dtype=np.uint8)
    assert [load_word(array, i) for i in (0, 1, 4)] == [0x04030201, 0x05040302, 0x08070605]


@pytest.mark.skipif(os.name != "posix", reason="needs mprotect")
@pytest.mark.parametrize("bound", ["", "avx2"], ids=["any", "avx2"])
def test_no_byte_behind_a_matrix_is_read(bound):
    """The matrix ends where a page begins that cannot be read. It is read in a process of its own, which may crash."""
    code = """
        import ctypes, mmap
        import numpy as np
        import dmlcpu

        size = mmap.PAGESIZE
        memory = np.frombuffer(mmap.mmap(-1, 2 * size), np.int8)
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + size), size, 0) == 0

        def multiply(depth, columns, step):
            b = memory[size - (depth - 1) * step - columns : size]
            b = np.lib.stride_tricks.as_strided(b, (depth, columns), (step, 1))
            b[...] = 3
            y = dmlcpu.matmul_integer(np.full((2, depth), 5, np.uint8), None, b, None)
            assert (y == 15 * depth).all()

        for depth in 1, 4, 5, 8, 9, 19, 31:
            for columns, step in (1, 1), (1, 9), (7, 7), (7, 50), (31, 31), (33, 40), (64, 64), (70, 99):
                multiply(depth, columns, step)
    """
    run(code, DMLCPU_ISA=bound)
