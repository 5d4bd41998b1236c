"""The tasks of `dmlcpu.interop.dask`: functions on NumPy arrays, without Dask."""

import contextlib
import math
import multiprocessing
import re
import threading
from typing import Any

import numpy as np

from dmlcpu.annotations import OutOfRange, Reduction
from dmlcpu.common.arguments import Array, as_array
from dmlcpu.common.parameters import check_scale
from dmlcpu.errors import DmlError
from dmlcpu.indexing.ranges import is_out
from dmlcpu.kernels.gemm.work import NARROW
from dmlcpu.operators.matmul_integer.function import matmul_integer
from dmlcpu.operators.quantized_matmul.function import quantized_matmul
from dmlcpu.operators.scatter_nd.call import out_of_range
from dmlcpu.operators.scatter_nd.function import scatter_nd
from dmlcpu.operators.top_k.function import top_k
from dmlcpu.products.arguments import PARAMETERS, SCALES, converted
from dmlcpu.runtime.threads import limit_threads

Pair = tuple[Array, Array]


def _threads() -> contextlib.AbstractContextManager[object]:
    """Use one thread, unless Dask's scheduler is the synchronous one: other tasks use the other cores."""
    is_only = threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None
    return contextlib.nullcontext() if is_only else limit_threads(1)


def top_k_of_chunk(
    x: Array, *, k: int, axis: int, starts: tuple[int, ...], block_id: tuple[int, ...], options: dict[str, Any]
) -> Pair:
    """Return the winners of a chunk, and their positions in the whole array. starts: of the chunks along the axis."""
    with _threads():
        values, indices = top_k(x, min(k, x.shape[axis]), axis=axis, **options)
    return values, indices + indices.dtype.type(starts[block_id[axis]])


def same(pair: Pair, axis: Any, keepdims: bool) -> Pair:
    """Return a pair unchanged: da.reduction needs a function of chunks, and the chunks hold winners already."""
    return pair


def merge(pairs: list[Pair], *, k: int, axis: tuple[int], keepdims: bool, options: dict[str, Any]) -> Pair:
    """Return the winners of several chunks' sorted winners; among equal ones the earlier chunk's come first."""
    if len(pairs) == 1:
        return pairs[0]
    (along,) = axis
    values, indices = [np.concatenate(arrays, along) for arrays in zip(*pairs, strict=True)]
    with _threads():
        values, places = top_k(values, min(k, values.shape[along]), axis=along, **options)
    return values, np.take_along_axis(indices, places, along)


def first_out(indices: Array, *, sizes: tuple[int, ...], start: int) -> tuple[int, int] | None:
    """Return place and value of a chunk's first coordinate out of range. start: tuples in the chunks before."""
    bad = is_out(indices, sizes)
    if not bad.any():
        return None
    place = int(bad.argmax())
    return start * indices.shape[-1] + place, int(indices.flat[place])


def refuse_out(
    found: list[tuple[int, int] | None], *, shape: tuple[int, ...], dtype: np.dtype[Any], x_shape: tuple[int, ...]
) -> None:
    """Raise the function's error about the first coordinate out of range. shape, dtype: of the whole indices."""
    bad = [each for each in found if each is not None]
    if bad:
        place, value = min(bad)
        raise out_of_range(value, place, (shape, dtype), x_shape)


