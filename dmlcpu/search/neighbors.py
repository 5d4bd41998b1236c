"""Search as an estimator of scikit-learn, which has to be installed."""

import contextlib
import os
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from dmlcpu.annotations import Metric
from dmlcpu.common.arguments import Array, as_integer, check_choice
from dmlcpu.common.imports import optional
from dmlcpu.errors import DmlError
from dmlcpu.runtime.threads import limit_threads
from dmlcpu.search.float_index import FloatIndex

optional("sklearn", "NeighborsTransformer needs", "sklearn")

from scipy.sparse import csr_matrix, issparse  # noqa: E402
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

_Distance: TypeAlias = Literal["euclidean", "minkowski", "sqeuclidean", "cosine"]
_Algorithm: TypeAlias = Literal["auto", "brute"]
_Mode: TypeAlias = Literal["distance", "connectivity"]
_METRICS: dict[_Distance, Metric] = {"euclidean": "l2", "minkowski": "l2", "sqeuclidean": "l2", "cosine": "cosine"}


class NeighborsTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A graph of nearest neighbors, by exact search.

    It replaces ``sklearn.neighbors.KNeighborsTransformer`` in pipelines, and a ``transformer`` in other packages.
    Neighbors, their order and their distances are those of scikit-learn's ``algorithm="brute"`` in float64, but
    scikit-learn may round distances more: here "euclidean" sums squared differences. A row of zeros has the "cosine"
    distance 1 from all rows, including itself. Among equal distances, the lower position comes first.

    Parameters
    ----------
    n_neighbors : int, default 5
        The number of neighbors. With distances, `transform` returns one more, because each training sample is its own
        first neighbor.
    mode : {"distance", "connectivity"}, default "distance"
        Whether the graph's elements are distances or ones.
    metric : {"euclidean", "sqeuclidean", "cosine"}, default "euclidean"
        "minkowski" with p=2 is "euclidean"; "cosine" is the distance, 1 - cosine.
    algorithm : {"auto", "brute"}, default "auto"
        Both are exact: there are no trees.
    p : int, default 2
        Only 2 is supported.
    n_jobs : int, optional
        The number of threads; -1: all; None: as many as other dmlcpu calls use.

    Attributes
    ----------
    n_samples_fit_ : int
    effective_metric_ : str
    index_ : FloatIndex

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu.search import NeighborsTransformer
    >>> x = np.array([[0.0], [1.0], [3.0]])
    >>> NeighborsTransformer(n_neighbors=1).fit_transform(x).toarray()
    array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 2., 0.]])
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        mode: "_Mode" = "distance",
        metric: "_Distance" = "euclidean",
        algorithm: "_Algorithm" = "auto",
        p: int = 2,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors, self.mode, self.metric = n_neighbors, mode, metric
        self.algorithm, self.p, self.n_jobs = algorithm, p, n_jobs

    def fit(self, X: Any, y: Any = None) -> "NeighborsTransformer":
        """Build the index of the samples X, shape (N, D); y is ignored."""
        name = type(self).__name__
        check_choice(name, "metric", self.metric, tuple(_METRICS))
        check_choice(name, "mode", self.mode, get_args(_Mode))
        check_choice(name, "algorithm", self.algorithm, get_args(_Algorithm))
        if self.p != 2:
            raise DmlError(name, "p", repr(self.p), "2: distances are Euclidean")
        with self._threads():
            self.index_ = FloatIndex(self._checked(X, reset=True), _METRICS[self.metric])
        self.n_samples_fit_ = self._n_features_out = len(self.index_)
        self.effective_metric_ = self.metric
        return self

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Return distances and indices (M, n_neighbors) of the nearest samples, the nearest first, or indices alone.

        Without X, these are the neighbors of each training sample, which is then not its own neighbor.
        """
        check_is_fitted(self)
        count = self._count(n_neighbors, self.n_samples_fit_ - (X is None))
        if X is None:
            distances, indices = self._without_self(*self._nearest(self.index_.reconstruct_n(), count + 1))
        else:
            distances, indices = self._nearest(self._checked(X), count)
        return (distances, indices) if return_distance else indices

    def kneighbors_graph(self, X: Any = None, n_neighbors: int | None = None, mode: "_Mode" = "connectivity") -> Any:
        """Return the graph (M, N) of `kneighbors` as a sparse matrix in CSR form, sorted by distance."""
        distances, indices = self.kneighbors(X, n_neighbors)
        return self._graph(distances, indices, mode)

    def transform(self, X: Any) -> Any:
        """Return the graph (M, N) of samples X and their nearest training samples.

        With distances, each sample has one neighbor more than `n_neighbors`: the first of a training sample is itself.
        """
        check_is_fitted(self)
        more = self.mode == "distance"
        count = self._count(None, self.n_samples_fit_ - more)
        return self._graph(*self._nearest(self._checked(X), count + more), self.mode)

    def _count(self, n_neighbors: Any, most: int) -> int:
        """Return the requested number of neighbors, or refuse it."""
        count = as_integer(type(self).__name__, "n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors)
        if not 1 <= count <= most:
            allowed = f"1 to {most} (n_samples_fit is {self.n_samples_fit_})"
            raise DmlError(type(self).__name__, "n_neighbors", str(count), allowed)
        return count

    def _checked(self, X: Any, *, reset: bool = False) -> Array:
        """Return samples, or refuse them."""
        if issparse(X):
            raise DmlError(type(self).__name__, "X", "a sparse matrix", "a dense array: X.toarray()")
        x: Array = validate_data(self, X, dtype=[np.float64, np.float32], reset=reset)
        return x

    def _threads(self) -> contextlib.AbstractContextManager[Any]:
        """Return the limit that n_jobs sets."""
        if self.n_jobs is None:
            return contextlib.nullcontext()
        jobs = as_integer(type(self).__name__, "n_jobs", self.n_jobs)
        if jobs < 1 and jobs != -1:
            raise DmlError(type(self).__name__, "n_jobs", str(jobs), "None, -1 or a number of threads")
        return limit_threads(os.cpu_count() or 1 if jobs == -1 else jobs)

    def _nearest(self, x: Array, count: int) -> tuple[Array, Array]:
        with self._threads():
            scores, indices = self.index_.search(x, count)
        if self.effective_metric_ == "cosine":
            return 1 - scores, indices
        return scores if self.effective_metric_ == "sqeuclidean" else np.sqrt(scores), indices

    def _without_self(self, distances: Array, indices: Array) -> tuple[Array, Array]:
        """Return neighbors without each sample itself, or without the last where equal samples have put it out."""
        own = indices == np.arange(len(indices))[:, None]
        own[~own.any(axis=1), -1] = True
        shape = (len(indices), indices.shape[1] - 1)
        return distances[~own].reshape(shape), indices[~own].reshape(shape)

    def _graph(self, distances: Array, indices: Array, mode: str) -> Any:
        check_choice(type(self).__name__, "mode", mode, get_args(_Mode))
        rows, count = indices.shape
        values = distances.ravel() if mode == "distance" else np.ones(indices.size, distances.dtype)
        starts = np.arange(0, indices.size + 1, count)
        return csr_matrix((values, indices.ravel(), starts), shape=(rows, self.n_samples_fit_))


NeighborsTransformer.__module__ = "dmlcpu.search"
