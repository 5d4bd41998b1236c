"""The k best columns of products of bytes."""

from typing import NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.products.selection import Operands, Order, select as select_fused

# k times the queries that are selected together: 10 queries if k is 100,000. Each thread keeps up to two numbers for
# each.
MOST_CANDIDATES = 1 << 20


class Best(NamedTuple):
    """The best columns of each row, the best first; of equal scores, the lower column first."""

    values: Array  # int32 or float32 (M, k); the least int32, or -inf, where there are fewer
    indices: Array  # int64 (M, k); -1 where there are fewer


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
) -> Best:
    """Return the k greatest scores of each row of a (M, D) with vectors (N, D), bytes; k is at most N.

    Without scales, scores are int32: the sum, or twice the sum, + bias[column]. With a_scale (M,), and perhaps b_scale
    (N,), they are float32: float32(sum) * (a_scale * b_scale) + bias. mask: bool (N,), which columns may be found.
    """
    order = Order(k, a_scale is not None, shift=int(doubled), has_mask=mask is not None)
    operands = Operands(
        a,
        vectors.T,
        None if a_scale is None else a_scale[:, None],
        None,
        None if b_scale is None else b_scale[None],
        None,
        None if bias is None else bias[None],
        mask,
    )
    shape = (len(a), k)
    best = Best(np.empty(shape, np.float32 if order.is_scaled else np.int32), np.empty(shape, np.int64))
    step = max(1, MOST_CANDIDATES // (k + 16))
    for first in range(0, len(a), step):
        rows = slice(first, first + step)
        scales = None if operands.a_scale is None else operands.a_scale[rows]
        select_fused(operands._replace(a=a[rows], a_scale=scales), order, best.values[rows], best.indices[rows])
    return best
