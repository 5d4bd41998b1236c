"""`Int8Index`: exact search among vectors of bytes."""

import functools
import os
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmlcpu.annotations import Array, Metric
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.search import ranking
from dmlcpu.search.arguments import (
    as_additions,
    as_count,
    as_float_vectors,
    as_new_ids,
    check_ids_alike,
    in_parts,
)
from dmlcpu.search.index import Index
from dmlcpu.search.quantizer import as_float32, encode
from dmlcpu.search.spaces import Space, as_vectors, space_of
from dmlcpu.search.vectors import Stored, stored_of

NAME = "Int8Index"
_SAMPLE, _QUERIES, _NEAREST = 1024, 32, 10  # vectors, and queries among them, to measure the loss of bytes
_FOUND = 0.9  # of the nearest: if fewer are found, building an index warns
_RESCORED = 1 << 18  # that are rescored at a time


class Int8Index(Index):
    """Exact search among byte vectors.

    Vectors of int8 or uint8 are searched unchanged. Each float vector is quantized separately: its greatest absolute
    value becomes 127. A search reads all vectors once, and does not store the scores of all.

    Parameters
    ----------
    vectors : array_like, shape (N, D)
        int8 or uint8; or float32, float16, bfloat16 or float64, which are quantized. D is at most 16,384. An array of
        bytes in C order, also a memory-mapped one, is not copied: do not change it.
    metric : {"ip", "l2", "cosine"}, default "ip"
        The inner product, the squared distance, or the cosine.
    ids : array_like of int, shape (N,), optional
        Numbers of at least 0, all different, to return instead of positions.
    ranges : array_like of float, shape (2, D), optional
        The least and the greatest value of each dimension, if the bytes are those of sentence-transformers'
        ``quantize_embeddings``: byte b of uint8 stands for ``least + (b + 0.5) * (greatest - least) / 255``.
    floats : True, array_like of float, shape (N, D), or path, optional
        The vectors before quantization, for rescoring: True keeps those given as `vectors`. A .npy file, given by its
        path, is memory-mapped. Arrays are kept without a copy: do not change them.

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
        If an argument has an invalid type or shape, a number is not finite or beyond 1e16, or an id is given twice.

    Warns
    -----
    UserWarning
        If bytes find less than 90 % of the nearest vectors, measured on a sample of 1,024. Byte vectors, and fewer than
        1,024 float vectors, are not measured.

    See Also
    --------
    dmlcpu.search.knn : The same in one call.

    Notes
    -----
    The methods have the names of FAISS's ``IndexFlat`` and ``IndexIDMap``. Searches may run in several threads while
    another thread adds or removes vectors: each sees either all of a change or none of it.

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

    name = NAME

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
        if stored.scales is not None and (share := found_share(space, given, stored)) < _FOUND:
            warnings.warn(
                f"Int8Index: bytes find {share:.0%} of the {_NEAREST} nearest of a sample of these vectors; "
                "FloatIndex finds all",
                stacklevel=2,
            )

    def __repr__(self) -> str:
        stored = self.stored
        extra = "".join(f", {name}" for name in ("ids", "floats") if getattr(stored, name) is not None)
        return f"Int8Index({len(stored)} x {self.d} {stored.vectors.dtype}, metric={self.metric!r}{extra})"

    @property
    def has_floats(self) -> bool:
        """Whether the index also has the vectors as floats, for rescoring."""
        return self.stored.floats is not None

    def search(
        self,
        queries: "ArrayLike",
        k: int,
        *,
        mask: "ArrayLike | None" = None,
        allowlist: Any = None,
        exclude: Any = None,
        rescore: int | None = None,
    ) -> "tuple[Array, Array]":
        """Return the k best vectors for each query, the best first; among equal scores, the lower position first.

        The result of a query depends only on its own arguments, not on other queries, threads or the processor.

        Parameters
        ----------
        queries : array_like, shape (M, D) or (D,)
            int8, uint8 or floats; each float query is quantized separately. If the index has `ranges`, they also apply
            to byte queries.
        k : int
            How many; it may exceed the number of vectors.
        mask, allowlist, exclude
            The vectors that may be found, as for `FloatIndex.search`.
        rescore : int, optional
            If given, the k * rescore best vectors are scored again as floats, and the k best by these scores are
            returned. The index must have `floats`.

        Returns
        -------
        scores : ndarray, shape (M, k) or (k,)
            Exact integers as float64 if queries and vectors are bytes without `ranges` and the metric is "ip" or "l2",
            else float32. "ip" and "cosine": the largest come first. "l2" is the squared distance: the smallest come
            first. Where nothing was found, the score is -inf, and for "l2" inf.
        indices : ndarray of int64, of the same shape
            Ids, or positions if the index has no ids; -1 where nothing was found.

        Raises
        ------
        DmlError
            If an argument is not valid.

        Examples
        --------
        >>> import numpy as np
        >>> from dmlcpu.search import Int8Index
        >>> index = Int8Index([[0.5, 0.0], [0.0, 2.0], [0.5, 0.5]], metric="cosine", ids=[10, 20, 30])
        >>> index.search([0.0, 1.0], 2, allowlist=[10, 30])
        (array([0.70710677, 0.        ], dtype=float32), array([30, 10]))
        """
        stored, operator = self.stored, f"{NAME}.search"
        given = self._as_queries(operator, queries)
        k = as_count(operator, "k", k)
        multiple = None if rescore is None else as_count(operator, "rescore", rescore, least=1)
        if multiple is not None and stored.floats is None:
            raise DmlError(
                operator, "rescore", str(rescore), "None, as the index has no floats: build it with `floats`"
            )
        search = functools.partial(self._searched, operator, stored, k, multiple)
        scores, found = in_parts(search, operator, stored, given, mask=mask, allowlist=allowlist, exclude=exclude)
        return (scores[0], found[0]) if np.ndim(queries) == 1 else (scores, found)

    def _searched(
        self, operator: str, stored: Stored, k: int, rescore: int | None, queries: Array, allowed: Array | None
    ) -> tuple[Array, ...]:
        """Return scores and indices. allowed: bits."""
        if rescore is None:
            encoded = encode(operator, queries, self.space, stored.vectors.dtype)
            scores, found = ranking.search(self.space, stored, encoded, k, allowed)
        else:
            scores, found = self._rescored(operator, stored, queries, k, allowed, rescore)
        return scores, found if stored.ids is None else ranking.names_of(stored.ids, found)

    def _rescored(
        self, operator: str, stored: Stored, queries: Array, k: int, allowed: Array | None, rescore: int
    ) -> tuple[Array, Array]:
        assert stored.floats is not None
        affine = self.space.ranges is not None and queries.dtype.itemsize == 1
        most = min(k * rescore, max(k, len(stored)))
        scores, found = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        for start in range(0, len(queries), step := max(1, _RESCORED // max(1, most))):
            part = slice(start, start + step)
            block = queries[part]
            exact = self.space.decoded(block) if affine else as_float32(block)
            encoded = encode(operator, block, self.space, stored.vectors.dtype)
            own = allowed if allowed is None or len(allowed) == 1 else allowed[part]
            _, candidates = ranking.search(self.space, stored, encoded, most, own)
            scores[part], found[part] = ranking.rescored(self.space, stored.floats, exact, candidates, k)
        return scores, found

    def add(self, vectors: "ArrayLike", *, floats: "ArrayLike | None" = None) -> None:
        """Append vectors.

        Parameters
        ----------
        vectors : array_like, shape (n, D)
            Bytes of the index's type, or floats if the index was built from floats.
        floats : array_like of float, shape (n, D), optional
            Required if the index was built from bytes and has `floats`.

        Raises
        ------
        DmlError
            If vectors are not valid, or the index has ids. Then nothing is added.

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
            If vectors or ids are not valid. Then nothing is added.
        """
        self._add(f"{NAME}.add_with_ids", vectors, ids, floats)

    def _as_queries(self, operator: str, queries: Any) -> Array:
        return as_vectors(operator, "queries", queries, self.d)

    def _merging(self, operator: str, other: Index, ids: Any) -> tuple[Stored, Stored]:
        before, later = self.stored, other.stored
        check_ids_alike(operator, before, ids)
        numbers = None if ids is None else as_new_ids(operator, ids, len(later), before)
        there = before.ids if ids is None or before.ids is not None else np.empty(0, np.int64)
        before, later = replace(before, ids=there), replace(later, ids=numbers)
        kinds = [[(name, array.dtype) for name, array in each.arrays().items()] for each in (before, later)]
        if kinds[0] != kinds[1] or not np.array_equal(self.space.ranges, other.space.ranges):
            raise BindingError(operator, "other", repr(other), f"an index of vectors of the same kind as {self!r}")
        return before, later

    def _additions(self, operator: str, vectors: Any, ids: Any, floats: Any) -> tuple[Stored, Stored]:
        return as_additions(operator, self.space, self.stored, vectors, ids, floats)


def found_share(space: Space, floats: Array, stored: Stored) -> float:
    """Return which part of the nearest of some vectors bytes find, among a sample of the vectors."""
    if len(floats) < _SAMPLE:
        return 1.0
    places = np.linspace(0, len(floats) - 1, _SAMPLE).astype(np.int64)
    assert stored.scales is not None
    coded = stored.scales[places, None].astype(np.float64) * stored.vectors[places]
    with np.errstate(all="ignore"):  # of numbers beyond what is quantized
        nearest, found = (_nearest(space, each) for each in (floats[places].astype(np.float64), coded))
    return float(np.mean([len(np.intersect1d(*each)) for each in zip(nearest, found, strict=True)])) / _NEAREST


def _nearest(space: Space, vectors: Array) -> Array:
    """Return the nearest vectors of `_QUERIES` evenly spaced ones, each once if some are equal."""
    products = vectors[:: len(vectors) // _QUERIES] @ vectors.T
    squares = np.square(vectors).sum(axis=1)
    if space.metric == "l2":
        products = 2 * products - squares
    elif space.metric == "cosine":
        products /= np.sqrt(np.where(squares > 0, squares, 1))
    order: Array = np.argsort(-products, axis=1, kind="stable")[:, :_NEAREST]
    return order


Int8Index.__module__ = "dmlcpu.search"  # pickles name the class by its public path
