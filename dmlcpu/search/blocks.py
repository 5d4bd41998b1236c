"""Indices built, and queries searched, a block at a time: neither the vectors nor the queries need be in memory."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dmlcpu.annotations import Metric
from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import read_blocks
from dmlcpu.common.regions import Region, Sink, Source, Tensor
from dmlcpu.errors import BindingError
from dmlcpu.search.arguments import as_new_ids
from dmlcpu.search.index import NAME, Int8Index
from dmlcpu.search.ranking import score_type
from dmlcpu.search.spaces import as_vectors, space_of
from dmlcpu.search.storage import IndexWriter
from dmlcpu.search.vectors import stored_of

BLOCK_BYTES = 32 << 20  # of vectors that are read at a time
BLOCK_QUERIES = 4096  # that are searched at a time

Progress = Callable[[int], None]  # called with how many more rows are done


def _unread(source: Source) -> Array:
    """Return an array that takes no memory, for checks of shape and type."""
    return np.broadcast_to(np.zeros((), source.dtype), source.shape)


def build(
    vectors: Source,
    path: str | os.PathLike[str],
    metric: Metric = "ip",
    *,
    ids: Any = None,
    ranges: Any = None,
    keeps_floats: bool = False,
    block_bytes: int = BLOCK_BYTES,
    progress: Progress = lambda _: None,
) -> int:
    """Write an index of vectors (N, D) that are read in blocks; return N. Nothing is written before all checks."""
    form = as_vectors(NAME, "vectors", _unread(vectors))
    count, depth = form.shape
    space = space_of(NAME, metric, form, ranges)
    if keeps_floats and form.dtype.itemsize == 1:
        raise BindingError(NAME, "vectors.dtype", str(vectors.dtype), "floats, to be kept")
    arrays = stored_of(NAME, np.empty((0, depth), vectors.dtype), space, keeps=keeps_floats).arrays()
    numbers = None if ids is None else as_new_ids(NAME, ids, count, None)
    if numbers is not None:
        arrays["ids"] = numbers[:0]
    tensors = {name: Tensor((count, *each.shape[1:]), each.dtype) for name, each in arrays.items()}
    rows = max(1, block_bytes // (depth * vectors.dtype.itemsize))
    with IndexWriter(path, space, tensors) as writer:
        for region, block in read_blocks(vectors, _row_regions(count, depth, rows), lambda: False):
            first = region[0].start
            stored = stored_of(NAME, block, space, keeps=keeps_floats, first=first)
            for name, array in stored.arrays().items():
                writer.write(name, array, first)
            progress(len(block))
        if numbers is not None:
            writer.write("ids", numbers)
    return int(count)


def results_of(index: Int8Index, queries: Source, k: int, *, rescore: int | None = None) -> dict[str, Tensor]:
    """Return what a search writes, or refuse the queries by their shape and type."""
    as_vectors(f"{NAME}.search", "queries", _unread(queries), index.d)
    shape = (*queries.shape[:-1], k)
    kind = np.dtype(np.float32) if rescore is not None else score_type(index.space, index.stored, queries.dtype)
    return {"scores": Tensor(shape, kind), "indices": Tensor(shape, np.dtype(np.int64))}


def search(
    index: Int8Index,
    queries: Source,
    k: int,
    sinks: Mapping[str, Sink],
    *,
    rows: int = BLOCK_QUERIES,
    stopping: Callable[[], bool] = lambda: False,
    progress: Progress = lambda _: None,
    **options: Any,
) -> None:
    """Write scores and indices of the k best of queries (M, D) that are read in blocks of so many rows."""
    count, depth = queries.shape
    for region, block in read_blocks(queries, _row_regions(count, depth, rows), stopping):
        found = index.search(block, k, **options)
        for name, array in zip(("scores", "indices"), found, strict=True):
            sinks[name].write((region[0], slice(0, k)), array)
        progress(len(block))


def _row_regions(count: int, depth: int, rows: int) -> Iterator[Region]:
    for start in range(0, count, rows):
        yield slice(start, min(start + rows, count)), slice(0, depth)
