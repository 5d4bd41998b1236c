"""Calls of matmul_top_k: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from operators.matmul_integer_to_float.calls import scale
from operators.quantized_matmul.calls import matrix, parameter
from samples import Sample, laid_out, quantized

import dmlcpu

VECTORS = np.array([[1, 0], [3, 4], [0, 2], [3, 4]], np.int8)
QUERY = np.array([[2, 1]], np.int8)


def select(a=QUERY, b=VECTORS.T, k=2, **options):
    return dmlcpu.matmul_top_k(a, b, k, **options)


def parallel_call(rng: np.random.Generator) -> Sample:
    return Sample("matmul_top_k", (matrix(rng, (40, 50), "uint8"), matrix(rng, (50, 60), "int8"), 7), {})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    vectors = matrix(rng, (40_000, 80), "int8")
    yield {"a": matrix(rng, (50, 80), "int8"), "b": vectors.T, "k": 20, "b_scale": rng.random(40_000, np.float32)}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    row = np.ones((1, int((nbytes / 4) ** 0.5) + 1), np.uint8)
    return {"a": row.T, "b": row, "k": row.size}


def random_call(rng: np.random.Generator) -> Sample:
    types = [np.dtype(t) for t in rng.choice(["int8", "uint8"], 2)]
    rows, columns = int(rng.choice([1, 2, 5, 16, 17, 40])), int(rng.choice([1, 31, 32, 33, 64, 65, 100, 300]))
    depth = int(rng.choice([0, 1, 2, 15, 31, 32, 33, 63, 64, 100, 255, 257]))
    batch = ((), (), (2,), (3, 2))[rng.integers(4)]
    a_batch = tuple(n if rng.random() < 0.7 else 1 for n in batch)[int(rng.integers(0, len(batch) + 1)) :]
    a, b = some_bytes(rng, (*a_batch, rows, depth), types[0]), some_bytes(rng, (*batch, depth, columns), types[1])
    if rng.random() < 0.5:
        b = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)  # vectors
    options = {
        "a_zero_point": parameter(rng, a_batch, rows, True, types[0]),
        "b_zero_point": parameter(rng, batch, columns, False, types[1]),
        "mode": rng.choice(["largest", "smallest"]),
        "nan": rng.choice(["greatest", "last"]),
    }
    is_scaled = rng.random() < 0.5
    if is_scaled:
        options["a_scale"] = scale(rng, a_batch, rows, True)
    if is_scaled and rng.random() < 0.8:
        options["b_scale"] = scale(rng, batch, columns, False)
    if rng.random() < 0.5:
        options["bias"] = scale(rng, batch, columns, False) if is_scaled else rng.integers(-9, 9, columns)
    k = int(rng.choice([0, 1, min(10, columns), columns // 2, columns]))
    return Sample("matmul_top_k", (laid_out(rng, a), laid_out(rng, b) if rng.random() < 0.5 else b, k), options)


def some_bytes(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Any bytes, the extreme ones, or few different ones, so that many scores are equal."""
    limits, kind = np.iinfo(dtype), rng.integers(3)
    if kind == 0:
        return quantized(rng, shape, dtype)
    return rng.choice([limits.min, limits.max] if kind == 1 else [0, 1], shape).astype(dtype)


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    return {"a": np.zeros((50, 400, 60), np.uint8), "b": np.zeros((60, 70), np.int8), "k": 3, "b_scale": 0.5}, 1 << 20
