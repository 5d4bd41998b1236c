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
from dmlcpu.products.selection import Operands, Order, select as select_fused
from dmlcpu.search.quantizer import Queries, as_float32, pair_sums
from dmlcpu.search.spaces import Space
from dmlcpu.search.vectors import Stored, reciprocal_roots

# Of so many vectors for each one that is allowed, the allowed ones are copied: it is faster than reading all.
_FEW = 32
_RESCORED_NUMBERS = 1 << 20  # numbers that are rescored at a time
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


def search(space: Space, stored: Stored, queries: Queries, k: int, mask: Array | None) -> tuple[Array, Array]:
    """Return scores and positions (M, k) of the best vectors, the best first; `worst` and -1 where there are fewer."""
    if mask is not None and _FEW * np.count_nonzero(mask) < len(stored):
        places = np.flatnonzero(mask)
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
    if queries.constants is None:
        return select(queries.codes, vectors, k, a_scale=lengths, b_scale=stored.lengths, mask=mask)
    assert queries.scales is not None  # as of all queries for affine vectors
    scales = queries.scales * lengths
    added = (queries.constants * lengths).astype(np.float32)
    values, found = np.empty((len(scales), k), np.float32), np.empty((len(scales), k), np.int64)
    for i in range(len(scales)):  # what is added differs with the query and with the vector: queries come one by one
        row, bias = slice(i, i + 1), added[i] * stored.lengths
        values[row], found[row] = select(
            queries.codes[row], vectors, k, a_scale=scales[row], b_scale=stored.lengths, bias=bias, mask=mask
        )
    return values, found


def select(
    a: Array,
    vectors: Array,
    k: int,
    *,
    a_scale: Array | None = None,
    b_scale: Array | None = None,
    bias: Array | None = None,
    doubled: bool = False,
    mask: Array | None = None,
) -> tuple[Array, Array]:
    """Return the k greatest scores of each row of a (M, D) with vectors (N, D), bytes, and positions, int64 (M, k).

    Without scales, scores are int32: the sum, or twice the sum, + bias[column]. With a_scale (M,), and perhaps b_scale
    (N,), they are float32: float32(sum) * (a_scale * b_scale) + bias. mask: bool (N,), which columns may be found.
    k is at most N; where fewer are found, the score is the least int32 or -inf, and the position -1.
    """
    order = Order(k, a_scale is not None, shift=int(doubled), has_mask=mask is not None)
    values = np.empty((len(a), k), np.float32 if order.is_scaled else np.int32)
    found = np.empty((len(a), k), np.int64)
    of_rows = None if a_scale is None else a_scale[:, None]
    of_columns, added = (None if each is None else each[None] for each in (b_scale, bias))
    step = max(1, MOST_CANDIDATES // (k + 16))
    for first in range(0, len(a), step):
        rows = slice(first, first + step)
        scales = None if of_rows is None else of_rows[rows]
        operands = Operands(a[rows], vectors.T, scales, None, of_columns, None, added, mask)
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
    keys = scores if space.metric == "l2" else -scores
    order = np.lexsort((np.where(found < 0, np.iinfo(np.int64).max, found), keys))[:, :k]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(found, order, 1)


def _exact(space: Space, queries: Array, candidates: Array) -> Array:
    """Return the scores of queries (M, D) with candidates (M, C, D), float32 (M, C)."""
    sums = pair_sums(queries, candidates, distance=space.metric == "l2")
    if space.metric == "cosine":
        flat = candidates.reshape(-1, space.depth)
        squares = pair_sums(flat, flat[:, None]).reshape(sums.shape)
        lengths = np.sqrt(pair_sums(queries, queries[:, None])) * np.sqrt(squares)
        sums = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    return sums.astype(np.float32)
