"""The methods of all indices on their vectors: add, remove, return, save and load."""

import os
import threading
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.annotations import Array, Metric
from dmlcpu.common.arguments import as_integer
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError
from dmlcpu.search.arguments import as_count, as_ids
from dmlcpu.search.vectors import Stored, joined

_FIRST_RANGE = 64  # hits that a search by radius asks for at first


class Index:
    """Exact search among vectors. See `FloatIndex` and `Int8Index`.

    The methods have the names of FAISS's ``IndexFlat`` and ``IndexIDMap``. Searches may run in several threads while
    another thread adds or removes vectors: each sees either all of a change or none of it.
    """

    name: ClassVar[str]  # of the class, in messages
    is_trained = True  # for programs that check it, as with FAISS
    space: Any  # the metric, and how vectors are stored
    stored: Stored

    def _set_up(self, space: Any, stored: Stored) -> None:
        self.space, self.stored = space, stored  # another takes the place of `stored` when vectors change
        self._rooms: dict[str, Array] = {}
        self._changing = threading.Lock()

    def __getstate__(self) -> tuple[Any, Stored]:
        return self.space, self.stored.in_memory()

    def __setstate__(self, state: tuple[Any, Stored]) -> None:
        self._set_up(*state)

    def __repr__(self) -> str:
        ids = "" if self.stored.ids is None else ", ids"
        return f"{self.name}({len(self)} x {self.d} {self._kept.dtype}, metric={self.metric!r}{ids})"

    def __len__(self) -> int:
        return len(self.stored)

    @property
    def _kept(self) -> Array:
        """The vectors as they are returned."""
        return self.stored.vectors

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return int(self.space.depth)

    @property
    def ntotal(self) -> int:
        """The number of vectors."""
        return len(self.stored)

    @property
    def metric(self) -> Metric:
        """The metric: "ip", "l2" or "cosine"."""
        metric: Metric = self.space.metric
        return metric

    @property
    def metric_type(self) -> int:
        """FAISS's number of the metric: 0 for "ip" and "cosine", 1 for "l2"."""
        return int(self.metric == "l2")

    def search(self, *args: Any, **options: Any) -> Any:
        """Return scores and indices of the k best vectors of each query."""
        raise NotImplementedError

    def _additions(self, operator: str, vectors: Any, ids: Any, floats: Any) -> tuple[Stored, Stored]:
        """Return the vectors that there are, and those to be added, with the same arrays; or refuse the latter."""
        raise NotImplementedError

    def _merging(self, operator: str, other: Self, ids: Any) -> tuple[Stored, Stored]:
        """Return the vectors that there are, and another index's, with the same arrays; or refuse the latter."""
        raise NotImplementedError

    def _as_queries(self, operator: str, queries: Any) -> Array:
        """Return queries (M, D), or refuse them."""
        raise NotImplementedError

    def add_with_ids(self, vectors: "ArrayLike", ids: "ArrayLike") -> None:
        """Add vectors with ids to an index that has ids, or is empty. See `add`.

        Parameters
        ----------
        vectors : array_like, shape (n, D)
        ids : array_like of int, shape (n,)
            Numbers of at least 0 that the index does not have.

        Raises
        ------
        DmlError
            If vectors or ids are not valid. Then nothing is added.
        """
        self._add(f"{self.name}.add_with_ids", vectors, ids, None)

    def _add(self, operator: str, vectors: Any, ids: Any, floats: Any) -> None:
        with self._changing:
            before, later = self._additions(operator, vectors, ids, floats)
            self.stored = joined(before, later, self._rooms)

    def merge_from(self, other: Self, add_id: int = 0) -> None:
        """Append all vectors of another index to this one, and empty the other.

        Parameters
        ----------
        other : index
            An index of the same class and metric, with as many dimensions, and with ids if this one has ids.
        add_id : int, default 0
            A number that is added to each id of the other index.

        Raises
        ------
        DmlError
            If the other index or its ids are not valid. Then nothing changes.
        """
        operator, allowed = f"{self.name}.merge_from", f"another {self.name} with d={self.d} and metric={self.metric!r}"
        if type(other) is not type(self) or other is self or (other.d, other.metric) != (self.d, self.metric):
            raise BindingError(operator, "other", repr(other), allowed)
        add_id = as_count(operator, "add_id", add_id)
        first, second = sorted((self, other), key=id)  # two merges at once wait for one another
        with first._changing, second._changing:
            kept = other.stored
            ids = None if kept.ids is None else kept.ids + add_id
            if len(kept):
                self.stored = joined(*self._merging(operator, other, ids), self._rooms)
            other._empty()

    def reset(self) -> None:
        """Remove all vectors."""
        with self._changing:
            self._empty()

    def _empty(self) -> None:
        self.stored = self.stored.taken(np.empty(0, np.int64))
        self._rooms.clear()

    def _now(self) -> Self:
        """Return a snapshot of this index, for methods with several steps."""
        index = type(self).__new__(type(self))
        index._set_up(self.space, self.stored)
        return index

    def train(self, vectors: "ArrayLike") -> None:
        """Do nothing, because an index needs no training. Programs written for FAISS may call it."""

    def remove_ids(self, ids: "ArrayLike") -> int:
        """Remove vectors, and return how many were removed. The positions of later vectors decrease.

        Parameters
        ----------
        ids : array_like of int
            Ids, or positions if the index has no ids, below 2**63. Unknown ids are ignored.

        Returns
        -------
        int

        Examples
        --------
        >>> import numpy as np
        >>> from dmlcpu.search import FloatIndex
        >>> index = FloatIndex(np.eye(3), ids=[7, 8, 9])
        >>> index.remove_ids([8, 100])
        1
        >>> index.ntotal
        2
        """
        wanted = as_ids(f"{self.name}.remove_ids", "ids", ids)
        with self._changing:
            positions = self.stored.positions(wanted)
            keeps = np.ones(len(self.stored), bool)
            keeps[positions[positions >= 0]] = False
            removed = len(keeps) - int(np.count_nonzero(keeps))
            if removed:
                self.stored = self.stored.taken(np.flatnonzero(keeps))
                self._rooms.clear()  # they hold what was removed
        return removed

    def reconstruct(self, i: int) -> "Array":
        """Return a vector: as it was added, or the numbers that its bytes represent.

        Parameters
        ----------
        i : int
            An id, or a position if the index has no ids.

        Returns
        -------
        ndarray, shape (D,)

        Raises
        ------
        IndexOutOfRangeError
            If there is no such vector.

        Examples
        --------
        >>> import numpy as np
        >>> from dmlcpu.search import Int8Index
        >>> Int8Index(np.array([[1, 2], [3, 4]], np.int8)).reconstruct(1)
        array([3, 4], dtype=int8)
        """
        operator = f"{self.name}.reconstruct"
        vector: Array = self._vectors_at(operator, "i", np.array([as_integer(operator, "i", i)], object))[0]
        return vector

    def reconstruct_batch(self, ids: "ArrayLike") -> "Array":
        """Return the vectors with some ids, shape (n, D). See `reconstruct`.

        Parameters
        ----------
        ids : array_like of int, shape (n,)

        Raises
        ------
        IndexOutOfRangeError
            If there is no such vector.
        """
        operator = f"{self.name}.reconstruct_batch"
        return self._vectors_at(operator, "ids", as_ids(operator, "ids", ids))

    def reconstruct_n(self, i0: int = 0, ni: int = -1) -> "Array":
        """Return `ni` vectors from position `i0` on, shape (ni, D); with -1, all from there on. See `reconstruct`."""
        operator = f"{self.name}.reconstruct_n"
        stored, first, count = self.stored, as_count(operator, "i0", i0), as_integer(operator, "ni", ni)
        last = len(stored) if count == -1 else first + count
        if not first <= last <= len(stored):
            raise IndexOutOfRangeError(operator, "ni", str(count), f"-1, or 0 to {max(0, len(stored) - first)}")
        return self._restored(stored, np.arange(first, last))

    def _vectors_at(self, operator: str, field: str, ids: Array) -> Array:
        """Return vectors by their ids, or refuse a missing one."""
        stored = self.stored
        there = np.array([0 <= i < 1 << 63 for i in ids.tolist()], bool)
        positions = np.full(len(ids), -1)
        positions[there] = stored.positions(ids[there].astype(np.int64))
        if (positions < 0).any():
            place = int(np.argmax(positions < 0))
            where = field if field == "i" else f"{field}[{place}]"
            what = f"0 to {len(stored) - 1}" if stored.ids is None else "an id of the index"
            allowed = what if len(stored) else "none: the index is empty"
            raise IndexOutOfRangeError(operator, where, str(ids[place]), allowed)
        return self._restored(stored, positions)

    def _restored(self, stored: Stored, positions: Array) -> Array:
        """Return vectors at some positions as they were added."""
        if stored.floats is not None and stored.scales is not None:
            return np.array(stored.floats[positions])
        if stored.scales is None:
            return np.array(stored.vectors[positions])
        return np.asarray(stored.scales[positions, None] * stored.vectors[positions])

    def search_and_reconstruct(self, queries: "ArrayLike", k: int, **options: Any) -> "tuple[Array, Array, Array]":
        """Return scores, indices, and the vectors that were found, shape (M, k, D); zeros where the index is -1.

        Parameters
        ----------
        queries, k, **options
            As for `search`.
        """
        now = self._now()
        scores, found = now.search(queries, k, **options)[:2]
        there = found >= 0
        vectors = now._vectors_at(f"{self.name}.search_and_reconstruct", "ids", found[there])
        result = np.zeros((*found.shape, self.d), vectors.dtype)
        result[there] = vectors
        return scores, found, result

    def assign(self, queries: "ArrayLike", k: int = 1) -> "Array":
        """Return the indices that `search` returns, without scores."""
        found: Array = self.search(queries, k)[1]
        return found

    def range_search(self, queries: "ArrayLike", radius: float) -> "tuple[Array, Array, Array]":
        """Return all vectors whose score is better than a radius: less for "l2", else greater.

        Parameters
        ----------
        queries : array_like, shape (M, D) or (D,)
        radius : float
            A score: for "l2" a squared distance.

        Returns
        -------
        lims : ndarray of int64, shape (M + 1,)
            Query i has the hits lims[i] to lims[i + 1], the best first.
        scores : ndarray, shape (lims[M],)
        indices : ndarray of int64, shape (lims[M],)

        Examples
        --------
        >>> import numpy as np
        >>> from dmlcpu.search import FloatIndex
        >>> FloatIndex([[0.0], [1.0], [5.0]], "l2").range_search([[0.5]], 1.0)
        (array([0, 2]), array([0.25, 0.25]), array([0, 1]))
        """
        operator = f"{self.name}.range_search"
        if not isinstance(radius, int | float | np.integer | np.floating) or np.isnan(radius):
            raise DmlError(operator, "radius", repr(radius), "a number")
        given, now = self._as_queries(operator, queries), self._now()
        hits: list[tuple[Array, Array]] = [(np.empty(0), np.empty(0, np.int64))] * len(given)
        left, k = np.arange(len(given)), min(_FIRST_RANGE, len(now))
        while left.size:
            scores, found = now.search(given[left], k)[:2]
            is_hit = (found >= 0) & ((scores < radius) if self.metric == "l2" else (scores > radius))
            for row, mine in enumerate(is_hit):
                hits[left[row]] = scores[row, mine], found[row, mine]
            left = left[is_hit[:, -1]] if k and k < len(now) else left[:0]
            k = min(8 * k, len(now))
        lims = np.cumsum([0, *[len(scores) for scores, _ in hits]])
        parts = [np.concatenate(each) for each in zip(*hits, strict=True)] if hits else [np.empty(0), np.empty(0, int)]
        return lims, *parts

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to a folder of .npy files with a JSON header. On Linux, this replaces an older index in one step.

        Parameters
        ----------
        path : str or path
            The folder: a new one, an empty one, or one with an index, which is replaced.

        Raises
        ------
        DmlError
            If the path is a file, or a folder with anything else.
        OSError
            If the folder cannot be written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from dmlcpu.search import FloatIndex
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "corpus.index"
        >>> FloatIndex(np.eye(3)).save(folder)
        >>> FloatIndex.load(folder)
        FloatIndex(3 x 3 float64, metric='ip')
        """
        from dmlcpu.search.storage import save

        save(path, self.name, self.space, self.stored)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a saved index. Its arrays are memory-mapped: searches read the files.

        Parameters
        ----------
        path : str or path
            The folder.

        Raises
        ------
        DmlError
            If the folder is no index of this class, is truncated, or its parts do not match. Nothing is unpickled.
        OSError
            If the folder cannot be read.
        """
        from dmlcpu.search.storage import load

        _, space, stored = load(path, cls.name)
        index = cls.__new__(cls)
        index._set_up(space, stored)
        return index
