"""Small searches that together compile all kernels of search."""

import itertools
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from dmlcpu.annotations import Metric

TYPES = ("int8", "uint8", "float32")


def examples(dtype: str) -> Iterator[dict[str, Any]]:
    """Yield arguments of `knn` with vectors of a type; the first are plain ones."""
    vectors = (np.arange(400 * 6).reshape(400, 6) % 97).astype(dtype)
    rescores = [{}, {"rescore": 2}] if dtype == "float32" else [{}]
    masks = [{}, {"mask": np.ones(400, bool)}]
    few_and_many = 1, 40
    for metric, rows, rescore, mask in itertools.product(get_args(Metric), few_and_many, rescores, masks):
        yield {"queries": vectors[:rows], "vectors": vectors, "k": 3, "metric": metric, **rescore, **mask}
