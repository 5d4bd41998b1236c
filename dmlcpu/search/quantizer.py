"""Vectors and queries as bytes, and exact sums over rows. Kernels do it, or without compilation the reference."""

from typing import NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.errors import DmlError
from dmlcpu.kernels import registry
from dmlcpu.reference.searches import quantized, sums_by_four
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import words
from dmlcpu.runtime.records import CACHE_LINE, CELL, record_of
from dmlcpu.search.spaces import Space, middle_of

GREATEST = 1e16  # sums of squares of vectors of such numbers are finite float32
FINITE = f"finite numbers of at most {GREATEST:g} in absolute value"
BLOCK_ELEMENTS = 1 << 21  # elements that are converted to float32 at a time: they stay in the caches
_FLOAT32 = np.dtype(np.float32)


class Quantized(NamedTuple):
    """Vectors as bytes: vector = scale * code."""

    codes: Array  # int8 (N, D)
    scales: Array  # float32 (N,)
    squares: Array  # int32 (N,): the sum of the squares of each row of codes


def quantize(operator: str, field: str, x: Array, first: int = 0) -> Quantized:
    """Quantize vectors of floats (N, D), or refuse NaN, infinity and numbers beyond 1e16.

    Each vector by itself, symmetrically: scale = float32(greatest absolute value / 127), at least 2**-126, and
    code = round(float32(x / scale)), half to even. x is rounded to float32 first. An error counts rows from `first`.
    """
    count, depth = x.shape
    found = Quantized(np.empty((count, depth), np.int8), np.empty(count, np.float32), np.empty(count, np.int32))
    rows = max(1, count if is_plain(x) else BLOCK_ELEMENTS // depth)
    for start in range(0, count, rows):
        part = slice(start, start + rows)
        block = as_float32(x[part])
        bad = _quantize_block(block, Quantized(*[each[part] for each in found]))
        if bad >= 0:
            row = start + bad
            place = int(np.argmin(np.abs(as_float32(x[row : row + 1]))[0] <= np.float32(GREATEST)))
            raise DmlError(operator, f"{field}[{first + row}, {place}]", str(x[row, place]), FINITE)
    return found


def is_plain(x: Array) -> bool:
    """Return whether kernels can read rows of an array as it is."""
    return x.dtype == _FLOAT32 and x.flags.c_contiguous and x.flags.aligned


def as_float32(x: Array) -> Array:
    """Return rows as float32 in C order; numbers beyond its range become infinite."""
    if is_plain(x):
        return x
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x.astype(np.float32))


def _quantize_block(x: Array, found: Quantized) -> int:
    """Quantize rows of plain float32; return the first row that cannot be, or -1."""
    if not can_compile():
        good = np.abs(x).max(axis=1) <= np.float32(GREATEST)  # NaN is not
        if not good.all():
            return int(np.argmin(good))
        found.codes[...], found.scales[...] = quantized(x)
        found.squares[...] = byte_squares(found.codes)
        return -1
    count, depth = x.shape
    parts = threads.budget().parts(count * depth // 4, count)
    bad = np.empty(parts * CACHE_LINE // CELL, np.int64)
    work = record_of(registry.load("search.quantize_rows.WORK"), rows=count, depth=depth)
    kernel = registry.find("search", "quantize").kernel.for_parts(parts)
    kernel(words(x, _FLOAT32), found.codes.reshape(-1), found.scales, found.squares, bad, work)
    reported = bad[:: CACHE_LINE // CELL]
    return int(min(reported[reported >= 0], default=-1))


def byte_squares(x: Array) -> Array:
    """Return the sum of the squares of each row of bytes (N, D) in C order, as int32."""
    count, depth = x.shape
    squares = np.empty(count, np.int32)
    if not can_compile():
        for start in range(0, count, rows := max(1, BLOCK_ELEMENTS // depth)):
            squares[start : start + rows] = np.square(x[start : start + rows].astype(np.int32)).sum(axis=1)
    elif count:
        parts = threads.budget().parts(count * depth // 16, count)
        sign = 128 if x.dtype == np.int8 else 0
        work = record_of(registry.load("search.quantize_rows.SQUARES_WORK"), rows=count, depth=depth, sign=sign)
        registry.find("search", "squares").kernel.for_parts(parts)(words(x, np.dtype(np.uint8)), squares, work)
    return squares


def pair_sums(a: Array, b: Array, *, distance: bool = False) -> Array:
    """Return the products, or the squared distances, of rows of a (M, D) with those of b (M, C, D), as float64 (M, C).

    Both are float32 in C order. The sums have one order, whatever the machine, and however many pairs there are.
    """
    sums = np.empty(b.shape[:2], np.float64)
    if not can_compile():
        x, y = a[:, None].astype(np.float64), b.astype(np.float64)
        return sums_by_four(np.square(x - y) if distance else x * y)
    if sums.size:
        _, group, depth = b.shape
        parts = threads.budget().parts(b.size, sums.size)
        work = record_of(
            registry.load("search.pair_sums.WORK"), pairs=sums.size, group=group, depth=depth, is_distance=distance
        )
        kernel = registry.find("search", "pairs").kernel.for_parts(parts)
        kernel(words(a, _FLOAT32), words(b, _FLOAT32), sums.reshape(-1), work)
    return sums


class Queries(NamedTuple):
    """Queries as the products read them."""

    codes: Array  # int8 or uint8 (M, D)
    scales: Array | None  # float32 (M,): query = scale * code; None: the codes are the query
    squares: Array  # int32 or float64 (M,): the sum of the query's squares, of codes if there are scales
    constants: Array | None = None  # float64 (M,): what the centers of affine vectors add to each product


def encode(operator: str, queries: Array, space: Space, dtype: np.dtype[np.generic]) -> Queries:
    """Return checked queries (M, D) of bytes or floats for vectors of a type; refuse numbers that are not finite.

    Each query is quantized by itself. If vectors are affine, value = step * (byte - middle) + center, then
    q . value = (q * step) . byte - middle * sum(q * step) + q . center. So the steps go to the query, and the rest is
    one number a query. For distances, the centers are subtracted from both.
    """
    is_bytes = queries.dtype.itemsize == 1
    if space.ranges is None:
        if is_bytes:
            codes = np.ascontiguousarray(queries)
            return Queries(codes, None, byte_squares(codes))
        return Queries(*quantize(operator, "queries", queries))
    if not is_bytes:
        quantize(operator, "queries", queries)  # which refuses what is not finite
    values = space.decoded(queries) if is_bytes else as_float32(queries)
    if space.metric == "l2":  # distances stay, and numbers get smaller
        values, constants = values - space.centres(), np.zeros(len(values))
    else:
        centres = np.ascontiguousarray(np.broadcast_to(space.centres(), values.shape))
        constants = pair_sums(values, centres[:, None])[:, 0]
    folded = quantize(operator, "queries", values * space.steps())
    sums = folded.codes.sum(axis=1, dtype=np.int64)  # of what is multiplied: so the middle byte adds 0
    constants -= middle_of(dtype) * sums * folded.scales.astype(np.float64)
    return Queries(folded.codes, folded.scales, pair_sums(values, values[:, None])[:, 0], constants)
