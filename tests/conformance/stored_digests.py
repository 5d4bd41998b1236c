"""Results of fixed calls, and the file of their SHA-256: it is the same for every version, processor and thread count.

    python tests/conformance/stored_digests.py

writes those that are missing. It changes none of a version: who changes bits raises the `version` of the operator's
row. If only the calls here have changed, delete the operator's entry first.

Inputs are made of whole numbers by exact operations, so they do not depend on a random generator or a rounding.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from samples import as_tuple

import dmlcpu
from dmlcpu.operators import OPERATORS
from dmlcpu.search import FloatIndex, Int8Index

FILE = Path(__file__).with_name("digests.json")
VERSIONS_OF_SEARCH = {"search": 1, "float_search": 1}

Results = Iterator[np.ndarray | tuple[np.ndarray, ...]]

# Bits of the mantissa.
FLOATS = {
    np.dtype(np.float16): 10,
    np.dtype(ml_dtypes.bfloat16): 7,
    np.dtype(np.float32): 23,
    np.dtype(np.float64): 52,
}
BYTES = ("int8", "uint8")


def mixed(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return 64 bits an element in no order: splitmix64 of the positions."""
    z = (np.arange(np.prod(shape), dtype=np.uint64) + (seed << 32)) * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return (z ^ (z >> 31)).reshape(shape)


