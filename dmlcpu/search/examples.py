"""Small searches that together compile all kernels of search."""

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
    for metric in get_args(Metric):
        for rows in (1, 40):  # of few queries, and of many
            for rescore in rescores:
                for mask in ({}, {"mask": np.ones(400, bool)}):
                    yield Example(vectors[:rows], vectors, 3, metric, {**rescore, **mask})
