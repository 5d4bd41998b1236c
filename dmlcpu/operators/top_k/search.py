"""A search through adjacent sequences, a block at a time."""

from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form, form_of
from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k.strided_tournament import COLUMNS
from dmlcpu.operators.top_k.call import INT64, Call
from dmlcpu.operators.top_k.plan import plan, select
from dmlcpu.runtime import threads
from dmlcpu.runtime.memory import words

# Places for candidates for each of the k winners. 8 GiB with k 100 take as long with 1 as with 2 or 3 (Zen 4).
_CANDIDATES = 2
# The kernel's nanoseconds for an element on one thread (Zen 4, float32: from 0.2, if nothing is found, to 0.5).
_COST = 0.3


def search_bytes(columns: int, k: int, dtype: np.dtype[Any]) -> int:
    """Return the bytes of a search, without those of the work on a block."""
    width, index, flag = dtype.itemsize, INT64.itemsize, 1
    held = (1 + _CANDIDATES) * k  # winners and candidates
    arrays = held * (width + index + flag) + k * (width + 2 * index)  # flag: `behind`; then `merged`, places
    counts = 3 * index + 4 * width  # counts, copies of them, numbers of columns; bounds and shares
    select_sort = threads.most_of_thread().threads * (held * (width + index) + 4096)
    return columns * (arrays + counts) + select_sort


class Search:
    """The k winners of each column of an array that comes in blocks of rows; the first block has at least k rows.

    Several searches, one a thread, may look at different rows of the same columns. They share bounds and so skip more:
    each of n searches writes the element that k / n of its winners reach to `shares[own]`. As k elements reach the
    least of these, an element that does not reach it is no winner.
    """

    def __init__(
        self, call: Call, most_threads: int | None = None, shares: list[Array | None] | None = None, own: int = 0
    ) -> None:
        """Begin. call: sorted winners along the first axis of rows and columns; its number of rows is not used."""
        self._call, self._k, self._most_threads = call, call.k, most_threads
        columns, dtype, k = call.x.shape[1], call.x.dtype, call.k
        # Each column's winners, followed by candidates: elements that beat the last winner.
        self._values = np.empty((columns, (1 + _CANDIDATES) * k), dtype)
        self._indices = np.empty(self._values.shape, INT64)
        self._counts = np.zeros(columns, INT64)
        self._bounds = np.empty(columns, dtype)  # the last winners
        self._shares, self._own = shares or [None], own
        self._merged, self._places = np.empty((columns, k), dtype), np.empty((columns, k), INT64)
        self._kernel = registry.find("top_k", "filter").kernel

    def look_at(self, block: Array, start: int) -> None:
        """Search the next rows; start: the position of the first."""
        if not self._counts.any():
            self._take(block, start, 0)
            self._share_bounds()
            return
        before = self._counts.copy()
        if self._filter(block, start):
            return
        self._counts[...] = before
        self._merge()
        if self._filter(block, start):
            return
        # For instance, if each element is greater than the one before.
        self._take(block, start, self._k)
        self._merge()

    def add(self, later: "Search") -> None:
        """Add the winners of a search among later rows, after all searches."""
        self._merge()
        k, (values, indices) = self._k, later.winners()
        self._values[:, k : 2 * k], self._indices[:, k : 2 * k] = values.T, indices.T
        self._counts[...] = 2 * k
        self._merge()

    def winners(self) -> tuple[Array, Array]:
        """Return the values and indices of the winners, (k, columns)."""
        self._merge()
        return self._values[:, : self._k].T, self._indices[:, : self._k].T

    def _take(self, block: Array, start: int, place: int) -> None:
        """Write the winners of a block from a position on: 0, or k, after the winners so far."""
        held = slice(place, place + self._k)
        self._select(block, 0, self._values[:, held].T, self._indices[:, held].T)
        self._indices[:, held] += start
        self._counts[...] = place + self._k

    def _share_bounds(self) -> None:
        """Keep the last winners, and write the bound for the other searches."""
        self._bounds[...] = self._values[:, self._k - 1]
        self._shares[self._own] = self._values[:, -(-self._k // len(self._shares)) - 1].copy()

    def _shared_bounds(self) -> Array:
        """Return the flat bounds (searches, columns) of all searches; nothing for one search or if any has none."""
        shared = [share for share in self._shares if share is not None]
        return np.concatenate(shared) if len(shared) == len(self._shares) > 1 else self._bounds[:0]

    def _select(self, block: Array, axis: int, values: Array, indices: Array) -> None:
        """Write the winners along an axis of a block."""
        select(self._call._replace(axis=axis), block, values, indices, self._most_threads)

    def _filter(self, block: Array, start: int) -> bool:
        """Append elements that beat the last winners to the candidates; return whether there was space for all."""
        budget = threads.budget(self._most_threads)
        strides = self._merged.T.strides, self._places.T.strides
        chosen: Any = plan(self._call._replace(x=Form(*form_of(block))), strides, budget)
        parts = budget.parts(int(block.size * _COST), -(-block.shape[1] // COLUMNS))
        arrays = (block, self._bounds, self._shared_bounds(), self._values.reshape(-1))
        x, bounds, shares, values = (words(each, chosen.word) for each in arrays)
        scratch = np.empty(parts * 2 * COLUMNS, chosen.word)
        found = (self._counts, values, self._indices.reshape(-1))
        self._kernel(parts, x, bounds, shares, start, *found, chosen.work, scratch)
        return bool(self._counts.max() <= self._values.shape[1])

    def _merge(self) -> None:
        """Select the winners among winners and candidates."""
        k, most = self._k, int(self._counts.max())
        if most == k:
            return
        # If a column has fewer candidates than others, its last winner is repeated, and loses to itself.
        behind = np.arange(k, most) >= self._counts[:, None]
        np.copyto(self._values[:, k:most], self._bounds[:, None], where=behind)
        self._select(self._values[:, :most], 1, self._merged, self._places)
        self._values[:, :k] = self._merged
        self._share_bounds()
        # Positions in the flat array, because NumPy's take is faster with them than with pairs.
        self._places += np.arange(self._counts.size)[:, None] * self._values.shape[1]
        self._indices[:, :k] = self._indices.reshape(-1).take(self._places, mode="clip")
        self._counts[...] = k
