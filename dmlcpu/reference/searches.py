"""Exact search among int8 vectors in plain NumPy."""

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.annotations import Array, Metric


def knn(
    queries: "ArrayLike",
    vectors: "ArrayLike",
    k: int,
    metric: "Metric" = "ip",
    *,
    mask: "ArrayLike | None" = None,
    rescore: int | None = None,
) -> "tuple[Array, Array]":
    """Compute all scores and sort them stably. See `dmlcpu.search.knn`.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import reference
    >>> reference.knn(np.array([[1, 1]], np.int8), np.array([[3, 0], [1, 2], [9, 9]], np.int8), 2, metric="l2")
    (array([[1., 5.]]), array([[1, 0]]))
    """
    q, v = np.atleast_2d(np.asarray(queries)), np.asarray(vectors)
    selecting, scores = _scores_of_bytes(q, v, metric)
    worst = np.inf if metric == "l2" else -np.inf
    absent = np.zeros(len(v), bool) if mask is None else ~np.asarray(mask)
    order = np.argsort(np.where(absent, np.inf, -selecting), axis=1, kind="stable")
    order = np.where(np.take_along_axis(np.broadcast_to(absent, order.shape), order, 1), -1, order)
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
    """Return what selects the best, the largest, and the scores; of l2 distances, all (M, N)."""
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
        return scores, scores
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
