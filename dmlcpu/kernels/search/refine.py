"""Candidates of a query are scored exactly, the most promising first, until no other vector can be among the k best.

Bounds fall from one candidate to the next. Once the next bound is below the k-th best rank, all remaining candidates
are worse. Vectors that were never candidates are worse as well: their bounds do not exceed that of the last candidate.
"""

import math

import numpy as np

from dmlcpu.kernels.search.best import BEST, SCRATCH, WIDTH, push, rank_of, sort, sums_of
from dmlcpu.kernels.search.constants import DISTANCE, SUBNORMAL_ERROR, SUM_ERROR
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import as_words, line_of, prefetch_to_second
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record, record_at

REFINE = record(rows=np.int64, count=np.int64, is_all=np.int64, best=BEST)
FACTS = 2  # of a query
# Candidates whose vectors are prefetched, and numbers of each. 1,024 queries with 280 candidates of 384 float32: 24 ms;
# with 64 numbers 29, with 64 into the first cache 34 (Zen 4).
_AHEAD, _NUMBERS = 8, 512


@device
def bound_of(bound, factor, added, metric):
    """Return an upper bound of the ranks of vectors with this bound of the codes."""
    result = factor * np.float64(bound) + added
    return min(result, 0.0) * (1.0 - SUM_ERROR) + SUBNORMAL_ERROR if metric == DISTANCE else result


@device
def prefetch_vector(vectors, first, depth):
    """Prefetch the beginning of a vector."""
    for place in range(0, min(depth, _NUMBERS), line_of(vectors)):
        prefetch_to_second(vectors, first + place)


@device
def score_candidates(row, first, count, queries, query_squares, vectors, squares, candidates, ranks, positions, found,
                     numbers, sums, best):  # fmt: skip
    """Add candidates[first : first + count] to the best of a query; return how many of these there are."""
    for j in range(WIDTH):
        numbers[j] = candidates[first + min(j, count - 1)]
    sums_of(queries, row * best.depth, vectors, numbers, sums, best)
    for j in range(count):
        number = numbers[j]
        rank = rank_of(sums[j], queries, row * best.depth, query_squares[row], vectors, number * best.depth, squares,
                       number, best)  # fmt: skip
        found = push(rank, number, ranks, positions, row * best.k, found, best.k)
    return found


@kernel
def refine(part, parts, queries, query_squares, vectors, squares, bounds, candidates, rests, affine, ranks, positions,
           facts, works, scratch):  # fmt: skip
    """Find the k best candidates of a share of the queries.

    queries: float64 (rows, depth); vectors: floats (N, depth); squares: float64 (N,), for cosines; bounds: float32,
    falling, and candidates: int64, -1 after the last, both (rows, count); rests: float32 (rows,): if there are fewer
    than count candidates, the greatest bound of any other vector, or -inf if all others are worse; affine: float64
    (rows, 2): a bound times the first plus the second bounds the rank; ranks: float64, positions: int64, both
    (rows, k); facts: int64 (rows, FACTS): how many candidates were scored, and whether the k best are proven to be the
    best of all. All are flat.
    """
    work = record_at(works, 0, REFINE)
    best, count, k = work.best, work.count, work.best.k
    numbers, sums = as_words(scratch, part * SCRATCH, np.int64), as_words(scratch, part * SCRATCH + WIDTH, np.float64)
    first, last = share(part, parts, work.rows)
    for row in range(first, last):
        begin, end, found, is_proven = row * count, row * count, np.intp(0), work.is_all != 0
        factor, added = affine[2 * row], affine[2 * row + 1]
        stop = begin + count
        while stop > begin and candidates[stop - 1] < 0:
            stop -= 1
        rest = rests[row] if stop < begin + count else bounds[stop - 1]
        is_proven |= rest == -math.inf
        for ahead in range(begin, min(begin + _AHEAD, stop)):
            prefetch_vector(vectors, candidates[ahead] * best.depth, best.depth)
        while end < stop:
            if found == k and bound_of(bounds[end], factor, added, best.metric) < ranks[row * k]:
                is_proven = True
                break
            for ahead in range(end + _AHEAD, min(end + _AHEAD + WIDTH, stop)):
                prefetch_vector(vectors, candidates[ahead] * best.depth, best.depth)
            n = min(WIDTH, stop - end)
            found = score_candidates(row, end, n, queries, query_squares, vectors, squares, candidates, ranks,
                                     positions, found, numbers, sums, best)  # fmt: skip
            end += n
        if not is_proven and found == k:
            is_proven = bound_of(rest, factor, added, best.metric) < ranks[row * k]
        sort(ranks, positions, row * k, found)
        for i in range(found, k):
            ranks[row * k + i], positions[row * k + i] = -math.inf, -1
        facts[FACTS * row], facts[FACTS * row + 1] = end - begin, is_proven
