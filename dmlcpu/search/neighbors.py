"""Search as an estimator of scikit-learn, which has to be installed."""

from typing import Any, Literal, TypeAlias

import numpy as np

from dmlcpu.annotations import Metric
from dmlcpu.common.arguments import Array, as_integer
from dmlcpu.common.imports import optional
from dmlcpu.errors import DmlError
from dmlcpu.search.index import Int8Index

optional("sklearn", "Int8NeighborsTransformer needs", "'dmlcpu[sklearn]'")

from scipy.sparse import csr_matrix  # noqa: E402
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

_Distance: TypeAlias = Literal["euclidean", "sqeuclidean", "cosine"]
_Mode: TypeAlias = Literal["distance", "connectivity"]
_METRICS: dict[_Distance, Metric] = {"euclidean": "l2", "sqeuclidean": "l2", "cosine": "cosine"}


class Int8NeighborsTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A graph of nearest neighbours, by search among vectors of bytes.

    It takes the place of ``sklearn.neighbors.KNeighborsTransformer`` in pipelines, and of a ``transformer`` in other
    packages. Vectors are quantized; the `rescore` times as many best are then measured as float32, so that distances
    are those of floats. A neighbour is only missed if its distance among bytes is beyond that of all these. For
    distances, the mean of the training samples is subtracted first: distances stay, and bytes resolve them better.

    Parameters
    ----------
    n_neighbors : int, default 5
        How many. `transform` gives one more, as each sample of the training data is its own first neighbour.
    mode : {"distance", "connectivity"}, default "distance"
        What the graph's elements are: distances, or ones.
    metric : {"euclidean", "sqeuclidean", "cosine"}, default "euclidean"
        "cosine" is the distance, 1 - cosine.
    rescore : int or None, default 4
        How many times as many are measured as floats; None measures bytes only.

    Attributes
    ----------
    n_samples_fit_ : int
    effective_metric_ : str
    index_ : Int8Index

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu.search import Int8NeighborsTransformer
    >>> x = np.array([[0.0], [1.0], [3.0]], np.float32)
    >>> Int8NeighborsTransformer(n_neighbors=1).fit_transform(x).toarray()
    array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 2., 0.]], dtype=float32)
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        mode: "_Mode" = "distance",
        metric: "_Distance" = "euclidean",
        rescore: int | None = 4,
    ) -> None:
        self.n_neighbors, self.mode, self.metric, self.rescore = n_neighbors, mode, metric, rescore

    def fit(self, X: Any, y: Any = None) -> "Int8NeighborsTransformer":
        """Build the index of the samples X, shape (N, D); y is ignored."""
        x = validate_data(self, X, dtype=[np.float32, np.float64])
        if self.metric not in _METRICS:
            raise ValueError(f"metric is {self.metric!r}; allowed: {', '.join(map(repr, _METRICS))}")
        if self.mode not in ("distance", "connectivity"):
            raise ValueError(f"mode is {self.mode!r}; allowed: 'distance', 'connectivity'")
        self._mean = np.zeros(1, x.dtype) if self.metric == "cosine" else x.mean(axis=0, dtype=np.float64)
        self.index_ = Int8Index(self._centred(x), _METRICS[self.metric], floats=True)
        self.n_samples_fit_ = self._n_features_out = len(x)
        self.effective_metric_ = self.metric
        return self

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Return distances and indices (M, n_neighbors) of the nearest samples, the nearest first, or indices alone.

        Without X, of each training sample, which is not its own neighbour then.
        """
        check_is_fitted(self)
        count = self._count(n_neighbors, self.n_samples_fit_ - (X is None))
        if X is None:
            distances, indices = self._without_self(*self._nearest(self.index_.stored.floats, count + 1))
        else:
            distances, indices = self._nearest(self._checked(X), count)
        return (distances, indices) if return_distance else indices

    def kneighbors_graph(self, X: Any = None, n_neighbors: int | None = None, mode: "_Mode" = "connectivity") -> Any:
        """Return the graph (M, N) of `kneighbors` as a sparse matrix in CSR form, sorted by distance."""
        distances, indices = self.kneighbors(X, n_neighbors)
        return self._graph(distances, indices, mode)

    def transform(self, X: Any) -> Any:
        """Return the graph (M, N) of samples X with their nearest among the training samples.

        With distances there is one neighbour more than `n_neighbors`: of a training sample, itself is the first.
        """
        check_is_fitted(self)
        more = self.mode == "distance"
        count = self._count(None, self.n_samples_fit_ - more)
        return self._graph(*self._nearest(self._checked(X), count + more), self.mode)

    def _count(self, n_neighbors: Any, most: int) -> int:
        """Return how many neighbours are asked for, or refuse that."""
        count = as_integer(type(self).__name__, "n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors)
        if not 1 <= count <= most:
            allowed = f"1 to {most} (n_samples_fit is {self.n_samples_fit_})"
            raise DmlError(type(self).__name__, "n_neighbors", str(count), allowed)
        return count

    def _centred(self, x: Array) -> Array:
        """Return samples less the mean of the training samples."""
        centred: Array = (x - self._mean).astype(x.dtype, copy=False)
        return centred

    def _checked(self, X: Any) -> Array:
        return self._centred(validate_data(self, X, dtype=[np.float32, np.float64], reset=False))

    def _nearest(self, x: Any, count: int) -> tuple[Array, Array]:
        scores, indices = self.index_.search(x, count, rescore=self.rescore)
        if self.metric == "cosine":
            scores = np.maximum(np.float32(1) - scores, np.float32(0))
        distances = np.sqrt(scores) if self.metric == "euclidean" else scores
        return distances.astype(x.dtype), indices

    def _without_self(self, distances: Array, indices: Array) -> tuple[Array, Array]:
        """Return neighbours without each sample itself, or without the last where equal samples have put it out."""
        own = indices == np.arange(len(indices))[:, None]
        own[~own.any(axis=1), -1] = True
        shape = (len(indices), indices.shape[1] - 1)
        return distances[~own].reshape(shape), indices[~own].reshape(shape)

    def _graph(self, distances: Array, indices: Array, mode: str) -> Any:
        if mode not in ("distance", "connectivity"):
            raise ValueError(f"mode is {mode!r}; allowed: 'distance', 'connectivity'")
        rows, count = indices.shape
        values = distances.ravel() if mode == "distance" else np.ones(indices.size, distances.dtype)
        starts = np.arange(0, indices.size + 1, count)
        return csr_matrix((values, indices.ravel(), starts), shape=(rows, self.n_samples_fit_))


Int8NeighborsTransformer.__module__ = "dmlcpu.search"
