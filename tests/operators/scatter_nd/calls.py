"""Calls of scatter_nd: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from samples import INDEX_TYPES, NUMERIC_TYPES, OTHER_TYPES, Sample, laid_out, random_shape, values


def parallel_call(rng: np.random.Generator) -> Sample:
    updates = rng.standard_normal(4000, dtype=np.float32)
    return Sample("scatter_nd", (np.zeros(7, np.float32), rng.integers(0, 7, (4000, 1)), updates), {"reduction": "add"})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    x = rng.random((3000, 500), np.float32)
    flat, few = x.ravel(), rng.random(90_000, np.float32)
    yield {"x": x, "indices": rng.integers(-3000, 3000, (1500, 1)), "updates": x[:1500], "reduction": "add"}
    yield {"x": x, "indices": np.zeros((3, 0), int), "updates": np.stack([x] * 3)}
    yield {"x": flat, "indices": rng.integers(0, x.size, (90_000, 1)), "updates": few}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    return {"x": np.zeros(nbytes // 4, np.uint32), "indices": np.zeros((0, 1), int), "updates": np.zeros(0, np.uint32)}


def random_call(rng: np.random.Generator) -> Sample:
    reduction = str(rng.choice(["none", "none", "add", "mul", "min", "max"]))
    types = [*NUMERIC_TYPES, *OTHER_TYPES] if reduction == "none" else NUMERIC_TYPES
    types = [t for t in types if t.kind != "c"] if reduction in ("min", "max") else types
    dtype = types[rng.integers(len(types))]
    dimensions = int(rng.integers(1, 6))
    shape = random_shape(rng, 6, dimensions)
    coordinates = int(rng.integers(0, dimensions + 1))
    outer = random_shape(rng, 8, int(rng.integers(0, 3)))
    mode = str(rng.choice(["raise", "drop", "clip"]))
    index_type = INDEX_TYPES[rng.integers(4)] if rng.random() < 0.8 else np.dtype(np.int8)
    signed = index_type.kind == "i"
    sizes = np.array(shape[:coordinates], np.int64)
    beyond = 0 if mode == "raise" else 2
    low = -sizes - beyond if signed else 0 * sizes
    indices = rng.integers(low, sizes + beyond, (*outer, coordinates)).astype(index_type)
    updates = values(rng, outer + shape[coordinates:], dtype)
    if outer:  # one tuple, repeated along itself, is another tuple
        indices = laid_out(rng, indices)
    arguments = (laid_out(rng, values(rng, shape, dtype)), indices, laid_out(rng, updates))
    return Sample("scatter_nd", arguments, {"reduction": reduction, "mode": mode})


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    x, updates = np.zeros((50, 400), np.float32), np.zeros((1, 400), np.float32)
    # Mode "drop": indices are not checked before the first block.
    return {"x": x, "indices": [[1]], "updates": updates, "mode": "drop"}, 1 << 16
