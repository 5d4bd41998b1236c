"""Calls of top_k: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from samples import INDEX_TYPES, TOP_K_TYPES, Sample, laid_out, random_shape, values


def parallel_call(rng: np.random.Generator) -> Sample:
    return Sample("top_k", (rng.standard_normal((50, 300), dtype=np.float32), 20), {})


_ROWS = [[0, 1, 10, 11], [3, 2, 9, 8], [4, 5, 6, 7]]
_TIED = [[1, 2, 2, 3], [3, 4, 5, 5], [6, 6, 6, 6]]
# The examples of DirectML's page: rows, axis, k, largest, values, indices.
EXAMPLES = [
    (_ROWS, 3, 2, True, [[11, 10], [9, 8], [7, 6]], [[3, 2], [2, 3], [3, 2]]),
    (_ROWS, 2, 2, True, [[4, 5, 10, 11], [3, 2, 9, 8]], [[2, 2, 0, 0], [1, 1, 1, 1]]),
    (_TIED, 3, 3, True, [[3, 2, 2], [5, 5, 4], [6, 6, 6]], [[3, 1, 2], [2, 3, 1], [0, 1, 2]]),
    (_TIED, 3, 3, False, [[1, 2, 2], [3, 4, 5], [6, 6, 6]], [[0, 1, 2], [0, 1, 2], [0, 1, 2]]),
]


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    x = rng.random((3000, 500), np.float32)
    yield {"x": x, "k": 9}
    yield {"x": x, "k": np.arange(500) % 9, "axis": 0, "fill_value": -1, "mode": "smallest"}
    yield {"x": x.ravel(), "k": 900}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    return {"x": np.zeros((nbytes // 8, 2), np.uint32), "k": 2}


def random_call(rng: np.random.Generator) -> Sample:
    dtype = TOP_K_TYPES[rng.integers(len(TOP_K_TYPES))]
    dimensions = int(rng.integers(1, 9)) if rng.random() < 0.2 else int(rng.integers(1, 4))
    shape = random_shape(rng, {1: 600, 2: 60, 3: 14}.get(dimensions, 3), dimensions)
    axis = int(rng.integers(-dimensions, dimensions))
    n = shape[axis]
    k = int(rng.integers(0, n + 1)) if rng.random() < 0.7 else numbers_of_winners(rng, shape, axis)
    x = laid_out(rng, values(rng, shape, dtype))
    direction = ({}, {"largest": False}, {"mode": "largest"}, {"mode": "smallest"})[rng.integers(4)]
    nan = str(rng.choice(["greatest", "last"]))
    return Sample("top_k", (x, k), {**direction, "axis": axis, "nan": nan, "index_dtype": INDEX_TYPES[rng.integers(4)]})


def numbers_of_winners(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> np.ndarray | int:
    """Draw a k for each sequence, or for each of some dimensions."""
    others = list(shape)
    n = others.pop(axis)
    kept = others[int(rng.integers(len(others) + 1)) :]
    kept = [size if rng.random() < 0.7 else 1 for size in kept]
    k = rng.integers(0, n + 1, kept).astype(rng.choice(["int64", "uint8", "int16"]) if n < 200 else "int64")
    return k if kept else int(k)


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    return {"x": np.zeros((50, 400), np.float32), "k": 1}, 1 << 20
