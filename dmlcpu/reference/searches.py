"""Exact search among vectors of bytes or floats in plain NumPy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.annotations import Array, Metric

_NEARLY_ONE = 1 - 2.0**-40  # cosines from here on are checked exactly, as vectors may be multiples of each other
_LEAST, _MOST = 2.0**-900, 2.0**1000  # bounds of a product of two sums of squares whose root is taken at once


def knn(
    queries: "ArrayLike",
    vectors: "ArrayLike",
    k: int,
    metric: "Metric" = "ip",
    *,
    mask: "ArrayLike | None" = None,
    exclude: "Sequence[Sequence[int]] | None" = None,
) -> "tuple[Array, Array]":
    """Compute all scores and sort them stably. See `dmlcpu.search.knn`.

    exclude: for each query, the positions that it must not find.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import reference
    >>> reference.knn(np.array([[1, 1]], np.int8), np.array([[3, 0], [1, 2], [9, 9]], np.int8), 2, metric="l2")
    (array([[1., 5.]]), array([[1, 0]]))
    """
    if exclude is not None:
        mask = np.full((len(exclude), len(np.asarray(vectors))), True if mask is None else mask)
        for row, own in enumerate(exclude):
            mask[row, list(own)] = False
    search = int8_knn if np.asarray(vectors).itemsize == 1 else exact_knn
    return search(queries, vectors, k, metric, mask=mask)


def exact_knn(
    queries: "ArrayLike",
    vectors: "ArrayLike",
    k: int,
    metric: "Metric" = "ip",
    *,
    mask: "ArrayLike | None" = None,
) -> "tuple[Array, Array]":
    """Compute all scores of floats in float64, as `dmlcpu.search.FloatIndex` defines them, and sort them stably.

    mask: bool (N,) or (M, N), True for what may be found.

    Examples
    --------
    >>> from dmlcpu import reference
    >>> reference.exact_knn([[0.5, 1.0]], [[3.0, 0.0], [1.0, 2.0], [2.0, 0.0]], 2, metric="cosine")
    (array([[1.       , 0.4472136]]), array([[1, 0]]))
    """
    q, v = (np.asarray(x).astype(np.float64) for x in (queries, vectors))
    rows, shape = np.atleast_2d(q), (len(np.atleast_2d(q)), k)
    allowed = np.broadcast_to(True if mask is None else np.asarray(mask, bool), (len(rows), len(v)))
    scores = np.full(shape, np.inf if metric == "l2" else -np.inf)
    indices = np.full(shape, -1)
    for row, query in enumerate(rows):
        found = _exact_scores(query, v, metric)
        places = np.flatnonzero(allowed[row])
        best = places[np.argsort(found[places] if metric == "l2" else -found[places], kind="stable")][:k]
        scores[row, : len(best)], indices[row, : len(best)] = found[best], best
    return (scores[0], indices[0]) if q.ndim == 1 else (scores, indices)


def _exact_scores(query: Array, v: Array, metric: str) -> Array:
    """Return the scores of one query (D,) with all vectors (N, D), float64."""
    if metric == "l2":
        return sums_by_eight(np.square(query - v))
    products = sums_by_eight(query * v) + 0.0  # no score is -0
    if metric == "ip":
        return products
    own, squares = sums_by_eight(query * query), sums_by_eight(v * v)
    scores = np.zeros(len(v))
    some = np.flatnonzero((squares > 0) & (own > 0))
    if not some.size:
        return scores
    with np.errstate(over="ignore"):
        both = own * squares[some]
    roots = np.where((both > _LEAST) & (both < _MOST), np.sqrt(both), np.sqrt(own) * np.sqrt(squares[some]))
    scores[some] = np.clip(products[some] / roots, -1, 1)
    near, pivot = np.flatnonzero(np.abs(scores) > _NEARLY_ONE), np.argmax(np.abs(query))
    same = near[(query * v[near, pivot, None] == v[near] * query[pivot]).all(axis=1)]
    scores[same] = np.sign(scores[same])
    return scores


def sums_by_eight(terms: Array) -> Array:
    """Return sums along the last axis: of every eighth term, then of halves of these sums: 0 and 4, ..., 0 and 1."""
    sums = np.zeros((*terms.shape[:-1], 8))
    for start in range(0, terms.shape[-1], 8):
        eight = terms[..., start : start + 8]
        sums[..., : eight.shape[-1]] += eight
    for half in (4, 2, 1):
        sums = sums[..., :half] + sums[..., half:]
    return sums[..., 0]


def int8_knn(
    queries: "ArrayLike",
    vectors: "ArrayLike",
    k: int,
    metric: "Metric" = "ip",
    *,
    mask: "ArrayLike | None" = None,
    rescore: int | None = None,
) -> "tuple[Array, Array]":
    """Compute what `dmlcpu.search.Int8Index` finds: floats are quantized. mask: bool (N,) or (M, N)."""
    q, v = np.atleast_2d(np.asarray(queries)), np.asarray(vectors)
    selecting, scores = _scores_of_bytes(q, v, metric)
    worst = np.inf if metric == "l2" else -np.inf
    absent = ~np.broadcast_to(True if mask is None else np.asarray(mask, bool), selecting.shape)
    order = np.argsort(np.where(absent, np.inf, -selecting), axis=1, kind="stable")
    order = np.where(np.take_along_axis(absent, order, 1), -1, order)
    if rescore is not None:
        candidates = order[:, : k * rescore]
        exact = _scores_of_floats(q, v, metric)
        keys = np.full(exact.shape, np.inf)
        for row, found in enumerate(candidates):
            keys[row, found[found >= 0]] = (exact if metric == "l2" else -exact)[row, found[found >= 0]]
        order = np.argsort(keys, axis=1, kind="stable")
        order = np.where(np.isinf(np.take_along_axis(keys, order, 1)), -1, order)
        scores = exact
    order = np.pad(order, ((0, 0), (0, k)), constant_values=-1)[:, :k]
    padded = np.pad(scores, ((0, 0), (0, 1)), constant_values=worst)
    found = np.where(order < 0, worst, np.take_along_axis(padded, order, 1)).astype(scores.dtype)
    return (found[0], order[0]) if np.ndim(queries) == 1 else (found, order)


def _scores_of_bytes(q: Array, v: Array, metric: str) -> tuple[Array, Array]:
    """Return selection values, of which the largest are the best, and scores, for l2 the distances; all (M, N)."""
    a, a_scale = quantized(q)
    b, b_scale = quantized(v)
    sums, a_squares, b_squares = a @ b.T, (a * a).sum(axis=1), (b * b).sum(axis=1)
    if metric == "cosine":
        with np.errstate(divide="ignore"):
            of_a, of_b = (
                np.where(x == 0, 0, 1 / np.sqrt(x.astype(np.float64))).astype(np.float32)
                for x in (a_squares, b_squares)
            )
        scores = sums.astype(np.float32) * (of_a[:, None] * of_b)
        return _settled(scores, sums, a_squares[:, None] * b_squares)
    if q.itemsize == v.itemsize == 1:
        selecting = sums if metric == "ip" else 2 * sums - b_squares
        scores = selecting if metric == "ip" else a_squares[:, None] - selecting
        return selecting.astype(np.float64), scores.astype(np.float64)
    if metric == "ip":
        scores = sums.astype(np.float32) * (a_scale[:, None] * b_scale)
        return scores, scores
    a_norms, b_norms = (
        (squares * scale.astype(np.float64) ** 2).astype(np.float32)
        for squares, scale in ((a_squares, a_scale), (b_squares, b_scale))
    )
    selecting = sums.astype(np.float32) * ((2 * a_scale)[:, None] * b_scale) - b_norms
    return selecting, np.maximum(a_norms[:, None] - selecting, 0)


def _settled(scores: Array, sums: Array, squares: Array) -> tuple[Array, Array]:
    """Return selection values and cosines: cosines near 1 are exact, and 1 only if they are exactly 1."""
    near = scores > np.float32(1 - 2.0**-18)
    roots = np.sqrt(np.where(near, squares, 1))
    exact = np.where(sums * sums == squares, 1.0, np.minimum(sums / roots, 1 - 2.0**-53))
    nearly = np.where(exact == 1, np.float32(1), np.minimum(exact.astype(np.float32), np.float32(1 - 2.0**-24)))
    return np.where(near, 2 * exact, scores), np.where(near, nearly, np.clip(scores, -1, 1))


def quantized(x: Array) -> tuple[Array, Array]:
    """Return codes as int64, and the scale of each row: 1 for rows of bytes."""
    if x.itemsize == 1:
        return x.astype(np.int64), np.ones(len(x), np.float32)
    x = x.astype(np.float32)
    scale = np.maximum(np.abs(x).max(axis=1, initial=0) / np.float32(127), np.float32(2.0**-126))
    return np.rint(x / scale[:, None]).astype(np.int64), scale


def _scores_of_floats(q: Array, v: Array, metric: str) -> Array:
    """Return the scores of float32 numbers: float64 sums of every fourth term each, then their sum, rounded once."""
    a, b = (x.astype(np.float32).astype(np.float64) for x in (q, v))
    if metric == "l2":
        return sums_by_four((a[:, None] - b) ** 2).astype(np.float32)
    scores = sums_by_four(a[:, None] * b)
    if metric == "cosine":
        lengths = np.sqrt(sums_by_four(a * a))[:, None] * np.sqrt(sums_by_four(b * b))
        scores = np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0)
    return scores.astype(np.float32)


def sums_by_four(terms: Array) -> Array:
    """Return (s0 + s1) + (s2 + s3) along the last axis; s0 has terms 0, 4, 8 and so on."""
    sums = [np.zeros(terms.shape[:-1]) for _ in range(4)]
    for i in range(terms.shape[-1]):
        sums[i % 4] = sums[i % 4] + terms[..., i]
    result: Array = (sums[0] + sums[1]) + (sums[2] + sums[3])
    return result
