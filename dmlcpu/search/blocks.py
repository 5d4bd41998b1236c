"""Indices built, and queries searched, a block at a time: neither the vectors nor the queries need be in memory.

Also a saved index as the operation of a job.
"""

import inspect
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
from dmlcpu.search.codes import Frame, frame_of, sample_of, stored_floats
from dmlcpu.search.float_index import FloatIndex
from dmlcpu.search.index import Index
from dmlcpu.search.int8_index import Int8Index
from dmlcpu.search.spaces import Space, as_vectors, check_depth, space_of
from dmlcpu.search.storage import FILES, load, new_index, own_arrays
from dmlcpu.search.vectors import Limits, Stored, storable, stored_of
from dmlcpu.selection.exclusions import allowed_of, lines_of

BLOCK_BYTES = 32 << 20  # of vectors that are read at a time
BLOCK_QUERIES = 4096  # that are searched at a time
RESULTS = ("scores", "indices")
_OWN_BYTES = 64 << 20  # that a search takes in addition to queries and results, at most

_BY_QUERY = {"mask", "allowlist", "exclude"}  # arguments that may have a row for each query

Progress = Callable[[int], None]  # called with how many more rows are done


def load_index(path: str | os.PathLike[str]) -> Index:
    """Return a saved index of any class."""
    classes: dict[str, type[Index]] = {each.name: each for each in (FloatIndex, Int8Index)}
    name, space, stored = load(path, *classes)
    index = classes[name].__new__(classes[name])
    index._set_up(space, stored)
    return index


def _unread(source: Source) -> Array:
    """Return an array that takes no memory, for checks of shape and type."""
    return np.broadcast_to(np.zeros((), source.dtype), source.shape)


def build_floats(
    vectors: Source,
    path: str | os.PathLike[str],
    metric: Metric = "ip",
    *,
    ids: Any = None,
    block_bytes: int = BLOCK_BYTES,
    progress: Progress = lambda _: None,
) -> int:
    """Write a FloatIndex of vectors (N, D) that are read in blocks; return N. Nothing is written before all checks."""
    form = as_vectors(FloatIndex.name, "vectors", _unread(vectors))
    check_depth(FloatIndex.name, form.shape[1])
    frame = frame_of(metric, _sampled(vectors))

    def stored(block: Array, first: int) -> Stored:
        return stored_floats(FloatIndex.name, storable(block), frame, first)

    return _write(vectors, path, FloatIndex.name, frame, stored, ids, block_bytes, progress)


def _sampled(vectors: Source) -> Array:
    """Return some vectors of all parts, read one by one."""
    count, depth = vectors.shape
    rows = sample_of(count)
    found = np.empty((len(rows), depth), vectors.dtype)
    for place, row in enumerate(rows.tolist()):
        found[place] = vectors.read((slice(row, row + 1), slice(0, depth)))[0]
    return found


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
    """Write an Int8Index of vectors (N, D) that are read in blocks; return N. Nothing is written before all checks."""
    name = Int8Index.name
    form = as_vectors(name, "vectors", _unread(vectors))
    space = space_of(name, metric, form, ranges)
    if keeps_floats and form.dtype.itemsize == 1:
        raise BindingError(name, "vectors.dtype", str(vectors.dtype), "floats, to be kept")

    def stored(block: Array, first: int) -> Stored:
        return stored_of(name, block, space, keeps=keeps_floats, first=first)

    return _write(vectors, path, name, space, stored, ids, block_bytes, progress)


