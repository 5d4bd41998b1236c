"""Products, or squared distances, of pairs of rows of float32, in float64 and in one order.

Element i is added to sum i % 4; the result is (sum 0 + sum 1) + (sum 2 + sum 3). Every vector unit gives the same.
"""

import numpy as np

from dmlcpu.kernels.walk import share
from dmlcpu.runtime.jit import device
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import record, record_at

SUMS = 4
WORK = record(pairs=np.int64, group=np.int64, depth=np.int64, is_distance=np.int64)


@device
def term(a, b, is_distance):
    """Return a * b, or (a - b)**2."""
    one, other = np.float64(a), np.float64(b)
    difference = one - other
    return difference * difference if is_distance else one * other


@device
def pair_sum(a, b, is_distance):
    """Return the sum of the terms of two rows."""
    first = second = third = fourth = 0.0
    whole = a.size // SUMS * SUMS
    for i in range(0, whole, SUMS):
        first += term(a[i], b[i], is_distance)
        second += term(a[i + 1], b[i + 1], is_distance)
        third += term(a[i + 2], b[i + 2], is_distance)
        fourth += term(a[i + 3], b[i + 3], is_distance)
    if whole < a.size:
        first += term(a[whole], b[whole], is_distance)
    if whole + 1 < a.size:
        second += term(a[whole + 1], b[whole + 1], is_distance)
    if whole + 2 < a.size:
        third += term(a[whole + 2], b[whole + 2], is_distance)
    return (first + second) + (third + fourth)


@kernel
def pair_sums(part, parts, a, b, sums, works):
    """Write the sums of a share of the pairs: row i of b with row i // group of a. All are flat; sums: float64."""
    work = record_at(works, 0, WORK)
    group, depth, is_distance = work.group, work.depth, work.is_distance != 0
    first, last = share(part, parts, work.pairs)
    for pair in range(first, last):
        left, right = pair // group * depth, pair * depth
        sums[pair] = pair_sum(a[left : left + depth], b[right : right + depth], is_distance)
