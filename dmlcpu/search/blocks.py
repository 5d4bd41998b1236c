"""Indices built, and queries searched, a block at a time: neither the vectors nor the queries need be in memory.

Also a saved index as the operation of a job.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from dmlcpu.annotations import Metric
from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import as_source, read_blocks, regions_of
from dmlcpu.common.regions import Estimate, Sink, Source, Tensor
from dmlcpu.errors import BindingError
from dmlcpu.search.arguments import as_new_ids
from dmlcpu.search.index import NAME, Int8Index
from dmlcpu.search.spaces import as_vectors, space_of
from dmlcpu.search.storage import new_index
from dmlcpu.search.vectors import stored_of

BLOCK_BYTES = 32 << 20  # of vectors that are read at a time
BLOCK_QUERIES = 4096  # that are searched at a time
RESULTS = ("scores", "indices")
_OWN_BYTES = 64 << 20  # that a search takes in addition to queries and results, at most

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
    with new_index(path, space, tensors) as write:
        for region, block in read_blocks(vectors, regions_of((count, depth), (rows, depth)), lambda: False):
            first = region[0].start
            stored = stored_of(NAME, block, space, keeps=keeps_floats, first=first)
            for name, array in stored.arrays().items():
                write(name, array, first)
            progress(len(block))
        if numbers is not None:
            write("ids", numbers, 0)
    return int(count)


def results_of(index: Int8Index, queries: Source, k: int, **options: Any) -> dict[str, Tensor]:
    """Return what a search writes; refuse what does not fit, the values of queries apart."""
    as_vectors(f"{NAME}.search", "queries", _unread(queries), index.d)
    found = index.search(np.empty((0, index.d), queries.dtype), k, **options)
    shapes = [(*queries.shape[:-1], *each.shape[1:]) for each in found]
    return {name: Tensor(shape, each.dtype) for name, shape, each in zip(RESULTS, shapes, found, strict=True)}


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
    for region, block in read_blocks(queries, regions_of(queries.shape, (rows, index.d)), stopping):
        found = index.search(block, k, **options)
        for name, array in zip(RESULTS, found, strict=True):
            sinks[name].write((region[0], slice(0, k)), array)
        progress(len(block))


class IndexOperation:
    """A saved index. Its arguments are those of `Int8Index.search`; vectors stay in their memory-mapped file."""

    first: str | None = "queries"
    parameters: tuple[str, ...] = ("queries", "k", "mask", "allowlist", "rescore")
    required: tuple[str, ...] = ("queries", "k")
    defaults: Mapping[str, Any] = MappingProxyType({})
    sources: tuple[str, ...] = ("queries",)
    results: tuple[str, ...] = RESULTS
    files: tuple[Path, ...] = ()  # but for the folder, which is the job's op

    def __init__(self, path: Path) -> None:
        self._index = Int8Index.load(path)

    def estimate(self, arguments: Mapping[str, Any]) -> Estimate:
        """Return the results and the memory; refuse what does not fit, the values of queries apart."""
        _, tensors, queries, count = self._sized(arguments)
        row = (sum(each.nbytes for each in tensors.values()) + queries) // count + 1
        return Estimate(tensors, count * row + _OWN_BYTES, lambda: _OWN_BYTES + 3 * row, "search")

    def _sized(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor], int, int]:
        """Return the arguments, with queries as a Source, the results, and the bytes and the number of queries."""
        queries, _ = as_source(f"{NAME}.search", "queries", arguments["queries"])
        found = {**arguments, "queries": queries}
        nbytes = Tensor(tuple(queries.shape), queries.dtype).nbytes
        count = int(queries.shape[0]) if len(queries.shape) > 1 else 1
        return found, results_of(self._index, **found), nbytes, max(1, count)

    def run(self, arguments: Mapping[str, Any]) -> dict[str, Array]:
        """Search."""
        return dict(zip(self.results, self._index.search(**arguments), strict=True))

    def run_in_blocks(
        self, arguments: Mapping[str, Any], sinks: Mapping[str, Sink], memory: int, stopping: Callable[[], bool]
    ) -> None:
        """Search for some queries after the others, within `memory` bytes."""
        given, tensors, queries, count = self._sized(arguments)
        row = (sum(each.nbytes for each in tensors.values()) + 2 * queries) // count + 1
        search(self._index, sinks=sinks, rows=max(1, (memory - _OWN_BYTES) // row), stopping=stopping, **given)
