"""Indices built, and queries searched, a block at a time: neither the vectors nor the queries need be in memory.

Both are also operations of jobs: an index is built, and a saved index is searched.
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np

from dmlcpu.annotations import Metric
from dmlcpu.common.arguments import Array, check_choice
from dmlcpu.common.block_reader import as_source, read_blocks, regions_of
from dmlcpu.common.regions import Estimate, Sink, Source, Tensor
from dmlcpu.errors import BindingError
from dmlcpu.files import Identity, open_source
from dmlcpu.files.base import Format
from dmlcpu.files.formats import INDEX, INDEX_HEADER
from dmlcpu.search.arguments import as_new_ids
from dmlcpu.search.codes import Frame, frame_of, sample_of, stored_floats
from dmlcpu.search.float_index import FloatIndex
from dmlcpu.search.index import Index
from dmlcpu.search.int8_index import Int8Index
from dmlcpu.search.spaces import Space, as_vectors, space_of
from dmlcpu.search.storage import FILES, IndexWriter, load, own_arrays, target_of
from dmlcpu.search.vectors import Limits, Stored, storable, stored_of
from dmlcpu.selection.exclusions import allowed_of, lines_of

BLOCK_BYTES = 32 << 20  # of vectors that are read at a time
BLOCK_QUERIES = 4096  # that are searched at a time
RESULTS = ("scores", "indices")
_OWN_BYTES = 64 << 20  # that a search takes in addition to queries and results, at most

_BY_QUERY = {"mask", "allowlist", "exclude"}  # arguments that may have a row for each query

BUILD = "build_index"
_FLOATS = ("exact", "rescore", "drop")  # what becomes of floats
_COPIES = 6  # of a block of vectors that building takes at once, as bytes that are read ahead, codes and others


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


class _Plan(NamedTuple):
    """How vectors become an index."""

    name: str
    space: Space | Frame
    stored: Callable[[Array, int], Stored]  # of a block, and the position of its first vector
    ids: Array | None

    def tensors(self, vectors: Source) -> dict[str, Tensor]:
        """Return the arrays of the index."""
        count, depth = vectors.shape
        arrays = self.stored(np.empty((0, depth), vectors.dtype), 0).arrays()
        if self.ids is not None:
            arrays["ids"] = self.ids[:0]
        tensors = {array: Tensor((count, *each.shape[1:]), each.dtype) for array, each in arrays.items()}
        own = own_arrays(self.space, Limits())
        return tensors | {array: Tensor(each.shape, each.dtype) for array, each in own.items()}


def _plan(
    vectors: Source, metric: Metric = "ip", *, ids: Any = None, ranges: Any = None, floats: str = "exact", sampled: bool
) -> _Plan:
    """Return how vectors (N, D) become an index, or refuse the arguments; sampled: some vectors are read."""
    check_choice(BUILD, "floats", floats, _FLOATS)
    is_exact = floats == "exact" and vectors.dtype.itemsize > 1 and ranges is None
    name = FloatIndex.name if is_exact else Int8Index.name
    form = as_vectors(name, "vectors", _unread(vectors))
    checked = space_of(name, metric, form, ranges)
    space: Space | Frame = checked
    if not is_exact:
        if floats == "rescore" and form.dtype.itemsize == 1:
            raise BindingError(name, "vectors.dtype", str(vectors.dtype), "floats, to be kept")
        stored = functools.partial(_codes, name, checked, floats == "rescore")
    else:
        frame = space = frame_of(metric, _sampled(vectors) if sampled else np.empty((0, form.shape[1]), form.dtype))
        stored = functools.partial(_floats, name, frame)
    numbers = None if ids is None else as_new_ids(name, ids, len(form), None)
    return _Plan(name, space, stored, numbers)


def _codes(name: str, space: Space, keeps: bool, block: Array, first: int) -> Stored:
    return stored_of(name, block, space, keeps=keeps, first=first)


def _floats(name: str, frame: Frame, block: Array, first: int) -> Stored:
    return stored_floats(name, storable(block), frame, first)


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
    index: IndexWriter,
    *,
    block_bytes: int = BLOCK_BYTES,
    stopping: Callable[[], bool] = lambda: False,
    **options: Any,
) -> None:
    """Write an index of vectors (N, D) that are read in blocks; options: metric, ids, ranges, floats."""
    plan = _plan(vectors, **options, sampled=True)
    count, depth = vectors.shape
    index.begin(plan.name, plan.space.metric, plan.tensors(vectors))
    limits, rows = Limits(), max(1, block_bytes // (depth * vectors.dtype.itemsize))
    for region, block in read_blocks(vectors, regions_of((count, depth), (rows, depth)), stopping):
        first = region[0].start
        stored = plan.stored(block, first)
        limits = limits.joined(stored.limits)
        for array, part in stored.arrays().items():
            index.write_rows(array, part, first)
    if plan.ids is not None:
        index.write_rows("ids", plan.ids, 0)
    for array, part in own_arrays(plan.space, limits).items():
        index.write_rows(array, part, 0)


class BuildOperation:
    """An index, made of vectors that are read in blocks."""

    parameters: tuple[str, ...] = ("vectors", "metric", "ids", "ranges", "floats")
    first: str | None = "vectors"
    required: tuple[str, ...] = ("vectors",)
    defaults: Mapping[str, Any] = MappingProxyType({})
    sources: tuple[str, ...] = ("vectors",)
    results: tuple[str, ...] = ("index",)
    files: tuple[Path, ...] = ()
    states: Mapping[Path, Identity] = MappingProxyType({})

    def __init__(self) -> None:
        self.form: Format | None = Format((INDEX,), open_source, lambda _: None, self._create, mark=INDEX_HEADER)

    @staticmethod
    def version() -> str:
        """Return the version of what is built."""
        return f"{BUILD} 1"

    @staticmethod
    def _create(target: str, _: Mapping[str, Tensor], token: str) -> IndexWriter:
        target_of(target, BUILD)  # which refuses other folders; a link that comes meanwhile is not followed
        writer = IndexWriter(target, token)
        writer.sinks = {"index": cast(Any, writer)}
        return writer

    def estimate(self, arguments: Mapping[str, Any]) -> Estimate:
        """Return the index as an array of its vectors, and the memory; refuse what does not fit, values apart."""
        given, vectors = self._given(arguments)
        plan = _plan(vectors, **given, sampled=False)
        form = Tensor(tuple(vectors.shape), vectors.dtype)
        own = 0 if plan.ids is None else 2 * plan.ids.nbytes
        least = own + _COPIES * form.nbytes // max(1, form.shape[0])
        return Estimate({"index": form}, own + _COPIES * min(form.nbytes, BLOCK_BYTES), lambda: least, plan.name)

    @staticmethod
    def _given(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Source]:
        given = dict(arguments)
        vectors, _ = as_source(BUILD, "vectors", given.pop("vectors"))
        return given, vectors

    def run(self, arguments: Mapping[str, Any]) -> dict[str, Array]:
        """Refuse: an index is written in blocks."""
        raise AssertionError("an index is written in blocks")

    def run_in_blocks(
        self, arguments: Mapping[str, Any], sinks: Mapping[str, Sink], memory: int, stopping: Callable[[], bool]
    ) -> None:
        """Write the index, the result's sink, block by block."""
        given, vectors = self._given(arguments)
        index = cast(IndexWriter, sinks["index"])
        build(vectors, index, block_bytes=min(memory // _COPIES, BLOCK_BYTES), stopping=stopping, **given)


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
    **options: Any,
) -> None:
    """Write scores and indices of the k best of queries (M, D) that are read in blocks of `rows` rows."""
    for region, block in read_blocks(queries, regions_of(queries.shape, (rows, index.d)), stopping):
        own = _for_rows(options, region[0].start, region[0].stop)
        found = index.search(block, k, **own)
        for name, array in zip(RESULTS, found, strict=True):
            sinks[name].write((region[0], slice(0, k)), array)


class IndexOperation:
    """A saved index. Its arguments are those of the index's `search`; vectors stay in their memory-mapped file."""

    first: str | None = "queries"
    required: tuple[str, ...] = ("queries", "k")
    defaults: Mapping[str, Any] = MappingProxyType({})
    sources: tuple[str, ...] = ("queries",)
    results: tuple[str, ...] = RESULTS
    form: Format | None = None

    @staticmethod
    def version() -> str:
        """Return the version of search."""
        return "index 1"

    def __init__(self, path: Path) -> None:
        self._index = load_index(path)
        self.states: Mapping[Path, Identity] = {}
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
