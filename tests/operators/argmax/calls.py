"""Calls of argmax, and of argmin: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from samples import INDEX_TYPES, TOP_K_TYPES, Sample, laid_out, random_shape, values


def parallel_call(rng: np.random.Generator, operator: str = "argmax") -> Sample:
    return Sample(operator, (rng.standard_normal((50, 300), dtype=np.float32),), {"axis": 1})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    x = rng.integers(0, 1000, (3000, 500)).astype(np.float32)
    yield {"x": x, "axis": 1}
    yield {"x": x, "axis": 0, "select_last": True}
    yield {"x": x}
    yield {"x": x.reshape(300, 10, 500), "axis": (0, 2), "select_last": True, "keepdims": True}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    return {"x": np.zeros((nbytes // 8, 2), np.uint8), "axis": 1}


def random_axis(rng: np.random.Generator, dimensions: int) -> Any:
    """Draw None, an axis, or several in any order, some of them negative."""
    if dimensions == 0 or rng.random() < 0.2:
        return None
    chosen = rng.permutation(dimensions)[: rng.integers(1, dimensions + 1)]
    axes = tuple(int(d) - dimensions * int(rng.integers(2)) for d in chosen)
    return axes[0] if len(axes) == 1 else axes


def random_call(rng: np.random.Generator, operator: str = "argmax") -> Sample:
    dimensions = int(rng.integers(0, 6))
    shape = random_shape(rng, {1: 3000, 2: 90, 3: 20}.get(dimensions, 6), dimensions)
    x = laid_out(rng, values(rng, shape, TOP_K_TYPES[rng.integers(len(TOP_K_TYPES))]))
    flags = {name: bool(rng.integers(2)) for name in ("select_last", "keepdims")}
    options = {"axis": random_axis(rng, dimensions), **flags, "index_dtype": INDEX_TYPES[rng.integers(4)]}
    return Sample(operator, (x.transpose(rng.permutation(dimensions)),), options)


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    return {"x": np.zeros((50, 400), np.float32), "axis": 1}, 1 << 14