def _write(
    vectors: Source,
    path: str | os.PathLike[str],
    name: str,
    space: Space | Frame,
    stored_of_block: Callable[[Array, int], Stored],
    ids: Any,
    block_bytes: int,
    progress: Progress,
) -> int:
    """Write an index, block by block; return the number of vectors."""
    count, depth = vectors.shape
    arrays = stored_of_block(np.empty((0, depth), vectors.dtype), 0).arrays()
    numbers = None if ids is None else as_new_ids(name, ids, count, None)
    if numbers is not None:
        arrays["ids"] = numbers[:0]
    limits = Limits()
    own = own_arrays(space, limits)
    tensors = {array: Tensor((count, *each.shape[1:]), each.dtype) for array, each in arrays.items()}
    tensors |= {array: Tensor(each.shape, each.dtype) for array, each in own.items()}
    rows = max(1, block_bytes // (depth * vectors.dtype.itemsize))
    with new_index(path, name, space, tensors) as write:
        for region, block in read_blocks(vectors, regions_of((count, depth), (rows, depth)), lambda: False):
            first = region[0].start
            stored = stored_of_block(block, first)
            limits = limits.joined(stored.limits)
            for array, part in stored.arrays().items():
                write(array, part, first)
            progress(len(block))
        if numbers is not None:
            write("ids", numbers, 0)
        for array, part in own_arrays(space, limits).items():
            write(array, part, 0)
    return int(count)


def _rows_of(queries: Source) -> int:
    """Return the number of queries; one may stand for itself."""
    return int(queries.shape[0]) if len(queries.shape) > 1 else 1


def _for_rows(options: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    """Return the options of some queries."""
    own = {name: lines_of(options[name], start, stop) for name in _BY_QUERY & options.keys()}
    return {**options, **own}


def results_of(index: Index, queries: Source, k: int, **options: Any) -> dict[str, Tensor]:
    """Return what a search writes; refuse what does not fit, the values of queries apart."""
    as_vectors(f"{index.name}.search", "queries", _unread(queries), index.d)
    limits = {name: options[name] for name in _BY_QUERY & options.keys()}
    allowed_of(f"{index.name}.search", _rows_of(queries), len(index), **limits)  # which refuses what does not fit
    others = {name: each for name, each in options.items() if name not in limits}
    found = index.search(np.empty((0, index.d), queries.dtype), k, **others)
    shapes = [(*queries.shape[:-1], *each.shape[1:]) for each in found]
    return {name: Tensor(shape, each.dtype) for name, shape, each in zip(RESULTS, shapes, found, strict=True)}


def search(
    index: Index,
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
        own = _for_rows(options, region[0].start, region[0].stop)
        found = index.search(block, k, **own)
        for name, array in zip(RESULTS, found, strict=True):
            sinks[name].write((region[0], slice(0, k)), array)
        progress(len(block))


class IndexOperation:
    """A saved index. Its arguments are those of the index's `search`; vectors stay in their memory-mapped file."""

    first: str | None = "queries"
    required: tuple[str, ...] = ("queries", "k")
    defaults: Mapping[str, Any] = MappingProxyType({})
    sources: tuple[str, ...] = ("queries",)
    results: tuple[str, ...] = RESULTS

    @staticmethod
    def version() -> str:
        """Return the version of search."""
        return "index 1"

    def __init__(self, path: Path) -> None:
        self._index = load_index(path)
        self.files = tuple(file for file in (path / name for name in FILES) if file.exists())
        names = inspect.signature(self._index.search).parameters
        self.parameters: tuple[str, ...] = tuple([name for name in names if name != "report"])

    def estimate(self, arguments: Mapping[str, Any]) -> Estimate:
        """Return the results and the memory; refuse what does not fit, the values of queries apart."""
        _, tensors, queries, count = self._sized(arguments)
        row = (sum(each.nbytes for each in tensors.values()) + queries) // count + 1
        return Estimate(tensors, count * row + _OWN_BYTES, lambda: _OWN_BYTES + 3 * row, "search")

    def _sized(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor], int, int]:
        """Return the arguments, with queries as a Source, the results, and the bytes and the number of queries."""
        queries, _ = as_source(f"{self._index.name}.search", "queries", arguments["queries"])
        found = {**arguments, "queries": queries}
        nbytes = Tensor(tuple(queries.shape), queries.dtype).nbytes
        count = _rows_of(queries)
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
