"""`FloatIndex`: exact search among vectors of floats."""

import functools
import logging
import os
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.annotations import Array, Metric
from dmlcpu.common.arguments import check_choice, check_type
from dmlcpu.errors import BindingError
from dmlcpu.search import exact
from dmlcpu.search.arguments import as_count, as_new_ids, check_ids_alike, in_parts
from dmlcpu.search.codes import frame_of, stored_floats
from dmlcpu.search.found import Report
from dmlcpu.search.index import Index
from dmlcpu.search.ranking import names_of
from dmlcpu.search.spaces import FLOATS, METRICS, as_numbers, as_vectors, check_depth
from dmlcpu.search.vectors import Stored, storable

NAME = "FloatIndex"
_log = logging.getLogger("dmlcpu")


class FloatIndex(Index):
    """Exact search among float vectors, in a fraction of a flat index's time.

    A search returns the k vectors with the best float64 scores, for any data; the notes define the scores. In addition
    to the floats, the index keeps a code of one byte for each number. Codes bound the score of each vector: a search
    scores the vectors with the best bounds, and continues until the bounds prove that no other vector belongs to the
    result. Codes affect only the time of a search, never its result.

    Parameters
    ----------
    vectors : array_like of float, shape (N, D), or path
        float16, bfloat16, float32 or float64 of at most 2**500 in absolute value; D at most 16,384. They are kept in
        their type, bfloat16 as float32. An array in C order is not copied: do not change it. A .npy file, given by its
        path, is memory-mapped.
    metric : {"ip", "l2", "cosine"}, default "ip"
        The inner product, the squared distance, or the cosine.
    ids : array_like of int, shape (N,), optional
        Numbers of at least 0, all different, to return instead of positions.

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
        If an argument has an invalid type or shape, a number is NaN, infinite or too great, or an id is given twice.

    See Also
    --------
    dmlcpu.search.Int8Index : Keeps only bytes; its scores have the precision of bytes.
    dmlcpu.search.knn : The same in one call.

    Notes
    -----
    Scores are float64. The terms of "ip" are ``q[d] * v[d]``, those of "l2" ``(q[d] - v[d])**2``, each rounded to
    float64. Term d is added to partial sum d % 8, and the eight partial sums are added pairwise: 0 + 4, 1 + 5, 2 + 6
    and 3 + 7, then 0 + 2 and 1 + 3, then 0 + 1. "cosine" is the product divided by the root of the product of both sums
    of squares. It is 0 if one sum is 0, exactly 1 (or -1) for vectors that are multiples of each other, and never
    beyond. Among equal scores the lower position comes first. Therefore the result is the same on every processor, with
    any number of threads, and in any batch of queries.

    Codes take D + 8 bytes a vector, D + 16 for "cosine". If codes do not help 64 queries, because vectors form distant
    groups or many are equal, the index encodes the vectors again, which takes as much memory again.
    docs/exact_search.rst proves the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu.search import FloatIndex
    >>> index = FloatIndex([[0.5, 0.0], [0.0, 2.0], [0.5, 0.5]], metric="cosine", ids=[10, 20, 30])
    >>> scores, indices = index.search([0.0, 1.0], 2)
    >>> scores
    array([1.        , 0.70710678])
    >>> indices
    array([20, 30])
    """

    name = NAME
    _has_warned = False

    def __init__(
        self,
        vectors: "ArrayLike | str | os.PathLike[str]",
        metric: "Metric" = "ip",
        ids: "ArrayLike | None" = None,
    ) -> None:
        check_choice(NAME, "metric", metric, METRICS)
        if isinstance(vectors, str | os.PathLike):
            from dmlcpu.search.storage import mapped

            vectors = mapped(NAME, "vectors", vectors)
        given = _as_floats(NAME, "vectors", vectors)
        check_depth(NAME, given.shape[1])
        frame = frame_of(metric, given)
        stored = stored_floats(NAME, given, frame)
        if ids is not None:
            stored = replace(stored, ids=as_new_ids(NAME, ids, len(stored), None))
        self._set_up(frame, stored)

    @property
    def _kept(self) -> Array:
        assert self.stored.floats is not None
        return self.stored.floats

    @overload
    def search(
        self,
        queries: ArrayLike,
        k: int,
        *,
        mask: ArrayLike | None = None,
        allowlist: Any = None,
        exclude: Any = None,
        report: Literal[False] = False,
    ) -> tuple[Array, Array]: ...
    @overload
    def search(
        self,
        queries: ArrayLike,
        k: int,
        *,
        mask: ArrayLike | None = None,
        allowlist: Any = None,
        exclude: Any = None,
        report: Literal[True],
    ) -> tuple[Array, Array, Report]: ...
    def search(
        self,
        queries: "ArrayLike",
        k: int,
        *,
        mask: "ArrayLike | None" = None,
        allowlist: Any = None,
        exclude: Any = None,
        report: bool = False,
    ) -> Any:
        """Return the k best vectors for each query, the best first; among equal scores, the lower position first.

        Parameters
        ----------
        queries : array_like of float, shape (M, D) or (D,)
            float16, bfloat16, float32 or float64.
        k : int
            How many; it may exceed the number of vectors.
        mask : array_like of bool, shape (N,) or (M, N), optional
            True for each vector that may be found, by position.
        allowlist : array_like of int, or a list of M of them, optional
            The ids that may be found, by all queries or by each one; positions if the index has no ids. Unknown ids are
            ignored.
        exclude : list of M lists of int, pair of arrays, sparse matrix or array_like of bool, optional
            What each query must not find: a list of ids for each query (positions if the index has no ids), or all
            lists in one array as ``(indptr, indices)``; a SciPy sparse matrix (M, N), or bool (M, N), whose columns are
            positions.
        report : bool, default False
            Whether to return the work of the search as well.

        Returns
        -------
        scores : ndarray of float64, shape (M, k) or (k,)
            "ip" and "cosine": the largest come first. "l2" is the squared distance: the smallest come first. Where
            nothing was found, the score is -inf, and for "l2" inf.
        indices : ndarray of int64, of the same shape
            Ids, or positions if the index has no ids; -1 where nothing was found.
        report : Report
            With ``report=True``: ``report.scored``, how many vectors were scored for each query, and ``report.passes``.

        Raises
        ------
        DmlError
            If an argument is not valid.

        Examples
        --------
        >>> import numpy as np
        >>> from dmlcpu.search import FloatIndex
        >>> index = FloatIndex([[0.0, 1.0], [3.0, 4.0], [6.0, 8.0]], metric="l2")
        >>> index.search([[0.0, 0.0], [6.0, 8.0]], 1, exclude=[[0], [2]])
        (array([[25.],
               [25.]]), array([[1],
               [1]]))
        """
        stored, operator = self.stored, f"{NAME}.search"
        given = self._as_queries(operator, queries)
        k = as_count(operator, "k", k)
        search = functools.partial(self._searched, operator, stored, k)
        ranks, found, *took = in_parts(search, operator, stored, given, mask=mask, allowlist=allowlist, exclude=exclude)
        if not self._has_warned and exact.are_defeated(len(stored), took[0]):
            self._has_warned = True
            _log.warning("%r: %s", self, exact.reason_of(stored))
        scores = -ranks if self.metric == "l2" else ranks
        scores += 0.0  # -0 becomes 0
        if np.ndim(queries) == 1:
            scores, found = scores[0], found[0]
        return (scores, found, Report(*took)) if report else (scores, found)

    def _searched(self, operator: str, stored: Stored, k: int, queries: Array, bits: Array | None) -> tuple[Array, ...]:
        """Return ranks, indices, and the fields of the report."""
        found = exact.search(operator, stored, queries, k, bits)
        names = found.positions if stored.ids is None else names_of(stored.ids, found.positions)
        return found.ranks, names, found.scored, found.passes

    def add(self, vectors: "ArrayLike") -> None:
        """Append vectors.

        Parameters
        ----------
        vectors : array_like of float, shape (n, D)
            Their type is the index's, or one that converts to it without loss. Lists are converted.

        Raises
        ------
        DmlError
            If vectors are not valid, or the index has ids. Then nothing is added.

        Examples
        --------
        >>> import numpy as np
        >>> from dmlcpu.search import FloatIndex
        >>> index = FloatIndex(np.array([[1.0, 2.0]]))
        >>> index.add([[3.0, 4.0], [5.0, 6.0]])
        >>> index.ntotal
        3
        """
        self._add(f"{NAME}.add", vectors, None, None)

    def _as_queries(self, operator: str, queries: Any) -> Array:
        return _as_floats(operator, "queries", queries, self.d)

    def _merging(self, operator: str, other: Index, ids: Any) -> tuple[Stored, Stored]:
        return self._additions(operator, other.stored.floats, ids, None)

    def _additions(self, operator: str, vectors: Any, ids: Any, floats: Any) -> tuple[Stored, Stored]:
        before, dtype = self.stored, self._kept.dtype
        given = _as_floats(operator, "vectors", vectors, self.d)
        if len(before) and not np.can_cast(given.dtype, dtype) and hasattr(vectors, "dtype"):
            raise BindingError(operator, "vectors.dtype", str(given.dtype), f"{dtype} (the index's type)")
        if len(before):
            with np.errstate(over="ignore"):  # which is refused below
                given = given.astype(dtype, copy=False)
        check_ids_alike(operator, before, ids)
        if not len(before):  # another center may suit them better
            before = stored_floats(operator, given[:0], frame_of(self.metric, given))
        later = stored_floats(operator, given, before.frame)
        if ids is None:
            return before, later
        numbers = as_new_ids(operator, ids, len(later), before)
        there = np.empty(0, np.int64) if before.ids is None else before.ids
        return replace(before, ids=there), replace(later, ids=numbers)


FloatIndex.__module__ = "dmlcpu.search"  # pickles name the class by its public path


def _as_floats(operator: str, field: str, value: Any, depth: int | None = None) -> Array:
    """Return floats (N, D) in a type that .npy files have; numbers that are in lists may be integers."""
    array = as_numbers(operator, field, value)
    if array.ndim:
        check_type(operator, field, array.dtype, FLOATS)
    return np.require(storable(as_vectors(operator, field, array, depth)), requirements=["C", "A"])
