"""Searches in one call: `knn`, and `semantic_search` with the signature of sentence-transformers."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

from numpy.typing import ArrayLike

from dmlcpu.annotations import Array, Metric
from dmlcpu.common.arguments import check_choice
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.search.arguments import as_count
from dmlcpu.search.float_index import FloatIndex
from dmlcpu.search.index import Index
from dmlcpu.search.int8_index import Int8Index
from dmlcpu.search.spaces import METRICS, as_numbers, as_vectors

# Except for the first of each, these are functions in sentence-transformers.
_COSINES, _PRODUCTS = ("cosine", "cos_sim", "pytorch_cos_sim"), ("ip", "dot_score")


def knn(
    queries: "ArrayLike",
    vectors: "ArrayLike",
    k: int,
    metric: "Metric" = "ip",
    *,
    mask: "ArrayLike | None" = None,
    allowlist: Any = None,
    exclude: Any = None,
    rescore: int | None = None,
) -> "tuple[Array, Array]":
    """Return the k best vectors for each query, the best first, without keeping an index.

    Parameters
    ----------
    queries : array_like, shape (M, D) or (D,)
    vectors : array_like, shape (N, D)
        If vectors are floats, queries must be floats, and scores are those of `FloatIndex`. If vectors are int8 or
        uint8, scores are those of `Int8Index`.
    k : int
    metric : {"ip", "l2", "cosine"}, default "ip"
    mask, allowlist, exclude
        The vectors that may be found, by position, as for `FloatIndex.search`.
    rescore : int, optional
        Has no effect with float vectors, which are scored exactly. With byte vectors it raises an error.

    Returns
    -------
    scores, indices : ndarray, shape (M, k) or (k,)
        As for the index's `search`.

    Raises
    ------
    DmlError
        If an argument is not valid.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu.search import knn
    >>> knn(np.array([[1, 1]], np.uint8), np.array([[3, 0], [1, 2], [9, 9]], np.uint8), 2, metric="l2")
    (array([[1., 5.]]), array([[1, 0]]))
    """
    given = as_vectors("knn", "vectors", as_numbers("knn", "vectors", vectors))
    if rescore is not None and given.dtype.itemsize == 1:
        raise DmlError("knn", "rescore", str(rescore), f"None: vectors are {given.dtype}, not floats")
    k = as_count("knn", "k", k)
    check_choice("knn", "metric", metric, METRICS)
    with _errors_name("knn"):
        index = Int8Index(given, metric) if given.dtype.itemsize == 1 else FloatIndex(given, metric)
        return index.search(queries, k, mask=mask, allowlist=allowlist, exclude=exclude)


def semantic_search(
    query_embeddings: "ArrayLike",
    corpus_embeddings: "ArrayLike | Index",
    query_chunk_size: int = 100,
    corpus_chunk_size: int = 500000,
    top_k: int = 10,
    score_function: "Literal['cosine', 'ip'] | Callable[..., Any]" = "cosine",
    *,
    rescore: int | None = 4,
) -> list[list[dict[str, int | float]]]:
    """Search as ``sentence_transformers.util.semantic_search`` does, exactly.

    Parameters
    ----------
    query_embeddings : array_like, shape (M, D) or (D,)
        They may be PyTorch tensors on the CPU.
    corpus_embeddings : array_like, shape (N, D) or (D,), or an index
        Pass an index to encode the corpus only once. The search uses the metric of the index.
    query_chunk_size, corpus_chunk_size : int
        Ignored, because the search does not store the scores of all pairs.
    top_k : int, default 10
    score_function : {"cosine", "ip"} or function
        The function may be sentence-transformers' ``cos_sim`` or ``dot_score``.
    rescore : int or None, default 4
        With an Int8Index that has floats, the top_k * rescore best are scored again as floats.

    Returns
    -------
    list of list of dict
        The hits of each query, the best first, each with "corpus_id" and "score".

    Raises
    ------
    DmlError
        If an argument is not valid, or the function is unknown.

    Examples
    --------
    >>> from dmlcpu.search import semantic_search
    >>> semantic_search([[1.0, 0.0]], [[0.0, 1.0], [3.0, 0.0]], top_k=1)
    [[{'corpus_id': 1, 'score': 1.0}]]
    """
    operator = "semantic_search"
    for field, size in (("query_chunk_size", query_chunk_size), ("corpus_chunk_size", corpus_chunk_size)):
        as_count(operator, field, size, least=1)
    top_k = as_count(operator, "top_k", top_k)
    name = score_function if isinstance(score_function, str) else getattr(score_function, "__name__", "")
    if name not in (*_COSINES, *_PRODUCTS):
        raise BindingError(
            operator, "score_function", repr(name or score_function), "'cosine', 'ip', cos_sim, dot_score"
        )
    if isinstance(corpus_embeddings, Index):
        index = corpus_embeddings
        if index.metric == "l2":
            raise DmlError(operator, "corpus_embeddings.metric", "'l2'", "'cosine', 'ip'")
    else:
        given = _detached("corpus_embeddings", corpus_embeddings)
        given = as_vectors(operator, "corpus_embeddings", given[None] if given.ndim == 1 else given)
        metric: Metric = "cosine" if name in _COSINES else "ip"
        with _errors_name(operator, vectors="corpus_embeddings"):
            index = Int8Index(given, metric) if given.dtype.itemsize == 1 else FloatIndex(given, metric)
    queries = _detached("query_embeddings", query_embeddings)
    queries = as_vectors(operator, "query_embeddings", queries, index.d)
    options = {"rescore": rescore} if isinstance(index, Int8Index) and index.has_floats else {}
    with _errors_name(operator, queries="query_embeddings"):
        scores, found = index.search(queries, top_k, **options)[:2]
    pairs = zip(scores.tolist(), found.tolist(), strict=True)
    return [[{"corpus_id": i, "score": score} for score, i in zip(*both, strict=True) if i >= 0] for both in pairs]


@contextlib.contextmanager
def _errors_name(operator: str, **arguments: str) -> Iterator[None]:
    """Name the function, and its arguments, in errors of the index that it uses."""

    def named(field: str) -> str:
        return re.sub(r"^\w+", lambda name: arguments.get(name[0], name[0]), field)

    try:
        yield
    except DmlError as error:
        raise type(error)(operator, named(error.field), error.found, error.allowed) from None
    except TypeError as error:  # a value of the wrong Python type
        match = re.match(r"(?:Float|Int8)Index(?:\.search)?: (.*)", str(error), re.DOTALL)
        if match is None:
            raise
        raise TypeError(f"{operator}: {named(match[1])}") from error.__cause__


def _detached(field: str, embeddings: Any) -> Array:
    """Return embeddings as an array; PyTorch's tensors may require gradients."""
    value = embeddings.detach() if hasattr(embeddings, "detach") else embeddings
    return as_numbers("semantic_search", field, value)
