"""Searches in one call: `knn`, and `semantic_search` with the signature of sentence-transformers."""

from collections.abc import Callable
from typing import Any, Literal

from numpy.typing import ArrayLike

from dmlcpu.annotations import Array, Metric
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.search.arguments import as_count
from dmlcpu.search.index import Int8Index
from dmlcpu.search.spaces import as_vectors

# But for the first of each, these are functions of sentence-transformers.
_COSINES, _PRODUCTS = ("cosine", "cos_sim", "pytorch_cos_sim"), ("ip", "dot_score")


def knn(
    queries: "ArrayLike",
    vectors: "ArrayLike",
    k: int,
    metric: "Metric" = "ip",
    *,
    mask: "ArrayLike | None" = None,
    rescore: int | None = None,
) -> "tuple[Array, Array]":
    """Return the k best vectors of each query, the best first: a search in an index that is not kept.

    Parameters
    ----------
    queries : array_like, shape (M, D) or (D,)
    vectors : array_like, shape (N, D)
        int8, uint8 or floats; floats are quantized, each query and each vector by itself.
    k : int
    metric : {"ip", "l2", "cosine"}, default "ip"
    mask : array_like of bool, shape (N,), optional
        True for each vector that may be found.
    rescore : int, optional
        For vectors of floats: the k * rescore best are scored again as floats.

    Returns
    -------
    scores, indices : ndarray, shape (M, k) or (k,)
        As of `Int8Index.search`.

    Raises
    ------
    DmlError
        If an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu.search import knn
    >>> knn(np.array([[1, 1]], np.uint8), np.array([[3, 0], [1, 2], [9, 9]], np.uint8), 2, metric="l2")
    (array([[1., 5.]]), array([[1, 0]]))
    """
    given = as_vectors("knn", "vectors", vectors)
    if rescore is not None and given.dtype.itemsize == 1:
        raise DmlError("knn", "rescore", str(rescore), f"None: vectors are {given.dtype}, not floats")
    k = as_count("knn", "k", k)
    index = Int8Index(given, metric, floats=rescore is not None)
    return index.search(queries, k, mask=mask, rescore=rescore)


def semantic_search(
    query_embeddings: "ArrayLike",
    corpus_embeddings: "ArrayLike | Int8Index",
    query_chunk_size: int = 100,
    corpus_chunk_size: int = 500000,
    top_k: int = 10,
    score_function: "Literal['cosine', 'ip'] | Callable[..., Any]" = "cosine",
    *,
    rescore: int | None = 4,
) -> list[list[dict[str, int | float]]]:
    """Search as ``sentence_transformers.util.semantic_search`` does, among vectors of bytes.

    Parameters
    ----------
    query_embeddings : array_like, shape (M, D) or (D,)
        Tensors of PyTorch on the CPU, too.
    corpus_embeddings : array_like, shape (N, D), or Int8Index
        An index saves quantizing the corpus at each call; its own metric is used.
    query_chunk_size, corpus_chunk_size : int
        Ignored: no scores are kept.
    top_k : int, default 10
    score_function : {"cosine", "ip"} or function
        Of functions, sentence-transformers' ``cos_sim`` and ``dot_score`` are known.
    rescore : int or None, default 4
        The top_k * rescore best are scored again as floats, if these are there, so that scores are those of floats.

    Returns
    -------
    list of list of dict
        For each query its hits, the best first, each with "corpus_id" and "score".

    Raises
    ------
    DmlError
        If an argument does not fit, or the function is another one.

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
        raise BindingError(operator, "score_function", repr(name), "'cosine', 'ip', cos_sim, dot_score")
    if isinstance(corpus_embeddings, Int8Index):
        index = corpus_embeddings
        if index.metric == "l2":
            raise DmlError(operator, "corpus_embeddings.metric", "'l2'", "'cosine', 'ip'")
    else:
        given = as_vectors(operator, "corpus_embeddings", corpus_embeddings)
        index = Int8Index(given, "cosine" if name in _COSINES else "ip", floats=given.dtype.itemsize > 1)
    queries = as_vectors(operator, "query_embeddings", query_embeddings, index.d)
    scores, found = index.search(queries, top_k, rescore=rescore if index.has_floats else None)
    pairs = zip(scores.tolist(), found.tolist(), strict=True)
    return [[{"corpus_id": i, "score": score} for score, i in zip(*both, strict=True) if i >= 0] for both in pairs]
