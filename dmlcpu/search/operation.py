"""A saved index as a job's operation: its `search`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.block_reader import InMemory
from dmlcpu.common.regions import Estimate, Sink, Tensor, is_source
from dmlcpu.search.arguments import as_count
from dmlcpu.search.blocks import results_of, search
from dmlcpu.search.index import Int8Index

_OWN_BYTES = 64 << 20  # that a search takes in addition to queries and results, at most


class IndexOperation:
    """A saved index. Its arguments are those of `Int8Index.search`; vectors stay in their memory-mapped file."""

    first: str | None = "queries"
    parameters: tuple[str, ...] = ("queries", "k", "mask", "allowlist", "rescore")
    required: tuple[str, ...] = ("queries", "k")
    defaults: Mapping[str, Any] = MappingProxyType({})
    sources: tuple[str, ...] = ("queries",)
    results: tuple[str, ...] = ("scores", "indices")
    files: tuple[Path, ...] = ()  # but for the folder, which is the job's op

    def __init__(self, path: Path) -> None:
        self._index = Int8Index.load(path)

    def estimate(self, arguments: Mapping[str, Any]) -> Estimate:
        """Return the results and the memory; refuse what does not fit, the values of queries apart."""
        queries = self._queries(arguments["queries"])
        tensors = self._results(queries, arguments)
        row = (sum(each.nbytes for each in tensors.values()) + _nbytes(queries)) // max(1, _count(queries)) + 1
        memory = _count(queries) * row + _OWN_BYTES
        return Estimate(tensors, memory, lambda: _OWN_BYTES + 3 * row, "search")

    def _queries(self, given: Any) -> Any:
        return given if is_source(given) else InMemory(np.asarray(given))

    def _results(self, queries: Any, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
        k = as_count("Int8Index.search", "k", arguments["k"])
        tensors = results_of(self._index, queries, k, rescore=arguments.get("rescore"))
        none = np.empty((0, self._index.d), queries.dtype)
        self._index.search(none, **{name: value for name, value in arguments.items() if name != "queries"})
        return tensors

    def run(self, arguments: Mapping[str, Any]) -> dict[str, Array]:
        """Search."""
        return dict(zip(self.results, self._index.search(**arguments), strict=True))

    def run_in_blocks(
        self, arguments: Mapping[str, Any], sinks: Mapping[str, Sink], memory: int, stopping: Callable[[], bool]
    ) -> None:
        """Search for some queries after the others, within `memory` bytes."""
        given = dict(arguments)
        queries = self._queries(given.pop("queries"))
        tensors = self._results(queries, arguments)
        row = (sum(each.nbytes for each in tensors.values()) + 2 * _nbytes(queries)) // max(1, _count(queries)) + 1
        rows = max(1, (memory - _OWN_BYTES) // row)
        search(self._index, queries, given.pop("k"), sinks, rows=rows, stopping=stopping, **given)


def _count(queries: Any) -> int:
    return int(queries.shape[0]) if len(queries.shape) > 1 else 1


def _nbytes(queries: Any) -> int:
    return Tensor(tuple(queries.shape), queries.dtype).nbytes
