"""From queries and stored vectors to the k best: the scores of each metric.

========  =======================  =============================  =======================
metric    selected by              score                          best
========  =======================  =============================  =======================
ip        q . v                    q . v                          the largest
cosine    q . v / (|q| |v|)        the same                       the largest
l2        2 (q . v) - |v|**2       |q|**2 less it: the distance   the smallest
========  =======================  =============================  =======================

Queries and vectors of bytes have exact integers, returned as float64. All others are float32: the integer sum is
rounded once, multiplied by the product of the query's and the vector's factor, and a vector's own number is added.
"""

from dataclasses import replace

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.search.found import best_of
from dmlcpu.search.quantizer import Queries, as_float32, pair_sums
from dmlcpu.search.spaces import Space
from dmlcpu.search.vectors import Stored, reciprocal_roots
from dmlcpu.selection.call import Operands, Order
from dmlcpu.selection.plan import select as select_fused

# With this many vectors for each allowed one, the allowed ones are copied, which is faster than reading all.
_FEW = 32
_RESCORED_NUMBERS = 1 << 20  # numbers that are rescored at a time
_NEARLY_ONE, _BELOW_ONE = np.float32(1 - 2.0**-18), np.float32(1 - 2.0**-24)
# k times the queries that are selected together: 10 queries if k is 100,000. Each thread keeps up to two numbers for
# each.
MOST_CANDIDATES = 1 << 20


def worst(space: Space) -> float:
    """Return the score where nothing was found."""
    return np.inf if space.metric == "l2" else -np.inf


def names_of(names: Array, found: Array) -> Array:
    """Return the name of each position that was found, and -1 for -1."""
    there, result = found >= 0, np.full(found.shape, -1, np.int64)
    result[there] = names[found[there]]
    return result


def few_allowed(bits: Array, count: int) -> Array | None:
    """Return the positions that all queries may find if they are so few that copying them pays; else None."""
    if len(bits) > 1 or _FEW * int(np.bitwise_count(bits).sum()) >= count:
        return None
    return np.flatnonzero(np.unpackbits(bits, count=count, bitorder="little"))


def search(space: Space, stored: Stored, queries: Queries, k: int, mask: Array | None) -> tuple[Array, Array]:
    """Return scores and positions (M, k) of the best vectors, the best first; `worst` and -1 where there are fewer."""
    places = None if mask is None else few_allowed(mask, len(stored))
    if places is not None:
        few = replace(stored, ids=None, floats=None).taken(places)
        scores, found = search(space, few, queries, k, None)
        return scores, names_of(places, found)
    values, found = _selected(space, stored, queries, min(k, len(stored)), mask)
    scores = _scores(space, queries, values)
    scores[found < 0] = worst(space)
    if k <= len(stored):
        return scores, found
    beyond = ((0, 0), (0, k - len(stored)))
    return np.pad(scores, beyond, constant_values=worst(space)), np.pad(found, beyond, constant_values=-1)


def _selected(space: Space, stored: Stored, queries: Queries, k: int, mask: Array | None) -> tuple[Array, Array]:
    """Return what the scores of the best vectors are made of, and their positions."""
    if space.metric == "cosine":
        return _by_angle(stored, queries, k, mask)
    vectors = stored.vectors
    is_distance = space.metric == "l2"
    if queries.scales is None and stored.scales is None:
        bias = stored.int_bias if is_distance else None
        return select(queries.codes, vectors, k, bias=bias, doubled=is_distance, mask=mask)
    bias = stored.float_bias if is_distance else None
    scales = np.ones(len(queries.codes), np.float32) if queries.scales is None else queries.scales
    scales = np.float32(2 if is_distance else 1) * scales
    return select(queries.codes, vectors, k, a_scale=scales, b_scale=stored.scales, bias=bias, mask=mask)


def _by_angle(stored: Stored, queries: Queries, k: int, mask: Array | None) -> tuple[Array, Array]:
    """Return the best cosines. Scales cancel out, but for affine vectors."""
    lengths, vectors = reciprocal_roots(queries.squares), stored.vectors
    if queries.constants is not None:
        assert queries.scales is not None  # as of all queries for affine vectors
        scales, added = queries.scales * lengths, (queries.constants * lengths).astype(np.float32)
        values, found = select(
            queries.codes, vectors, k, a_scale=scales, row_bias=added, b_scale=stored.lengths, mask=mask
        )
        return np.where(found < 0, values, np.clip(values, -1, 1)), found
    values, found = select(queries.codes, vectors, k, a_scale=lengths, b_scale=stored.lengths, mask=mask)
    if k:
        _settle(stored, queries, values, found, k, mask)
    return np.where(found < 0, values, np.maximum(values, np.float32(-1))), found


