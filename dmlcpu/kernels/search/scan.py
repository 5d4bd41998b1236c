"""All vectors are scored exactly: the search without codes, for data on which codes fail.

Products are formed for a tile of queries and vectors. If they are not themselves the scores, they bound the scores, and
only tiles with a vector that may be among the best are scored.
"""

import numpy as np

from dmlcpu.kernels.search.best import BEST, SCRATCH, WIDTH, products, push, rank_of, sums_of
from dmlcpu.kernels.search.constants import (
    COSINE,
    DISTANCE,
    DISTANCES,
    PRODUCTS,
    ROUNDED_PRODUCTS,
    SUBNORMAL_ERROR,
    SUM_ERROR,
)
from dmlcpu.kernels.search.float_sums import make_tile_sums
from dmlcpu.kernels.walk import share
from dmlcpu.runtime.intrinsics import as_words
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record, record_at

HEIGHT = 4  # queries whose sums are formed together
BLOCK = 64  # vectors that are widened, and stay in a near cache for all queries
SCAN = record(
    rows=np.int64,
    first=np.int64,  # the position of the first vector
    count=np.int64,  # the number of vectors
    bits_step=np.int64,  # bytes from one query's line of bits to the next; 0: all queries share a line
    is_masked=np.int64,
    share_cells=np.int64,
    best=BEST,
)

tile_products, tile_rounded_products, tile_distances = (
    make_tile_sums(HEIGHT, WIDTH, terms) for terms in (PRODUCTS, ROUNDED_PRODUCTS, DISTANCES)
)


@device
def product_tile(height, queries, query_at, vectors, numbers, sums, best):
    """Write the products of one query, or of HEIGHT queries, with WIDTH vectors."""
    if height == 1:
        products(queries, query_at, vectors, numbers, 0, best.depth, sums)
    else:
        tile_products(queries, query_at, vectors, numbers, 0, best.depth, sums)


@device
def exact_tile(height, queries, query_at, vectors, numbers, sums, best):
    """Write the sums of one query, or of HEIGHT queries, with WIDTH vectors."""
    if height == 1:
        sums_of(queries, query_at, vectors, numbers, sums, best)
    elif best.terms == PRODUCTS:
        tile_products(queries, query_at, vectors, numbers, 0, best.depth, sums)
    elif best.terms == DISTANCES:
        tile_distances(queries, query_at, vectors, numbers, 0, best.depth, sums)
    else:
        tile_rounded_products(queries, query_at, vectors, numbers, 0, best.depth, sums)


@device
def may_reach(product, query_square, square, least, metric):
    """Return whether the rank of two vectors may reach the least; product: theirs, perhaps rounded in another way."""
    if least == -np.inf:
        return True
    squares = query_square + square
    if metric == DISTANCE:
        return 2 * product - squares + (SUM_ERROR * squares + SUBNORMAL_ERROR) >= least
    greatest = product + (SUM_ERROR * squares + SUBNORMAL_ERROR)
    if metric != COSINE:
        return greatest >= least
    return least <= 0 or (
        greatest > 0 and greatest * greatest >= least * least * query_square * square * (1 - SUM_ERROR)
    )


@device
def least_rank(heap, count, floor, ranks, k):
    """Return the rank that the next vector has to reach."""
    return max(floor, ranks[heap]) if count == k else floor


@device
def any_reaches(sums, height, row, number, start, end, query_squares, squares, floors, ranks, counts, heaps, work):
    """Return whether a vector of a tile may be among the best of a query."""
    k = work.best.k
    for i in range(row, row + height):
        least = least_rank((heaps + i) * k, counts[heaps + i], floors[i], ranks, k)
        for j in range(number, min(number + WIDTH, end)):
            product = sums[(i - row) * WIDTH + j - number]
            if may_reach(product, query_squares[i], squares[j - start], least, work.best.metric):
                return True
    return False


