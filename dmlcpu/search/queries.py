"""Queries as bytes, and what has to be multiplied with and added to their products."""

from typing import NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.search.quantizer import as_float32, byte_squares, pair_sums, quantize
from dmlcpu.search.spaces import Space, middle_of


class Queries(NamedTuple):
    """Queries as the products read them."""

    codes: Array  # int8 or uint8 (M, D)
    scales: Array | None  # float32 (M,): query = scale * code; None: the codes are the query
    squares: Array  # int32 or float64 (M,): the sum of the query's squares, of codes if there are scales
    constants: Array | None = None  # float64 (M,): what the centres of affine vectors add to each product


def encode(operator: str, queries: Array, space: Space, dtype: np.dtype[np.generic]) -> Queries:
    """Return checked queries (M, D) of bytes or floats for vectors of a type; refuse numbers that are not finite.

    Each query is quantized by itself. If vectors are affine, value = step * (byte - middle) + centre, then
    q . value = (q * step) . byte - middle * sum(q * step) + q . centre. So the steps go to the query, and the rest is
    one number a query. For distances, the centres are subtracted from both.
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
    if space.metric == "l2":
        values = values - space.centres()  # distances stay, and numbers get smaller
    folded = quantize(operator, "queries", values * space.steps())
    constants = np.zeros(len(values))
    if space.metric != "l2":
        centres = np.ascontiguousarray(np.broadcast_to(space.centres(), values.shape))
        constants = pair_sums(values, centres[:, None])[:, 0]
    sums = folded.codes.sum(axis=1, dtype=np.int64)  # of what is multiplied: so the middle byte adds 0
    constants -= middle_of(dtype) * sums * folded.scales.astype(np.float64)
    return Queries(folded.codes, folded.scales, pair_sums(values, values[:, None])[:, 0], constants)
