"""The k best of a query: a heap of ranks and positions whose root is the worst, and the rank of a pair of vectors.

The greatest rank is the best; among equal ranks, the lowest position. A rank is the product, the cosine, or the negated
squared distance.
"""

import math

import numpy as np

from dmlcpu.kernels.search.constants import DISTANCE, DISTANCES, PRODUCT, PRODUCTS, ROUNDED_PRODUCTS
from dmlcpu.kernels.search.float_sums import make_tile_sums
from dmlcpu.runtime.jit import device, inlined
from dmlcpu.runtime.records import record

_NEARLY_ONE = 1.0 - 2.0**-40
# If a product of squares is in this range, its root has full precision.
_LEAST, _MOST = 2.0**-900, 2.0**1000

SCRATCH = 32  # cells of a part: numbers of rows, then sums
BEST = record(k=np.int64, depth=np.int64, metric=np.int64, terms=np.int64)  # terms: see constants.py

WIDTH = 4  # vectors whose sums are formed together

products, rounded_products, distances = (
    make_tile_sums(1, WIDTH, terms) for terms in (PRODUCTS, ROUNDED_PRODUCTS, DISTANCES)
)


@device
def sums_of(queries, query_at, vectors, numbers, sums, best):
    """Write the sums of a query with each of WIDTH vectors, given by their numbers."""
    if best.terms == PRODUCTS:
        products(queries, query_at, vectors, numbers, 0, best.depth, sums)
    elif best.terms == DISTANCES:
        distances(queries, query_at, vectors, numbers, 0, best.depth, sums)
    else:
        rounded_products(queries, query_at, vectors, numbers, 0, best.depth, sums)


@inlined
def is_worse(rank, position, other_rank, other_position):
    """Return whether a vector comes after another."""
    return rank < other_rank or (rank == other_rank and position > other_position)


@device
def push(rank, position, ranks, positions, at, count, k):
    """Add a vector to the heap of `count` at ranks[at:], or replace the worst; return the new count."""
    if count < k:
        child = count
        while child > 0:
            parent = (child - 1) // 2
            if not is_worse(rank, position, ranks[at + parent], positions[at + parent]):
                break
            ranks[at + child], positions[at + child] = ranks[at + parent], positions[at + parent]
            child = parent
        ranks[at + child], positions[at + child] = rank, position
        return count + 1
    if k > 0 and is_worse(ranks[at], positions[at], rank, position):
        sink(rank, position, ranks, positions, at, k)
    return count


@device
def sink(rank, position, ranks, positions, at, count):
    """Put a vector at the root, and move it down to where it belongs."""
    parent = 0
    while 2 * parent + 1 < count:
        child = 2 * parent + 1
        if child + 1 < count and is_worse(
            ranks[at + child + 1], positions[at + child + 1], ranks[at + child], positions[at + child]
        ):
            child += 1
        if not is_worse(ranks[at + child], positions[at + child], rank, position):
            break
        ranks[at + parent], positions[at + parent] = ranks[at + child], positions[at + child]
        parent = child
    ranks[at + parent], positions[at + parent] = rank, position


@device
def sort(ranks, positions, at, count):
    """Sort a heap, the best first."""
    for last in range(count - 1, 0, -1):
        rank, position = ranks[at + last], positions[at + last]
        ranks[at + last], positions[at + last] = ranks[at], positions[at]
        sink(rank, position, ranks, positions, at, last)


@device
def cosine(product, query_square, square, queries, query_at, vectors, vector_at, depth):
    """Return the cosine of two vectors: 0 if one has no length, 1 for equal directions, never beyond 1 or -1."""
    if query_square == 0 or square == 0:
        return 0.0
    both = query_square * square
    root = math.sqrt(both) if _LEAST < both < _MOST else math.sqrt(query_square) * math.sqrt(square)
    found = min(max(product / root, -1.0), 1.0)
    if abs(found) > _NEARLY_ONE and are_parallel(queries, query_at, vectors, vector_at, depth):
        return 1.0 if found > 0 else -1.0
    return found


@device
def are_parallel(a, a_at, b, b_at, depth):
    """Return whether a is a multiple of b. Products of float32 are exact, those of float64 rounded."""
    pivot = 0
    for d in range(depth):
        if abs(a[a_at + d]) > abs(a[a_at + pivot]):
            pivot = d
    of_a, of_b = np.float64(a[a_at + pivot]), np.float64(b[b_at + pivot])
    differs = False
    for d in range(depth):
        differs |= np.float64(a[a_at + d]) * of_b != np.float64(b[b_at + d]) * of_a
    return not differs


@device
def rank_of(total, queries, query_at, query_square, vectors, vector_at, squares, square_at, best):
    """Return the rank of a vector; total: the sum of its terms. A NaN, which a file may contain, is the worst."""
    if total != total:
        return -math.inf
    if best.metric == PRODUCT:
        return total
    if best.metric == DISTANCE:
        return -total
    return cosine(total, query_square, squares[square_at], queries, query_at, vectors, vector_at, best.depth)
