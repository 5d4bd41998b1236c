"""Calls of scatter_elements: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from samples import INDEX_TYPES, INTEGERS, NUMERIC_TYPES, OTHER_TYPES, Sample, laid_out, random_shape, values

from dmlcpu.indexing import lines


def parallel_call(rng: np.random.Generator) -> Sample:
    indices, updates = rng.integers(0, 7, (40, 100)), rng.standard_normal((40, 100), dtype=np.float32)
    return Sample(
        "scatter_elements", (np.zeros((7, 100), np.float32), indices, updates), {"axis": 0, "reduction": "add"}
    )


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    x = rng.random((300, 5000), np.float32)
    yield {"x": x, "indices": rng.integers(-300, 300, (100, 5000)), "updates": x[:100], "axis": 0, "reduction": "add"}
    yield {"x": x, "indices": rng.integers(0, 5000, (200, 400)), "updates": x[:200, :400], "axis": 1}
    yield {"x": x, "indices": np.broadcast_to(rng.integers(0, 300, (90, 1)), (90, 5000)), "updates": x[:90], "axis": 0}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    x = np.zeros((nbytes // 4, 1), np.uint32)
    return {"x": x, "indices": np.zeros((0, 1), int), "updates": np.zeros((0, 1), np.uint32), "axis": 0}


def random_indices(
    rng: np.random.Generator, shape: tuple[int, ...], axis: int, beyond: int, most: int = 40
) -> np.ndarray:
    """Draw indices of any type, some of the same one in each row, and as many as `beyond` out of range."""
    sizes = [int(rng.integers(1, n + 1)) if rng.random() < 0.3 else n for n in shape]
    sizes[axis] = int(rng.integers(most + 1))
    dtype = INDEX_TYPES[rng.integers(4)] if rng.random() < 0.8 else INTEGERS[rng.integers(8)]
    n, limits = shape[axis], np.iinfo(dtype)
    indices = rng.integers(max(-n - beyond, limits.min), min(n + beyond, limits.max), sizes).astype(dtype)
    if rng.random() < 0.3:  # as an expanded tensor, and as what repeats in memory
        rows = np.broadcast_to(indices[tuple(slice(None if d <= axis else 1) for d in range(len(sizes)))], sizes)
        return rows if rng.random() < 0.5 else rows.copy()
    return laid_out(rng, indices)


def random_call(rng: np.random.Generator) -> Sample:
    reduction = str(rng.choice(["none", "none", "add", "mul", "min", "max"]))
    types = [*NUMERIC_TYPES, *OTHER_TYPES] if reduction == "none" else NUMERIC_TYPES
    types = [t for t in types if t.kind != "c"] if reduction in ("min", "max") else types
    dtype = types[rng.integers(len(types))]
    dimensions = int(rng.integers(1, 5))
    shape = random_shape(rng, 9 if dimensions > 1 else 600, dimensions)
    axis, mode = int(rng.integers(dimensions)), str(rng.choice(["raise", "drop", "clip"]))
    indices = random_indices(rng, shape, axis, 0 if mode == "raise" else 2, 400 if rng.random() < 0.2 else 40)
    arguments = (laid_out(rng, values(rng, shape, dtype)), indices, laid_out(rng, values(rng, indices.shape, dtype)))
    axis -= dimensions * int(rng.integers(2))
    return Sample("scatter_elements", arguments, {"axis": axis, "reduction": reduction, "mode": mode})


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    x, updates = np.zeros((400, 50), np.float32), np.zeros((400, 1), np.float32)
    # Mode "drop": indices are not checked before the first block.
    return {"x": x, "indices": np.ones((400, 1), int), "updates": updates, "axis": 1, "mode": "drop"}, 1 << 16


def watched_prefetches(monkeypatch: Any) -> list[int]:
    """Return a list to which each new plan appends what its kernels prefetch."""
    found: list[int] = []
    prefetched = lines._prefetched
    monkeypatch.setattr(lines, "_prefetched", lambda *arguments: found.append(prefetched(*arguments)) or found[-1])
    return found
