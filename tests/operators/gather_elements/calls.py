"""Calls of gather_elements: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from operators.scatter_elements.calls import random_indices
from samples import NUMERIC_TYPES, OTHER_TYPES, Sample, laid_out, random_shape, values


def parallel_call(rng: np.random.Generator) -> Sample:
    x = rng.standard_normal((7, 100), dtype=np.float32)
    return Sample("gather_elements", (x, rng.integers(0, 7, (40, 100))), {"axis": 0})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    x = rng.random((300, 5000), np.float32)
    yield {"x": x, "indices": rng.integers(-300, 300, (100, 5000)), "axis": 0}
    yield {"x": x, "indices": rng.integers(0, 5000, (300, 400)), "axis": 1}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    return {"x": np.zeros((1, 1), np.uint32), "indices": np.zeros((nbytes // 4, 1), np.uint32), "axis": 0}


def random_call(rng: np.random.Generator) -> Sample:
    types = [*NUMERIC_TYPES, *OTHER_TYPES]
    dtype = types[rng.integers(len(types))]
    dimensions = int(rng.integers(1, 5))
    shape = random_shape(rng, 9 if dimensions > 1 else 600, dimensions)
    axis, mode = int(rng.integers(dimensions)), str(rng.choice(["raise", "clip"]))
    indices = random_indices(rng, shape, axis, 0 if mode == "raise" else 2, 400 if rng.random() < 0.2 else 40)
    axis -= dimensions * int(rng.integers(2))
    return Sample("gather_elements", (laid_out(rng, values(rng, shape, dtype)), indices), {"axis": axis, "mode": mode})


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    # Mode "clip": indices are not checked before the first block.
    return {"x": np.zeros((400, 9), np.float32), "indices": np.ones((400, 40), int), "axis": 1, "mode": "clip"}, 1 << 16
