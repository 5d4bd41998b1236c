"""top_k on Dask arrays: winners of chunks, merged in a tree."""

import itertools
from functools import partial
from operator import itemgetter
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import DTypeLike

from dmlcpu.annotations import Mode, Nan
from dmlcpu.common.arguments import as_integer
from dmlcpu.common.forms import formed
from dmlcpu.interop.dask import tasks
from dmlcpu.interop.dask.chunks import as_dask, at_a_time, meta_of, stand_in
from dmlcpu.operators.top_k.call import check
from dmlcpu.operators.top_k.function import TopK


def top_k(
    x: Any,
    k: int,
    *,
    axis: int = -1,
    mode: "Mode | None" = None,
    largest: bool | None = None,
    sorted: bool = True,
    nan: "Nan" = "greatest",
    index_dtype: "DTypeLike" = np.int64,
    split_every: int | None = None,
    out: None = None,
) -> "TopK[da.Array, da.Array]":
    """Select the k largest or smallest elements of each sequence along an axis, which may be cut into chunks.

    Each chunk's winners are merged in a tree, so no task holds more than one chunk, or ``split_every`` times k elements
    of each sequence.

    Parameters
    ----------
    x : dask.array.Array or array_like, shape (..., N, ...)
        Of a type that `dmlcpu.top_k` takes.
    k : int
        How many elements to select, 0 to N. An array of k is not supported.
    axis, mode, largest, sorted, nan, index_dtype
        As for `dmlcpu.top_k`.
    split_every : int, optional
        How many chunks' winners are merged at a time, at least 2; by default Dask's setting, or 4.
    out : None
        Must be None, as Dask arrays are immutable.

    Returns
    -------
    TopK
        Two lazy arrays (values, indices), with one chunk of k elements along the axis. Indices count from the start of
        the whole sequence.

    Raises
    ------
    DmlError
        If an argument is not valid, or the sizes of x's chunks are unknown.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The semantics are those of `dmlcpu.top_k`. The order of ``sorted=False`` is not promised and depends on the chunks.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from dmlcpu.interop.dask import top_k
    >>> x = da.from_array(np.array([3.0, 1, 4, 1, 5, 9, 2, 6, 5]), chunks=4)
    >>> values, indices = top_k(x, 4)
    >>> values.compute()
    array([9., 6., 5., 5.])
    >>> indices.compute()
    array([5, 7, 4, 8])
    """
    every = at_a_time("top_k", split_every, out)
    x = as_dask("top_k", "x", x)
    if dask.is_dask_collection(k):
        raise TypeError(f"top_k: k is {type(k).__name__}; allowed: an integer")
    k = as_integer("top_k", "k", k)
    _, form = formed("top_k", "x", stand_in(x))
    call = check(form, (k, axis, mode, largest, sorted, nan, index_dtype))
    axis, dtype = call.axis, call.x.dtype
    options: dict[str, Any] = {"largest": call.largest, "nan": nan, "index_dtype": call.index_dtype}
    last = {**options, "sorted": call.sorted}
    pairs = x.map_blocks(
        tasks.top_k_of_chunk,
        k=k,
        axis=axis,
        starts=(0, *itertools.accumulate(x.chunks[axis])),
        options=last if x.numblocks[axis] == 1 else options,
        meta=meta_of(x.ndim, dtype),
    )
    winners = da.reduction(
        pairs,
        chunk=tasks.same,
        combine=partial(tasks.merge, k=k, options=options),
        aggregate=partial(tasks.merge, k=k, options=last),
        axis=axis,
        keepdims=True,
        dtype=dtype,
        split_every=every,
        name="top_k",
        concatenate=False,  # chunks are pairs of arrays
        output_size=k,
        meta=meta_of(x.ndim, dtype),
    )
    return TopK(
        winners.map_blocks(itemgetter(0), token="top_k_values", meta=meta_of(x.ndim, dtype)),
        winners.map_blocks(itemgetter(1), token="top_k_indices", meta=meta_of(x.ndim, call.index_dtype)),
    )
