"""scatter_nd on Dask arrays: updates go to the chunks that own them."""

import itertools
import math
from functools import partial
from typing import Any

import dask
import dask.array as da
from dask.highlevelgraph import HighLevelGraph

from dmlcpu.annotations import OutOfRange, Reduction
from dmlcpu.interop.dask import tasks
from dmlcpu.interop.dask.chunks import as_dask, at_a_time, meta_of, stand_in, without_empty
from dmlcpu.operators.scatter_nd.call import check
from dmlcpu.operators.scatter_nd.function import request


def scatter_nd(
    x: Any,
    indices: Any,
    updates: Any,
    *,
    reduction: "Reduction" = "none",
    mode: "OutOfRange" = "raise",
    split_every: int | None = None,
    out: None = None,
) -> "da.Array":
    """Copy x, with updates written at the places that index tuples name; each update goes to the chunk that owns it.

    Updates are applied in index order for any chunks and any scheduler.

    Parameters
    ----------
    x : dask.array.Array or array_like, shape (d0, d1, ...)
    indices : dask.array.Array or array_like of integers, shape (..., T)
    updates : dask.array.Array or array_like of x's type, shape indices.shape[:-1] + x.shape[T:]
        Updates are read by their chunks, or by those of indices if updates are not lazy. The leading dimensions of
        indices are flattened to one.
    reduction, mode
        As for `dmlcpu.scatter_nd`.
    split_every : int, optional
        How many chunks of updates a task applies, at least 2; by default Dask's setting, or 4.
    out : None
        Must be None, as Dask arrays are immutable.

    Returns
    -------
    dask.array.Array
        A lazy array like x, with its chunks.

    Raises
    ------
    IndexOutOfRangeError
        On compute, if `mode` is "raise" and any index is out of range, even one for a chunk that is not computed.
    DmlError
        If an argument is not valid, or chunk sizes are unknown.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The semantics are those of `dmlcpu.scatter_nd`.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from dmlcpu.interop.dask import scatter_nd
    >>> bins = da.zeros(6, dtype=np.int64, chunks=4)
    >>> scatter_nd(bins, [[0], [5], [-1]], [1, 1, 1], reduction="add").compute()
    array([1, 0, 0, 0, 0, 2])
    """
    every = at_a_time("scatter_nd", split_every, out)
    x, indices = as_dask("scatter_nd", "x", x), as_dask("scatter_nd", "indices", indices)
    is_lazy = dask.is_dask_collection(updates)
    updates = as_dask("scatter_nd", "updates", updates) if is_lazy else updates
    given = stand_in(updates) if is_lazy else updates
    key, (_, _, given) = request(stand_in(x), stand_in(indices), given, reduction, mode)
    call = check(*key)
    shape, coordinates = indices.shape, indices.shape[-1]
    x = x.astype(call.x.dtype)
    updates = updates if is_lazy else da.from_array(given)
    if indices.ndim != 2:  # tuples in a row
        count = math.prod(indices.shape[:-1])
        indices, updates = _reshaped(indices, (count, coordinates)), _reshaped(updates, (count, *x.shape[coordinates:]))
    cuts = (updates if is_lazy else indices).chunks[0]
    indices, updates = indices.rechunk((cuts, (coordinates,))), updates.rechunk((cuts, *x.chunks[coordinates:]))

    token = dask.base.tokenize(x, indices, updates, reduction, mode, every, shape)
    name = f"scatter_nd-{token}"
    of = {step: f"scatter_nd-{step}-{token}" for step in ("range", "split", "piece", "apply")}
    graph: dict[Any, Any] = {}
    groups = range(updates.numblocks[0])
    if mode == "raise":
        sizes = x.shape[:coordinates]
        for u, start in zip(groups, (0, *itertools.accumulate(indices.chunks[0])), strict=False):
            graph[of["range"], u] = (partial(tasks.first_out, sizes=sizes, start=start), (indices.name, u, 0))
        refuse = partial(tasks.refuse_out, shape=shape, dtype=call.indices.dtype, x_shape=x.shape)
        graph[of["range"]] = (refuse, [(of["range"], u) for u in groups])
    split = partial(tasks.split, chunks=x.chunks[:coordinates], mode=mode)
    places = list(itertools.product(*map(range, x.numblocks[:coordinates])))
    for rest in itertools.product(*map(range, x.numblocks[coordinates:])):
        for u in groups:
            graph[of["split"], u, *rest] = (split, (indices.name, u, 0), (updates.name, u, *rest))
        for number, place in enumerate(places):
            for u in groups:
                graph[of["piece"], u, *place, *rest] = (dict.get, (of["split"], u, *rest), number)
            block = (x.name, *place, *rest)
            for first in groups[::every]:
                pieces = [(of["piece"], u, *place, *rest) for u in groups[first : first + every]]
                before, block = block, (of["apply"], first, *place, *rest)
                graph[block] = (partial(tasks.apply, reduction=reduction), before, pieces)
            # Any bad index refuses the whole result, so each chunk waits for the check of all indices.
            graph[name, *place, *rest] = (tasks.checked, block, of["range"]) if mode == "raise" else block
    layers = HighLevelGraph.from_collections(name, graph, dependencies=[x, indices, updates])
    return da.Array(layers, name, x.chunks, meta=meta_of(x.ndim, x.dtype))


def _reshaped(array: da.Array, shape: tuple[int, ...]) -> da.Array:
    """Return an array reshaped; it may be empty, or have empty chunks."""
    if array.size == 0:
        return da.empty(shape, dtype=array.dtype)
    return without_empty(array).reshape(shape)