def finite(seed: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return any integers, or floats of 8 powers of 2."""
    z = mixed(seed, shape)
    words = np.dtype(f"u{dtype.itemsize}")
    if dtype in FLOATS:
        mantissa = FLOATS[dtype]
        bias = (1 << 8 * dtype.itemsize - mantissa - 2) - 1
        sign = 1 << 8 * dtype.itemsize - 1
        z = (z & (sign | (1 << mantissa) - 1)) | (bias - 4 + (z >> 56) % 8) << mantissa
    elif dtype.kind == "b":
        z &= 1
    return z.astype(words).view(dtype)


def anything(seed: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return also NaNs, infinities and zeros of both signs."""
    x = finite(seed, shape, dtype)
    if dtype in FLOATS:
        mantissa, words = FLOATS[dtype], x.view(f"u{dtype.itemsize}")
        infinity = (1 << 8 * dtype.itemsize - 1) - (1 << mantissa)
        words[...] = np.where(mixed(seed, shape) % 13 == 0, words | infinity, words)  # NaNs
        for divisor, bits in ((17, infinity), (19, 0)):
            sign = words & (1 << 8 * dtype.itemsize - 1)
            words[...] = np.where(mixed(seed, shape) % divisor == 0, sign | bits, words)
    return x


def few(seed: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return whole numbers with many ties."""
    return (mixed(seed, shape) % 7).astype(np.uint8).astype(dtype)


def scales(seed: int, count: int) -> np.ndarray:
    """Return float32 in sixteenths."""
    return ((1 + mixed(seed, (count,)) % 31).astype(np.float32)) / np.float32(16)


def top_k(dtype: np.dtype) -> Results:
    for x, (largest, nan) in product(
        (anything(1, (7, 300), dtype), few(2, (7, 300), dtype)), product((True, False), ("greatest", "last"))
    ):
        for k, axis in ((1, 1), (10, 1), (200, 1), (3, 0)):
            yield dmlcpu.top_k(x, k, axis=axis, largest=largest, nan=nan)


def scatter_nd(dtype: np.dtype) -> Results:
    rows, elements = (mixed(3, (400, 1)) % 40).astype(np.int64), (mixed(4, (500, 2)) % (40, 9)).astype(np.int64)
    x = finite(5, (40, 9), dtype)
    for reduction in ("none", "add", "mul", "min", "max") if dtype.kind != "b" else ("none",):
        for make in (finite, anything):
            yield dmlcpu.scatter_nd(x, rows, make(6, (400, 9), dtype), reduction=reduction)
            yield dmlcpu.scatter_nd(x, elements, make(7, (500,), dtype), reduction=reduction)


def scatter_elements(dtype: np.dtype) -> Results:
    x, indices = finite(5, (40, 9), dtype), (mixed(3, (400, 9)) % 40).astype(np.int64)
    for reduction in ("none", "add", "mul", "min", "max") if dtype.kind != "b" else ("none",):
        for make in (finite, anything):
            updates = make(6, (400, 9), dtype)
            yield dmlcpu.scatter_elements(x, indices, updates, axis=0, reduction=reduction)
            yield dmlcpu.scatter_elements(x.T, indices.T, updates.T, axis=1, reduction=reduction)


def gather_elements(dtype: np.dtype) -> Results:
    x, indices = anything(5, (40, 9), dtype), (mixed(3, (400, 9)) % 40).astype(np.int64)
    yield dmlcpu.gather_elements(x, indices, axis=0)
    yield dmlcpu.gather_elements(x.T, indices.T, axis=1)


def operands(dtype: np.dtype) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield A, its zero point a row, B, and its zero point a column."""
    for rows, depth, columns, of_b in product((1, 9), (70, 300), (37,), map(np.dtype, BYTES)):
        a, b = finite(8, (rows, depth), dtype), finite(9, (depth, columns), of_b)
        yield a, finite(10, (rows,), dtype), b, finite(11, (columns,), of_b)
    wide = np.dtype(np.uint8)  # sums that 32 bits do not hold
    a, b = np.full((2, 40_000), np.iinfo(dtype).max, dtype), np.full((40_000, 3), 255, wide)
    yield a, np.zeros(2, dtype), b, np.zeros(3, wide)


def quantized_matmul(dtype: np.dtype) -> Results:
    for a, of_rows, b, of_columns in operands(dtype):
        of_a, of_b = scales(12, len(a)), scales(13, b.shape[1])
        for out in map(np.dtype, BYTES):
            yield dmlcpu.quantized_matmul(a, of_a, of_rows, b, of_b, of_columns, 700.0, out.type(5), out_dtype=out)


def matmul_integer(dtype: np.dtype) -> Results:
    for a, of_rows, b, of_columns in operands(dtype):
        for out in (np.int32, np.int64):
            yield dmlcpu.matmul_integer(a, of_rows, b, of_columns, out_dtype=out)


def matmul_integer_to_float(dtype: np.dtype) -> Results:
    for a, of_rows, b, of_columns in operands(dtype):
        for out in map(np.dtype, (np.float32, np.float16)):
            of_a, of_b, bias = scales(12, len(a)), scales(13, b.shape[1]), scales(14, b.shape[1])
            of_a, of_b, bias = (each.astype(out) for each in (of_a, of_b, bias))
            yield dmlcpu.matmul_integer_to_float(a, of_a, of_rows, b, of_b, of_columns, bias, out_dtype=out)


def dynamic_quantize_matmul(dtype: np.dtype) -> Results:
    for (_, _, b, of_columns), out in product(operands(np.dtype(np.uint8)), (np.float32, np.float16)):
        x, of_b, bias = finite(30, (9, len(b)), dtype), scales(13, b.shape[1]), scales(14, b.shape[1])
        for per_row in (False, True):
            yield dmlcpu.dynamic_quantize_matmul(x, b, of_b, of_columns, bias, per_row=per_row, out_dtype=out)


def matmul_top_k(dtype: np.dtype) -> Results:
    for a, of_rows, b, of_columns in operands(dtype):
        yield dmlcpu.matmul_top_k(a, b, 3)
        yield dmlcpu.matmul_top_k(a, b, 2, a_zero_point=of_rows, b_zero_point=of_columns, mode="smallest")
        yield dmlcpu.matmul_top_k(a, b, 3, a_scale=scales(12, len(a)), b_scale=scales(13, b.shape[1]))


def quantize_linear(dtype: np.dtype) -> Results:
    x = anything(15, (9, 300), dtype)
    for out in map(np.dtype, ("int8", "uint8", "int16", "uint16")):
        zero_points = finite(16, (9,), out)
        yield dmlcpu.quantize_linear(x, scales(17, 9), zero_points, axis=0)
        yield dmlcpu.quantize_linear(x, 0.0625, out_dtype=out)


def dequantize_linear(dtype: np.dtype) -> Results:
    x, of_rows, of_blocks = finite(18, (9, 300), dtype), scales(19, 9), scales(20, 27).reshape(9, 3)
    zero_points = None if dtype == np.int32 else finite(21, (9,), dtype)
    yield dmlcpu.dequantize_linear(x, of_rows, zero_points, axis=0)
    yield dmlcpu.dequantize_linear(x, of_blocks, axis=1, block_size=100)
    yield dmlcpu.dequantize_linear(x, of_rows.astype(np.float16), axis=0)


def dynamic_quantize_linear(dtype: np.dtype) -> Results:
    for out in map(np.dtype, BYTES):
        yield dmlcpu.dynamic_quantize_linear(finite(22, (9, 300), dtype), out_dtype=out)
        for axis in (0, 1):
            yield dmlcpu.dynamic_quantize_linear(finite(22, (9, 300), dtype), axis=axis, out_dtype=out)


def argmax(dtype: np.dtype) -> Results:
    return places(dmlcpu.argmax, dtype)


def argmin(dtype: np.dtype) -> Results:
    return places(dmlcpu.argmin, dtype)


def places(function: Callable[..., np.ndarray], dtype: np.dtype) -> Results:
    """Any bits, each several times along each axis, so that ties decide."""
    x = np.tile(anything(27, (3, 20, 15), dtype), (3, 2, 2))
    for axis, select_last in product((None, 0, 1, 2, (0, 2)), (False, True)):
        yield function(x, axis=axis, select_last=select_last)
        yield function(x.T, axis=axis, select_last=select_last, keepdims=True, index_dtype=np.uint32)


def search(dtype: np.dtype) -> Results:
    vectors, queries = finite(23, (500, 48), dtype), finite(24, (6, 48), dtype)
    for metric in ("ip", "l2", "cosine"):
        yield Int8Index(vectors, metric).search(queries, 12)
        if dtype in FLOATS:
            yield Int8Index(vectors, metric, floats=True).search(queries, 12, rescore=4)


def float_search(dtype: np.dtype) -> Results:
    """Enough vectors that their codes select candidates; those of a smaller index are all scored."""
    vectors, queries = finite(25, (3000, 48), dtype), finite(26, (10, 48), dtype)
    for metric, count in product(("ip", "l2", "cosine"), (3000, 500)):
        yield FloatIndex(vectors[:count], metric).search(queries, 12)
    yield FloatIndex(vectors).search(queries.astype(np.float64) / 3, 12, mask=np.arange(3000) % 5 > 1)


def sort(dtype: np.dtype) -> Results:
    x = mixed(27, (3, 700)).view(np.int64) if dtype.kind in "iub" else finite(27, (3, 700), dtype)
    x = x.astype(dtype)
    for axis, descending in product((0, 1), (False, True)):
        yield dmlcpu.sort(x, axis, descending=descending)


def argsort(dtype: np.dtype) -> Results:
    x = (mixed(28, (300, 5)) % 200).astype(dtype)
    yield dmlcpu.argsort(x, 0)
    yield dmlcpu.argsort(x.reshape(5, 300), descending=True, index_dtype=np.int32)


def sort_with_indices(dtype: np.dtype) -> Results:
    x = (mixed(29, (40, 60)) % 200).astype(dtype)
    yield dmlcpu.sort_with_indices(x)
    yield dmlcpu.sort_with_indices(x, 0, descending=True, nan="greatest")


CALLS: dict[str, Callable[[np.dtype], Results]] = {
    each.__name__: each
    for each in (
        top_k,
        scatter_nd,
        scatter_elements,
        gather_elements,
        quantized_matmul,
        matmul_integer,
        matmul_integer_to_float,
        dynamic_quantize_matmul,
        matmul_top_k,
        quantize_linear,
        dequantize_linear,
        dynamic_quantize_linear,
        sort,
        argsort,
        sort_with_indices,
        argmax,
        argmin,
        search,
        float_search,
    )
}


def types_of(name: str) -> tuple[str, ...]:
    of_search = {
        "search": (*BYTES, "float32", "float64"),
        "float_search": ("float16", "bfloat16", "float32", "float64"),
    }
    return of_search[name] if name in of_search else OPERATORS[name].types


def digest(name: str, dtype: str) -> str:
    """Return the SHA-256 of the types, shapes and bits of all results."""
    found = hashlib.sha256()
    for result in CALLS[name](np.dtype(getattr(ml_dtypes, dtype, dtype))):
        for array in as_tuple(result):
            found.update(f"{array.dtype} {array.shape} ".encode())
            found.update(array.tobytes())
    return found.hexdigest()


def entry(name: str) -> dict[str, Any]:
    """Return what the file has about an operator, or a search."""
    version = VERSIONS_OF_SEARCH[name] if name in VERSIONS_OF_SEARCH else OPERATORS[name].version
    return {"version": version, "digests": {dtype: digest(name, dtype) for dtype in types_of(name)}}


def written(stored: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the new contents of the file; refuse other digests of the same version."""
    for name, new in found.items():
        old = stored.get(name, {"version": 0})
        changed = [dtype for dtype in old.get("digests", {}) if new["digests"].get(dtype) != old["digests"][dtype]]
        if changed and new["version"] == old["version"]:
            raise SystemExit(f"{name}: other bits for {', '.join(changed)}; raise its version, {old['version']}")
    return found


if __name__ == "__main__":
    before = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    FILE.write_text(json.dumps(written(before, {name: entry(name) for name in CALLS}), indent=1) + "\n", "utf-8")