def split(indices: Array, updates: Array, *, chunks: tuple[tuple[int, ...], ...], mode: OutOfRange) -> dict[int, Pair]:
    """Return the updates of each chunk of x, by its number, in update order, with indices into that chunk.

    chunks: of the dimensions that indices have coordinates for. Tuples out of range are dropped, unless mode is "clip".
    """
    sizes = np.array([sum(each) for each in chunks], np.int64)
    bad = is_out(indices, tuple(sizes))
    any_bad = bool(bad.any())
    if any_bad and mode != "clip":
        within = ~bad.any(-1)
        indices, updates = indices[within], updates[within]
    elif any_bad and indices.dtype.kind == "u":
        indices = np.where(bad, sizes - 1, indices.astype(np.int64))
    places = indices.astype(np.int64)
    np.add(places, sizes, out=places, where=places < 0)
    if any_bad and mode == "clip":
        np.clip(places, 0, sizes - 1, out=places)
    if all(len(each) == 1 for each in chunks):
        return {0: (places, updates)}
    owner = np.zeros(len(places), np.int64)
    for number, each in enumerate(chunks):
        ends = np.cumsum(each)
        block = np.searchsorted(ends, places[:, number], side="right")
        owner = owner * len(each) + block
        places[:, number] -= np.concatenate([[0], ends])[block]
    few = math.prod(map(len, chunks)) <= 1 << 16  # NumPy sorts 16-bit integers in linear time
    order = np.argsort(owner.astype(np.uint16) if few else owner, kind="stable")
    owners, first = np.unique(owner[order], return_index=True)
    parts = np.split(order, first[1:]) if len(owners) else []
    return {int(each): (places[part], updates[part]) for each, part in zip(owners, parts, strict=True)}


def apply(block: Array, pieces: list[Pair | None], *, reduction: Reduction) -> Array:
    """Return a chunk with updates applied, one piece after the other; None is a piece without updates."""
    result = None
    with _threads():
        for indices, updates in filter(None, pieces):
            result = scatter_nd(block if result is None else result, indices, updates, reduction=reduction, out=result)
    return as_array("scatter_nd", "x", block).copy() if result is None else result


def checked(block: Array, refused: None) -> Array:
    """Return a chunk. Its task depends on `refuse_out`, so it fails if any index is out of range."""
    return block


def checked_parameter(block: Array, *, place: int, dtype: np.dtype[Any], block_info: Any) -> Array:
    """Return a converted chunk of scales or zero points, or refuse its first bad element by its place in the array."""
    field, whole = PARAMETERS[place], block_info[0]
    try:
        array = converted("quantized_matmul", place, block, dtype)
        if place in SCALES:
            check_scale("quantized_matmul", field, array, block)
        return array
    except DmlError as error:
        if math.prod(whole["shape"]) == 1:
            raise
        within = [int(each) for each in re.findall(r"\d+", error.field)] or [0] * block.ndim
        where = [start + each for (start, _), each in zip(whole["array-location"], within, strict=True)]
        named = f"{field}[{', '.join(map(str, where))}]"
        raise type(error)(error.operator, named, error.found, error.allowed) from None


def product(a: list[Array], b: list[Array], *parameters: Array | None, dtype: np.dtype[Any]) -> Array:
    """Return a chunk of y from single chunks of a and b."""
    operands: dict[str, Any] = dict(zip(PARAMETERS, parameters, strict=True))
    with _threads():
        return quantized_matmul(a=a[0], b=b[0], **operands, out_dtype=dtype)


def partial_sums(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None, *, dtype: np.dtype[Any]) -> Array:
    """Return a chunk's exact sums over K, shape (..., 1, M, N); long ones are added from parts that fit int32."""
    with _threads():
        sums = [
            matmul_integer(a[..., k : k + NARROW], a_zero, b[..., k : k + NARROW, :], b_zero)
            for k in range(0, a.shape[-1] or 1, NARROW)
        ]
    total = sums[0].astype(dtype, copy=False)
    for each in sums[1:]:
        total += each
    return total[..., None, :, :]


def requantize(
    sums: Array, a_scale: Array, b_scale: Array, y_scale: Array, y_zero_point: Array | None, *, dtype: np.dtype[Any]
) -> Array:
    """Return exact sums requantized by the float32 operations of quantized_matmul, in its order."""
    limits = np.iinfo(dtype)
    zero = np.float32(0) if y_zero_point is None else y_zero_point.astype(np.float32)
    with np.errstate(all="ignore"):
        mul = a_scale * b_scale / y_scale
        y = np.where(sums == 0, np.float32(0), sums.astype(np.float32) * mul)
    np.rint(y, out=y)
    np.clip(y, limits.min - zero, limits.max - zero, out=y)  # small integers, exact in float32
    y += zero
    return y.astype(dtype)
