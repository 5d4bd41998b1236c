"""Small searches that together compile all kernels of search."""

import itertools
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from dmlcpu.annotations import Metric

TYPES = ("int8", "uint8", "float32", "float64")
_COUNTS = {"float32": 6000, "float64": 6000}  # of vectors: fewer floats are searched without codes


def examples(dtype: str) -> Iterator[dict[str, Any]]:
    """Yield arguments of `knn` with vectors of a type; the first are plain ones."""
    count = _COUNTS.get(dtype, 400)
    vectors = (np.arange(count * 6).reshape(count, 6) % 97).astype(dtype)
    few_and_many, masks = (1, 40), [{}, {"mask": np.ones(count, bool)}]
    for metric, rows, mask in itertools.product(get_args(Metric), few_and_many, masks):
        yield {"queries": vectors[:rows], "vectors": vectors, "k": 3, "metric": metric, **mask}
    yield {"queries": vectors[:40], "vectors": vectors, "k": 3, "exclude": [[row, row + 1] for row in range(40)]}
    if dtype == "float32":  # queries of the usual type of NumPy
        yield {"queries": vectors[:9].astype(np.float64), "vectors": vectors, "k": 3, "metric": "ip"}


def quantized_examples() -> Iterator[tuple[Any, Metric, Any]]:
    """Yield floats for an Int8Index, a metric, and queries to be rescored."""
    vectors = (np.arange(400 * 6).reshape(400, 6) % 97).astype(np.float32)
    for metric, rows in itertools.product(get_args(Metric), (1, 40)):
        yield vectors, metric, vectors[:rows]