def _settle(stored: Stored, queries: Queries, values: Array, found: Array, k: int, mask: Array | None) -> None:
    """Put cosines of nearly 1 in their order: 1 for equal directions, less for all others.

    Two roundings of a factor and two of a product may have made another cosine greater than that of an equal direction.
    So all cosines near 1 are checked: 8 times as many candidates are selected until others are among them.
    """
    rows, count = np.flatnonzero(values[:, 0] > _NEARLY_ONE), k
    lengths = reciprocal_roots(queries.squares)
    while rows.size:
        codes, squares = queries.codes[rows], queries.squares[rows].astype(np.int64)
        some, places = values[rows], found[rows]
        if count > k:
            own = mask if mask is None or len(mask) == 1 else mask[rows]
            some, places = select(codes, stored.vectors, count, a_scale=lengths[rows], b_scale=stored.lengths, mask=own)
        is_open = (some[:, -1] > _NEARLY_ONE) & (count < len(stored.vectors))
        for row in np.flatnonzero(~is_open):
            near = int(np.count_nonzero(some[row] > _NEARLY_ONE))
            exact = _cosines(stored, codes[row], squares[row], places[row, :near])
            order = np.lexsort((places[row, :near], -exact))
            places[row, :near] = places[row, order]
            some[row, :near] = np.where(exact == 1, 1, np.minimum(exact.astype(np.float32), _BELOW_ONE))[order]
            values[rows[row]], found[rows[row]] = some[row, :k], places[row, :k]
        rows, count = rows[is_open], min(8 * count, len(stored.vectors))


def _cosines(stored: Stored, code: Array, square: Array, places: Array) -> Array:
    """Return cosines of bytes with some vectors, float64: 1 for equal directions, which integers decide."""
    assert stored.squares is not None
    products = stored.vectors[places].astype(np.int64) @ code.astype(np.int64)
    squares = square * stored.squares[places].astype(np.int64)
    return np.where(products * products == squares, 1.0, np.minimum(products / np.sqrt(squares), 1 - 2.0**-53))


def select(
    a: Array,
    vectors: Array,
    k: int,
    *,
    a_scale: Array | None = None,
    row_bias: Array | None = None,
    b_scale: Array | None = None,
    bias: Array | None = None,
    doubled: bool = False,
    mask: Array | None = None,
) -> tuple[Array, Array]:
    """Return the k greatest scores of each row of a (M, D) with vectors (N, D), bytes, and positions, int64 (M, k).

    Without scales, scores are int32: the sum, or twice the sum, + bias[column]. With a_scale (M,), and perhaps b_scale
    (N,), they are float32: float32(sum) * (a_scale * b_scale) + bias, or with a row_bias (M,) (float32(sum) * a_scale +
    row_bias) * b_scale + bias. mask: bits, which columns may be found.
    k is at most N; where fewer are found, the score is the least int32 or -inf, and the position -1.
    """
    order = Order(k, a_scale is not None, shift=int(doubled))
    values = np.empty((len(a), k), np.float32 if order.is_scaled else np.int32)
    found = np.empty((len(a), k), np.int64)
    of_rows, row_added = (None if each is None else each[:, None] for each in (a_scale, row_bias))
    of_columns, added = (None if each is None else each[None] for each in (b_scale, bias))
    step = max(1, MOST_CANDIDATES // (k + 16))
    for first in range(0, len(a), step):
        rows = slice(first, first + step)
        scales = None if of_rows is None else of_rows[rows]
        own = mask if mask is None or len(mask) == 1 else mask[rows]
        own_added = None if row_added is None else row_added[rows]
        operands = Operands(a[rows], vectors.T, scales, None, of_columns, None, added, own, own_added)
        select_fused(operands, order, values[rows], found[rows])
    return values, found


def _scores(space: Space, queries: Queries, values: Array) -> Array:
    """Return the scores that selected values stand for."""
    constants = queries.constants
    if space.metric == "cosine":
        return values
    if values.dtype == np.int32:
        exact = values.astype(np.float64)
        return exact if space.metric == "ip" else queries.squares[:, None] - exact
    if space.metric == "ip":
        return values if constants is None else values + constants.astype(np.float32)[:, None]
    squares = queries.squares.astype(np.float64)
    if constants is not None:
        squares -= 2 * constants
    elif queries.scales is not None:
        squares *= np.square(queries.scales.astype(np.float64))
    return np.maximum(squares.astype(np.float32)[:, None] - values, np.float32(0))


def rescored(space: Space, floats: Array, queries: Array, found: Array, k: int) -> tuple[Array, Array]:
    """Return scores and positions of the k best among those found, by exact products with the vectors as floats.

    queries: float32 (M, D) in C order; found: positions (M, C), -1 for none. Sums are float64, each rounded once; of
    equal scores, the lower position comes first.
    """
    scores = np.full(found.shape, worst(space), np.float32)
    rows = max(1, _RESCORED_NUMBERS // max(1, found.shape[1] * space.depth))
    for start in range(0, len(found) if found.size and len(floats) else 0, rows):
        part = slice(start, start + rows)
        block, places = queries[part], found[part]
        candidates = np.ascontiguousarray(as_float32(floats[np.maximum(places, 0)]))
        exact = _exact(space, block, candidates)
        scores[part] = np.where((places >= 0) & ~np.isnan(exact), exact, worst(space))  # a file may have NaN
    sign = np.float32(-1 if space.metric == "l2" else 1)
    ranks, best = best_of(sign * scores, found, k)
    return sign * ranks, best


def _exact(space: Space, queries: Array, candidates: Array) -> Array:
    """Return the scores of queries (M, D) with candidates (M, C, D), float32 (M, C)."""
    sums = pair_sums(queries, candidates, distance=space.metric == "l2")
    if space.metric == "cosine":
        flat = candidates.reshape(-1, space.depth)
        squares = pair_sums(flat, flat[:, None]).reshape(sums.shape)
        lengths = np.sqrt(pair_sums(queries, queries[:, None])) * np.sqrt(squares)
        sums = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    return sums.astype(np.float32)
