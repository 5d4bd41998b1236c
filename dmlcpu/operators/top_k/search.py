"""Searching sequences side by side that come a block at a time."""

from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k.strided_tournament import COLUMNS
from dmlcpu.operators.top_k.function import execute
from dmlcpu.operators.top_k.plan import plan
from dmlcpu.runtime import threads
from dmlcpu.runtime.memory import words

# Room for so many candidates for each of the k winners. On 8 GiB, k 100, they are merged 13, 8, 5 and 4 times with 1,
# 2, 4 and 6. The whole takes about as long with all of them, but with 1 and blocks of 2 MiB (Zen 4, one turn each).
_CANDIDATES = 2
# What the kernel takes for an element, in nanoseconds on one thread (Zen 4, within a factor of 2).
_COST = 0.1
_INT64 = np.dtype(np.int64)


def search_bytes(columns: int, k: int, dtype: np.dtype[Any]) -> int:
    """Return how many bytes a search takes beside what the work on a block takes."""
    rows = (1 + _CANDIDATES) * k  # winners and candidates; they are merged by select_sort, a copy of all indices
    return columns * (rows * (dtype.itemsize + 9) + k * (dtype.itemsize + 16) + 16) + threads.budget().threads * (
        rows * (dtype.itemsize + 8) + 4096
    )


class Search:
    """The k winners of each column of an array that comes in blocks of rows, of which the first has k at least."""

    def __init__(self, columns: int, k: int, dtype: np.dtype[Any], *, largest: bool, nan_last: bool) -> None:
        self._k, self._largest, self._nan_last = k, largest, nan_last
        # Winners, and behind them candidates: elements that beat the last winner.
        self._values = np.empty(((1 + _CANDIDATES) * k, columns), dtype)
        self._indices = np.empty(self._values.shape, _INT64)
        self._counts = np.zeros(columns, _INT64)
        self._merged, self._places = np.empty((k, columns), dtype), np.empty((k, columns), _INT64)
        self._kernel = registry.find("top_k", "filter").kernel

    def look_at(self, block: Array, start: int) -> None:
        """Look at the next rows; start: how many came before."""
        k = self._k
        if start == 0:
            self._select(block, self._values[:k], self._indices[:k])
            return
        before = self._counts.copy()
        if self._filter(block, start):
            return
        self._counts[...] = before
        self._merge()
        if self._filter(block, start):
            return
        # As when each element is greater than the one before.
        values, indices = self._values[k : 2 * k], self._indices[k : 2 * k]
        self._select(block, values, indices)
        indices += start
        self._counts[...] = k
        self._merge()

    def winners(self) -> tuple[Array, Array]:
        """Return the values and indices of the winners, (k, columns)."""
        self._merge()
        return self._values[: self._k], self._indices[: self._k]

    def _select(self, block: Array, values: Array, indices: Array) -> None:
        execute(block, self._k, 0, self._largest, values, indices, nan_last=self._nan_last)

    def _filter(self, block: Array, start: int) -> bool:
        """Append what beats the last winners to the candidates; return whether there was room."""
        k, budget = self._k, threads.budget()
        strides = (block.strides, self._values.strides, self._indices.strides)
        largest = self._largest
        chosen = plan(block.shape, block.dtype, 0, k, largest, 8, strides, budget, True, self._nan_last)
        blocks = -(-block.shape[1] // COLUMNS)
        parts = budget.parts(int(block.size * _COST), blocks)
        bounds, values = (words(each, chosen.word) for each in (self._values[k - 1], self._values[k:]))
        scratch = np.empty(parts * 2 * COLUMNS, chosen.word)
        arrays = (self._counts, values, self._indices[k:].reshape(-1), chosen.work, scratch)
        self._kernel.for_parts(parts)(0, parts, words(block, chosen.word), bounds, start, *arrays)
        return int(self._counts.max()) <= len(self._values) - k

    def _merge(self) -> None:
        """Make winners of winners and candidates."""
        k, most = self._k, int(self._counts.max())
        if most == 0:
            return
        # Where a column has fewer candidates than others, its last winner comes once more, and loses to itself.
        behind = np.arange(most)[:, None] >= self._counts
        np.copyto(self._values[k : k + most], self._values[k - 1], where=behind)
        self._select(self._values[: k + most], self._merged, self._places)
        self._values[:k] = self._merged
        # Numbers in the flat array: NumPy's take is faster by them than by pairs.
        self._places *= self._counts.size
        self._places += np.arange(self._counts.size)
        self._indices[:k] = self._indices.reshape(-1).take(self._places, mode="clip")
        self._counts[...] = 0
