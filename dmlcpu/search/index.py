"""`Int8Index`: exact search among vectors of bytes."""

import os
import threading
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.annotations import Array, Metric
from dmlcpu.common.arguments import as_integer
from dmlcpu.errors import BindingError, DmlError, IndexOutOfRangeError
from dmlcpu.search import ranking
from dmlcpu.search.arguments import allowed_mask, as_additions, as_count, as_float_vectors, as_ids, as_new_ids
from dmlcpu.search.quantizer import as_float32, encode
from dmlcpu.search.spaces import Space, as_vectors, space_of
from dmlcpu.search.vectors import Stored, joined, stored_of

NAME = "Int8Index"
_RESCORED = 1 << 18  # that are rescored at a time


class Int8Index:
    """Vectors of bytes, and exact search for those nearest to queries.

    Vectors of int8 or uint8 are searched as they are. Vectors of floats are quantized, each by itself: its greatest
    absolute value becomes 127. A search reads all vectors once, and never writes the scores.

    Parameters
    ----------
    vectors : array_like, shape (N, D)
        int8, uint8, or float32, float16, bfloat16 or float64 to be quantized; D at most 16,384. An array of bytes in C
        order is used as it is, without a copy, a memory-mapped one too.
    metric : {"ip", "l2", "cosine"}, default "ip"
        The inner product, the squared distance, or the cosine.
    ids : array_like of int, shape (N,), optional
        Numbers of at least 0, all different, to return instead of positions.
    ranges : array_like of float, shape (2, D), optional
        The least and the greatest value of each dimension, if the bytes are those of sentence-transformers'
        ``quantize_embeddings``: byte b of uint8 stands for ``least + (b + 0.5) * (greatest - least) / 255``.
    floats : True, array_like of float, shape (N, D), or path, optional
        The vectors before they were quantized, to rescore with: True keeps those given as `vectors`; a path is that of
        a .npy file, which is memory-mapped. Arrays are kept without a copy: do not change them.

    Attributes
    ----------
    d : int
        The number of dimensions.
    ntotal : int
        The number of vectors.
    metric : str
        As given.

    Raises
    ------
    DmlError
        If an argument does not fit: a type, a shape, a number that is not finite or beyond 1e16, an id twice.

    See Also
    --------
    dmlcpu.search.knn : The same in one call.

    Notes
    -----
    The methods have the names of FAISS's ``IndexFlat`` and ``IndexIDMap``. Searches may run in several threads while
    another thread adds or removes vectors: each sees all of a change or nothing of it.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu.search import Int8Index
    >>> index = Int8Index(np.array([[1, 2], [3, 4], [-5, 6]], np.int8))
    >>> scores, indices = index.search(np.array([[1, 1]], np.int8), 2)
    >>> scores
    array([[7., 3.]])
    >>> indices
    array([[1, 0]])
    """

    is_trained = True  # for programs that ask, as FAISS's users do

    def __init__(
        self,
        vectors: "ArrayLike",
        metric: "Metric" = "ip",
        ids: "ArrayLike | None" = None,
        ranges: "ArrayLike | None" = None,
        floats: "bool | ArrayLike | str | os.PathLike[str] | None" = None,
    ) -> None:
        given = as_vectors(NAME, "vectors", vectors)
        space = space_of(NAME, metric, given, ranges)
        if floats is True and given.dtype.itemsize == 1:
            raise BindingError(NAME, "floats", "True with vectors of bytes", "the vectors as floats, or None")
        stored = stored_of(NAME, given, space, keeps=floats is True)
        if floats is not None and floats is not True and floats is not False:
            stored = replace(stored, floats=as_float_vectors(NAME, floats, stored.vectors.shape))
        if ids is not None:
            stored = replace(stored, ids=as_new_ids(NAME, ids, len(stored), None))
        self._set_up(space, stored)

    def _set_up(self, space: Space, stored: Stored) -> None:
        self.space, self.stored = space, stored  # another takes the place of `stored` when vectors change
        self._rooms: dict[str, Array] = {}
        self._changing = threading.Lock()

    def __getstate__(self) -> tuple[Space, dict[str, Array]]:
        return self.space, {name: np.asarray(each) for name, each in self.stored.arrays().items()}

    def __setstate__(self, state: tuple[Space, dict[str, Array]]) -> None:
        space, arrays = state
        self._set_up(space, Stored(**arrays))

    def __repr__(self) -> str:
        stored = self.stored
        extra = "".join(f", {name}" for name in ("ids", "floats") if getattr(stored, name) is not None)
        return f"Int8Index({len(stored)} x {self.d} {stored.vectors.dtype}, metric={self.metric!r}{extra})"

    def __len__(self) -> int:
        return len(self.stored)

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.space.depth

    @property
    def ntotal(self) -> int:
        """The number of vectors."""
        return len(self.stored)

    @property
    def metric(self) -> Metric:
        """The metric: "ip", "l2" or "cosine"."""
        return self.space.metric

    @property
    def has_floats(self) -> bool:
        """Whether it has the vectors as floats, so that it can rescore."""
        return self.stored.floats is not None

    def search(
        self,
        queries: "ArrayLike",
        k: int,
        *,
        mask: "ArrayLike | None" = None,
        allowlist: "ArrayLike | None" = None,
        rescore: int | None = None,
    ) -> "tuple[Array, Array]":
        """Return the k best vectors of each query, the best first; of equal ones, the lower position first.

        What a query finds depends on its own arguments alone: not on other queries, threads or processor.

        Parameters
        ----------
        queries : array_like, shape (M, D) or (D,)
            int8, uint8, or floats, which are quantized, each query by itself. If the index has `ranges`, bytes are
            taken for affine ones, too.
        k : int
            How many; it may be more than there are.
        mask : array_like of bool, shape (N,), optional
            True for each vector that may be found, by position.
        allowlist : array_like of int, optional
            The ids, or without ids the positions, that may be found, below 2**63; others that are not in the index are
            ignored.
        rescore : int, optional
            The k * rescore best vectors are scored again by the vectors as floats, and the k best of these returned,
            with these scores. The index must have been given `floats`.

        Returns
        -------
        scores : ndarray, shape (M, k) or (k,)
            float64 with exact integers for bytes by bytes with "ip" and "l2", else float32. "ip" and "cosine": the
            largest come first. "l2" is the squared distance: the smallest come first. The score where nothing was found
            is the worst: -inf, and for "l2" inf.
        indices : ndarray of int64, of the same shape
            Ids, or without ids positions; -1 where nothing was found.

        Raises
        ------
        DmlError
            If an argument does not fit.

        Examples
        --------
        >>> import numpy as np
        >>> from dmlcpu.search import Int8Index
        >>> index = Int8Index([[0.5, 0.0], [0.0, 2.0], [0.5, 0.5]], metric="cosine", ids=[10, 20, 30])
        >>> index.search([0.0, 1.0], 2, allowlist=[10, 30])
        (array([0.70710677, 0.        ], dtype=float32), array([30, 10]))
        """
        stored, operator = self.stored, f"{NAME}.search"
        given = as_vectors(operator, "queries", queries, self.d)
        k = as_count(operator, "k", k)
        allowed = allowed_mask(operator, stored, mask, allowlist)
        if rescore is None:
            encoded = encode(operator, given, self.space, stored.vectors.dtype)
            scores, found = ranking.search(self.space, stored, encoded, k, allowed)
        else:
            scores, found = self._rescored(operator, stored, given, k, allowed, rescore)
        if stored.ids is not None:
            found = ranking.names_of(stored.ids, found)
        return (scores[0], found[0]) if np.ndim(queries) == 1 else (scores, found)

    def _rescored(
        self, operator: str, stored: Stored, queries: Array, k: int, allowed: Array | None, rescore: Any
    ) -> tuple[Array, Array]:
        multiple = as_count(operator, "rescore", rescore, least=1)
        if stored.floats is None:
            raise DmlError(operator, "rescore", str(rescore), "None: the index was not given `floats`")
        affine = self.space.ranges is not None and queries.dtype.itemsize == 1
        most = min(k * multiple, max(k, len(stored)))
        scores, found = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        for start in range(0, len(queries), step := max(1, _RESCORED // max(1, most))):
            part = slice(start, start + step)
            block = queries[part]
            exact = self.space.decoded(block) if affine else as_float32(block)
            encoded = encode(operator, block, self.space, stored.vectors.dtype)
            _, candidates = ranking.search(self.space, stored, encoded, most, allowed)
            scores[part], found[part] = ranking.rescored(self.space, stored.floats, exact, candidates, k)
        return scores, found

    def add(self, vectors: "ArrayLike", *, floats: "ArrayLike | None" = None) -> None:
        """Add vectors after the others.

        Parameters
        ----------
        vectors : array_like, shape (n, D)
            Of the type of the index: bytes of the same type, or floats if it was given floats.
        floats : array_like of float, shape (n, D), optional
            Needed if the index has `floats` as well as vectors of bytes.

        Raises
        ------
        DmlError
            If they do not fit, or the index has ids. Nothing has been added then.

        Examples
        --------
        >>> import numpy as np
        >>> from dmlcpu.search import Int8Index
        >>> index = Int8Index(np.array([[1, 2]], np.uint8))
        >>> index.add(np.array([[3, 4], [5, 6]], np.uint8))
        >>> index.ntotal
        3
        """
        self._add(f"{NAME}.add", vectors, None, floats)

    def add_with_ids(self, vectors: "ArrayLike", ids: "ArrayLike", *, floats: "ArrayLike | None" = None) -> None:
        """Add vectors with ids to an index that has ids, or is empty. See `add`.

        Parameters
        ----------
        vectors, floats
            As for `add`.
        ids : array_like of int, shape (n,)
            Numbers of at least 0 that the index does not have.

        Raises
        ------
        DmlError
            If they do not fit. Nothing has been added then.
        """
        self._add(f"{NAME}.add_with_ids", vectors, ids, floats)

    def _add(self, operator: str, vectors: Any, ids: Any, floats: Any) -> None:
        with self._changing:
            before, later = as_additions(operator, self.space, self.stored, vectors, ids, floats)
            self.stored = joined(before, later, self._rooms)

    def remove_ids(self, ids: "ArrayLike") -> int:
        """Remove vectors; later ones move up. Return how many were removed.

        Parameters
        ----------
        ids : array_like of int
            Ids, or without ids positions, below 2**63; others that are not in the index are ignored.

        Returns
        -------
        int

        Examples
        --------
        >>> import numpy as np
        >>> from dmlcpu.search import Int8Index
        >>> index = Int8Index(np.eye(3, dtype=np.int8), ids=[7, 8, 9])
        >>> index.remove_ids([8, 100])
        1
        >>> index.ntotal
        2
        """
        wanted = as_ids(f"{NAME}.remove_ids", "ids", ids)
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
        """Return a vector as it was added: bytes as they are, floats as kept, or what the bytes stand for.

        Parameters
        ----------
        i : int
            An id, or without ids a position.

        Returns
        -------
        ndarray, shape (D,)
            int8, uint8 or a type of floats.

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
        stored, operator = self.stored, f"{NAME}.reconstruct"
        i = as_integer(operator, "i", i)
        position = int(stored.positions(np.array([i]))[0]) if 0 <= i < 1 << 63 else -1
        if position < 0:
            what = f"0 to {len(stored) - 1}" if stored.ids is None else "an id of the index"
            raise IndexOutOfRangeError(operator, "i", str(i), what if len(stored) else "none: the index is empty")
        if stored.scales is None:
            return np.array(stored.vectors[position])
        if stored.floats is not None:
            return np.array(stored.floats[position])
        return np.asarray(stored.scales[position] * stored.vectors[position])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to a folder of .npy files with a header in JSON, in one step: an older index there stays until then.

        Parameters
        ----------
        path : str or path
            The folder: a new one, an empty one, or one with an index, which is replaced.

        Raises
        ------
        DmlError
            If something else is in its place.
        OSError
            If it cannot be written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from dmlcpu.search import Int8Index
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "corpus.index"
        >>> Int8Index(np.eye(3, dtype=np.int8)).save(folder)
        >>> Int8Index.load(folder)
        Int8Index(3 x 3 int8, metric='ip')
        """
        from dmlcpu.search.storage import save

        save(path, self.space, self.stored)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Int8Index":
        """Load a saved index. Its arrays are memory-mapped: they are read when they are searched.

        Parameters
        ----------
        path : str or path
            The folder.

        Returns
        -------
        Int8Index

        Raises
        ------
        DmlError
            If it is no index, or truncated, or its parts do not fit one another. Nothing is ever unpickled.
        OSError
            If it cannot be read.
        """
        from dmlcpu.search.storage import load

        index = cls.__new__(cls)
        index._set_up(*load(path))
        return index


Int8Index.__module__ = "dmlcpu.search"  # pickles name the class by its public path