@device
def keep_best(sums, height, row, number, start, end, origin, queries, query_squares, vectors, squares, bits, floors,
              ranks, positions, counts, heaps, work):  # fmt: skip
    """Add a tile's vectors to the heaps of its queries."""
    best, k = work.best, work.best.k
    for i in range(row, row + height):
        heap, line = (heaps + i) * k, i * work.bits_step
        for j in range(number, min(number + WIDTH, end)):
            count, position, total = counts[heaps + i], work.first + j, sums[(i - row) * WIDTH + j - number]
            least = least_rank(heap, count, floors[i], ranks, k)
            if best.metric == COSINE and not may_reach(total, query_squares[i], squares[j - start], least, COSINE):
                continue
            rank = rank_of(total, queries, i * best.depth, query_squares[i], vectors, (j - origin) * best.depth,
                           squares, j - start, best)  # fmt: skip
            # A share sees positions in ascending order, so equal ranks that a full heap has come first.
            if rank < least or (count == k and rank == ranks[heap]):
                continue
            if work.is_masked == 0 or bits[line + (position >> 3)] >> (position & 7) & 1 != 0:
                counts[heaps + i] = push(rank, position, ranks, positions, heap, count, k)


@device
def scan_block(start, end, origin, is_filtered, vectors, squares, queries, query_squares, bits, floors, ranks,
               positions, counts, heaps, numbers, sums, work):  # fmt: skip
    """Score vectors start to end for all queries.

    vectors: from number `origin` on; squares: from `start` on; is_filtered: products decide which are scored.
    """
    depth, row = work.best.depth, np.intp(0)  # a literal 0 would compile helpers twice
    while row < work.rows:
        height = HEIGHT if row + HEIGHT <= work.rows else 1
        for number in range(start, end, WIDTH):
            for j in range(WIDTH):
                numbers[j] = min(number + j, end - 1) - origin
            if is_filtered:
                product_tile(height, queries, row * depth, vectors, numbers, sums, work.best)
                if not any_reaches(sums, height, row, number, start, end, query_squares, squares, floors, ranks, counts,
                                   heaps, work):  # fmt: skip
                    continue
            exact_tile(height, queries, row * depth, vectors, numbers, sums, work.best)
            keep_best(sums, height, row, number, start, end, origin, queries, query_squares, vectors, squares, bits,
                      floors, ranks, positions, counts, heaps, work)  # fmt: skip
        row += height


@device
def widen(vectors, first, last, depth, wide):
    """Copy vectors as float64."""
    for i in range((last - first) * depth):
        wide[i] = vectors[first * depth + i]


@device
def square_all(vectors, count, numbers, sums, squares, best):
    """Write the sums of squares of vectors, rounded in some way."""
    for number in range(count):
        for j in range(WIDTH):
            numbers[j] = number
        products(vectors, number * best.depth, vectors, numbers, 0, best.depth, sums)
        squares[number] = sums[0]


@kernel
def scan(part, parts, queries, query_squares, vectors, squares, bits, floors, ranks, positions, counts, works, scratch):
    """Add the best of a share of the vectors to each query's heap of this part.

    queries: float64 (rows, depth), query_squares: float64 (rows,); vectors: floats (count, depth), squares: float64
    (count,), for cosines; bits: a bit for each position, in lines of bytes; floors: float64 (rows,): lower ranks are
    skipped; ranks: float64, positions: int64, both (parts, rows, k); counts: int64 (parts, rows), of each heap. All
    are flat.
    """
    work = record_at(works, 0, SCAN)
    best, own, heaps = work.best, part * work.share_cells, part * work.rows
    numbers, sums = as_words(scratch, own, np.int64), as_words(scratch, own + WIDTH, np.float64)
    of_block = as_words(scratch, own + SCRATCH, np.float64)
    wide = as_words(scratch, own + SCRATCH + BLOCK, np.float64)
    first, last = share(part, parts, work.count)
    for start in range(first, last, BLOCK):
        end = min(start + BLOCK, last)
        if best.metric == COSINE:
            for i in range(start, end):
                of_block[i - start] = squares[i]
        if work.rows < HEIGHT:  # each vector is read once
            scan_block(start, end, 0, False, vectors, of_block, queries, query_squares, bits, floors, ranks, positions,
                       counts, heaps, numbers, sums, work)  # fmt: skip
            continue
        widen(vectors, start, end, best.depth, wide)
        if best.terms != PRODUCTS and best.metric != COSINE:
            square_all(wide, end - start, numbers, sums, of_block, best)
        scan_block(start, end, start, best.terms != PRODUCTS, wide, of_block, queries, query_squares, bits, floors,
                   ranks, positions, counts, heaps, numbers, sums, work)  # fmt: skip
