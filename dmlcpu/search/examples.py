"""Small searches that together compile all kernels of search."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import numpy as np

from dmlcpu.annotations import Array, Metric

TYPES = ("int8", "uint8", "float32")


class Example(NamedTuple):
    """Arguments of `knn`."""

    queries: Array
    vectors: Array
    k: int
    metric: Metric
    options: dict[str, Any]


def examples(dtype: str) -> Iterator[Example]:
    """Yield searches among vectors of a type; the first is a plain one."""
    vectors = (np.arange(400 * 6).reshape(400, 6) % 97).astype(dtype)
    rescores = [{}, {"rescore": 2}] if dtype == "float32" else [{}]
    masks = [{}, {"mask": np.ones(400, bool)}]
    few_and_many = 1, 40
    for metric, rows, rescore, mask in itertools.product(get_args(Metric), few_and_many, rescores, masks):
        yield Example(vectors[:rows], vectors, 3, metric, {**rescore, **mask})
