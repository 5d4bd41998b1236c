"""Tensors that exceed the caches: x is prefetched."""

import numpy as np
import pytest

import dmlcpu
from dmlcpu import reference
from dmlcpu.kernels.quantize_linear.work import PIECE, TILE
from dmlcpu.quantizers import layout
from dmlcpu.quantizers.dynamic import prepare as prepare_dynamic
from dmlcpu.quantizers.layout import Layout, lay_out
from dmlcpu.quantizers.plan import plan, plan_layouts, prepare
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import packed_strides

SIZES = [1, 63, 64, 65, PIECE - 1, PIECE + 1, TILE, TILE + 129, 5 * TILE + 77]


@pytest.fixture(autouse=True)
def all_tensors_are_large(monkeypatch):
    """Let every tensor count as large, in plans of these tests alone."""
    caches = (prepare_dynamic, plan, plan_layouts, prepare)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(layout, "LARGE", 0)
    yield
    for cache in caches:
        cache.cache_clear()


def floats(*shape):
    x = np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)
    x.flat[::7] = np.rint(x.flat[::7] * 4) / 8  # ties
    return x


def guarded(n, dtype, skip):
    """Return an array of n elements, `skip` elements behind the beginning of a cache line, and all around it."""
    whole = np.full(n + 256, 77, dtype)
    first = -whole.ctypes.data % 64 // whole.itemsize + skip
    return whole[first : first + n], whole, first


def check(expected, out, whole, first):
    assert out.tobytes() == expected.tobytes()
    assert (whole[:first] == 77).all()
    assert (whole[first + out.size :] == 77).all()


def test_packed_tensors_are_large_and_others_are_not():
    packed = Layout((4, 4096), packed_strides((4, 4096)), "float32")
    one, bytes_ = Layout((1, 1), (1, 1), "float32"), packed._replace(type="uint8")
    assert lay_out(packed, one, one, bytes_)["is_large"]
    assert not lay_out(packed._replace(type="float16"), one, one, bytes_)["is_large"]
    assert not lay_out(packed._replace(strides=(1, 4)), one, one, bytes_)["is_large"]


@pytest.mark.skipif(not can_compile(), reason="kernels")
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["uint8", "int16"])
@pytest.mark.parametrize("skip", [0, 1, 31])
def test_quantize(n, dtype, skip):
    x = floats(n)
    x[n // 2] = np.nan
    out, *around = guarded(n, dtype, skip)
    dmlcpu.quantize_linear(x, 0.02, 3, out_dtype=dtype, out=out)
    check(reference.quantize_linear(x, 0.02, 3, out_dtype=dtype), out, *around)


@pytest.mark.skipif(not can_compile(), reason="kernels")
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16"])
@pytest.mark.parametrize("skip", [0, 3])
def test_dequantize(n, dtype, skip):
    limits = np.iinfo(dtype)
    x = np.random.default_rng(n).integers(limits.min, limits.max + 1, n).astype(dtype)
    out, *around = guarded(n, np.float32, skip)
    dmlcpu.dequantize_linear(x, 0.3, x[:1][0], out=out)
    check(reference.dequantize_linear(x, 0.3, x[:1][0]), out, *around)


@pytest.mark.skipif(not can_compile(), reason="kernels")
@pytest.mark.parametrize("block", [32, 300, TILE + 8])
def test_blocks(block):
    x, scale = floats(3, 2 * block), np.float32([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    y = dmlcpu.quantize_linear(x, scale)
    assert y.tobytes() == reference.quantize_linear(x, scale).tobytes()
    assert dmlcpu.dequantize_linear(y, scale).tobytes() == reference.dequantize_linear(y, scale).tobytes()
    scale[1, 1] = np.inf
    y[1, block] = 0
    assert dmlcpu.dequantize_linear(y, scale).tobytes() == reference.dequantize_linear(y, scale).tobytes()


@pytest.mark.parametrize("n", SIZES)
def test_dynamic(n):
    x = floats(n)
    for found, expected in zip(dmlcpu.dynamic_quantize_linear(x), reference.dynamic_quantize_linear(x), strict=True):
        assert found.tobytes() == expected.tobytes()
