"""Calls of quantized_matmul: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from samples import Sample, laid_out, quantized


def parallel_call(rng: np.random.Generator) -> Sample:
    a, b = matrix(rng, (40, 50), "uint8"), matrix(rng, (50, 60), "int8")
    return Sample("quantized_matmul", (a, 0.1, 3, b, 0.2, None, 4.0, 100), {})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    yield {
        "a": matrix(rng, (2000, 800), "uint8"),
        "a_scale": 0.1,
        "a_zero_point": 3,
        "b": matrix(rng, (800, 900), "int8"),
        "b_scale": rng.random(900, np.float32) + np.float32(0.1),
        "b_zero_point": matrix(rng, (900,), "int8"),
        "y_scale": 50.5,
        "y_zero_point": -2,
        "out_dtype": "int8",
    }


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    row = np.ones((1, int(nbytes**0.5) + 1), np.uint8)
    scales = {"a_scale": 1.0, "b_scale": 1.0, "y_scale": 1.0}
    return {"a": row.T, "b": row, **scales, "a_zero_point": None, "b_zero_point": None, "y_zero_point": None}


def matrix(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def random_call(rng: np.random.Generator) -> Sample:
    types = [np.dtype(t) for t in rng.choice(["int8", "uint8"], 3)]
    rows, columns = (int(n) for n in rng.integers(1, 80, 2))
    depth = int(rng.choice([0, 1, 2, 15, 31, 32, 33, 63, 64, 100, 255, 257]))
    batch = ((), (2,), (3, 2))[rng.integers(3)]
    a_batch = tuple(n if rng.random() < 0.7 else 1 for n in batch)[int(rng.integers(0, len(batch) + 1)) :]
    a, b = quantized(rng, (*a_batch, rows, depth), types[0]), quantized(rng, (*batch, depth, columns), types[1])
    y_zero = parameter(rng, batch, rows, True, types[2])
    args = (
        laid_out(rng, a),
        parameter(rng, a_batch, rows, True),
        parameter(rng, a_batch, rows, True, types[0]),
        laid_out(rng, b),
        parameter(rng, batch, columns, False),
        parameter(rng, batch, columns, False, types[1]),
        parameter(rng, batch, rows, True) * np.float32(max(depth, 1) * 60),
        y_zero,
    )
    return Sample("quantized_matmul", args, {} if y_zero is not None else {"out_dtype": types[2]})


def parameter(
    rng: np.random.Generator, batch: tuple[int, ...], length: int, rows: bool, zero_of: np.dtype | None = None
) -> np.ndarray | None:
    """A scale, or the zero point of a type (or None), in one of the shapes allowed."""
    matrix = (length, 1) if rows else (1, length)
    shape = ((), (length,), matrix, (*batch, *matrix))[rng.integers(4)]
    if zero_of is None:
        return np.asarray(rng.uniform(1e-3, 2, shape)).astype(rng.choice(["float32", "float16"]))
    return None if rng.random() < 0.2 else np.asarray(quantized(rng, shape, zero_of))


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    matrices = {"a": np.zeros((500, 60), np.uint8), "b": np.zeros((60, 70), np.int8)}
    scales = {"a_scale": 0.5, "b_scale": 0.25, "y_scale": 8.0}
    return {**matrices, **scales, "a_zero_point": 5, "b_zero_point": 3, "y_zero_point": None}, 1 << 22
