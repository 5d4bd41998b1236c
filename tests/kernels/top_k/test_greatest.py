"""The greatest keys of lines, by lane, against keys made one by one, for every type and both directions."""

import platform
import threading

import numpy as np
import pytest
from jitted import jitted
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from samples import FLOATS, TOP_K_TYPES, specials

import dmlcpu
from dmlcpu import reference
from dmlcpu.kernels.top_k import greatest, keys
from dmlcpu.kernels.top_k.keys import KEY_MAP
from dmlcpu.runtime.intrinsics import emitted
from dmlcpu.runtime.records import record_at, record_of
from dmlcpu.runtime.threads import use_budget

WIDTHS = ["uint8", "uint16", "uint32", "uint64"]
greatest_words = jitted(greatest.greatest_words)


@njit
def greatest_line(x, first, step, end, constants, needs_keys, target, place):
    key_map = keys.key_map_of(x, record_at(constants, 0, KEY_MAP))
    return greatest.greatest_line(greatest.LineRange(x, first, step, end, 0), key_map, needs_keys, target, place)


@njit
def greatest_floats(x, end, constants, target):
    key_map = keys.key_map_of(x, record_at(constants, 0, KEY_MAP))
    return greatest.greatest_floats(greatest.LineRange(x, 0, target.size, end, 0), key_map, target, 0)


@njit
def load_keys(x, constants, found):
    keys.load_keys(x, 0, 1, x.size, keys.key_map_of(x, record_at(constants, 0, KEY_MAP)), found)


def constants_of(dtype, largest, nan_last=False):
    kind, infinity = {"b": keys.UNSIGNED, "u": keys.UNSIGNED, "i": keys.SIGNED}.get(dtype.kind, keys.FLOAT), 0
    if kind == keys.FLOAT:
        infinity = int(np.array([np.inf]).astype(dtype).view(f"u{dtype.itemsize}")[0])
    return record_of(KEY_MAP, **keys.make_key_map(kind, dtype.itemsize, infinity, largest, nan_last)._asdict())


def lanes_of(dtype):
    return max(16, 64 // dtype.itemsize)


@pytest.mark.parametrize("nan_last", [False, True])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", TOP_K_TYPES, ids=str)
def test_greatest_line(dtype, largest, nan_last):
    """Lines with NaN and without, of which every float is negative, and all that are zeros or NaN."""
    lanes, rng, constants = lanes_of(dtype), np.random.default_rng(5), constants_of(dtype, largest, nan_last)
    word = np.dtype(f"u{dtype.itemsize}")
    numbers = rng.integers(1, 100, 13 * lanes).astype(dtype)
    samples = [specials(rng, (13 * lanes,), dtype), numbers, np.zeros(13 * lanes, dtype)]
    if dtype.kind not in "bui":
        zeros = np.where(rng.random(13 * lanes) < 0.5, 0.0, -0.0).astype(dtype)
        one_nan = np.where(np.arange(13 * lanes) == 8 * lanes + 3, np.nan, 1).astype(dtype)
        samples += [-numbers, zeros, one_nan, np.full(13 * lanes, -np.nan).astype(dtype)]
    for x in samples:
        found = np.zeros(x.size, word)
        load_keys(x.view(word), constants, found)
        expected = found[3 : 3 + 12 * lanes].reshape(4, 3, lanes)[:, 0].max(axis=0)
        for needs_keys in (False, True):
            target = np.zeros(lanes + 2, word)
            greatest_line(x.view(word), 3, 3 * lanes, 12 * lanes, constants, needs_keys, target, 1)  # 4 lines, 3 apart
            assert target.tolist() == [0, *expected.tolist(), 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_after_a_nan_lines_are_not_compared_as_floats(dtype):
    x, constants = np.ones(64, dtype), constants_of(np.dtype(dtype), True)
    word = np.dtype(f"u{x.itemsize}")
    lanes, target = lanes_of(x.dtype), np.zeros(16, word)
    assert not greatest_line(x.view(word), 0, lanes, 2 * lanes, constants, False, target, 0)
    assert greatest_line(x.view(word), 0, lanes, 2 * lanes, constants, True, target, 0)
    x[5] = np.nan
    assert greatest_line(x.view(word), 0, lanes, 2 * lanes, constants, False, target, 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_greatest_floats_are_found_where_processors_compare_them_and_none_is_nan(dtype):
    lanes, constants, word = lanes_of(dtype), constants_of(dtype, True), np.dtype(f"u{dtype.itemsize}")
    x, target = np.ones(2 * lanes).astype(dtype), np.zeros(lanes, word)
    assert greatest_floats(x.view(word), x.size, constants, target) == (dtype.itemsize > 2)
    for place in range(x.size):
        broken = x.copy()
        broken[place] = np.nan
        assert not greatest_floats(broken.view(word), x.size, constants, target)


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_greatest_words(dtype, count):
    lanes, highest = lanes_of(np.dtype(dtype)), np.iinfo(dtype).max
    words = np.random.default_rng(0).integers(0, highest, 7 + count * 3 * lanes, dtype, endpoint=True)
    target = np.zeros(lanes + 2, dtype)
    for flip in (0, highest, 0b101):
        given = greatest.LineRange(words, 7, 3 * lanes, words.size - 2 * lanes, 0)
        greatest_words(given, np.dtype(dtype).type(flip), target, 1)
        keys = words[7:] ^ np.dtype(dtype).type(flip)
        assert target.tolist() == [0, *keys.reshape(count, 3, lanes)[:, 0].max(axis=0).tolist(), 0]


@emitted
def load_mxcsr(builder, value: types.uint32):
    pointer = cgutils.alloca_once_value(builder, value)
    place = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type])
    builder.call(builder.module.declare_intrinsic("llvm.x86.sse.ldmxcsr", (), kind), [place])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the mode is set as on x86-64")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_subnormals_where_the_thread_takes_them_for_zeros(dtype):
    """torch.set_flush_denormal and libraries linked with -ffast-math set this mode."""
    set_mode = jitted(load_mxcsr)
    set_mode(np.uint32(0x1F80))  # the usual mode; compiles
    rng, word = np.random.default_rng(9), np.dtype(f"u{np.dtype(dtype).itemsize}")
    x = rng.integers(0, 1 << 20, (3, 9_000), word).view(dtype)
    x[rng.random(x.shape) < 0.5] *= -1
    expected = reference.top_k(x, 8)
    found = []

    def select():
        set_mode(np.uint32(0x9FC0))
        with use_budget(1, kernel="tournament"):
            found.append(dmlcpu.top_k(x, 8))

    thread = threading.Thread(target=select)  # the mode is that of a thread
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0].indices, expected[1])
