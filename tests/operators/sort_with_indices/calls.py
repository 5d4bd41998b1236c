"""Calls of sort_with_indices: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from samples import INDEX_TYPES, TOP_K_TYPES, Sample, laid_out, random_shape, values


def parallel_call(rng: np.random.Generator) -> Sample:
    return Sample("sort_with_indices", (rng.standard_normal((50, 300), dtype=np.float32),), {})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    x = rng.random((3000, 500), np.float32)
    yield {"x": x}
    yield {"x": x.reshape(500, 3000), "axis": 0, "descending": True}
    yield {"x": x.reshape(600, 2500)}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    return {"x": np.zeros((nbytes // 8, 2), np.uint32)}


def random_array(rng: np.random.Generator) -> np.ndarray:
    """Draw an array of any type, layout and distribution."""
    dtype = TOP_K_TYPES[rng.integers(len(TOP_K_TYPES))]
    dimensions = int(rng.integers(1, 9)) if rng.random() < 0.2 else int(rng.integers(1, 4))
    shape = random_shape(rng, {1: 3000, 2: 300, 3: 14}.get(dimensions, 3), dimensions)
    return laid_out(rng, values(rng, shape, dtype))


def random_options(rng: np.random.Generator, x: np.ndarray) -> dict[str, Any]:
    axis, nan = int(rng.integers(-x.ndim, x.ndim)), str(rng.choice(["last", "greatest"]))
    return {"axis": axis, "descending": bool(rng.integers(2)), "nan": nan}


def random_call(rng: np.random.Generator) -> Sample:
    x = random_array(rng)
    return Sample("sort_with_indices", (x,), {**random_options(rng, x), "index_dtype": INDEX_TYPES[rng.integers(4)]})


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    return {"x": np.zeros((500, 400), np.float32)}, 1 << 20
