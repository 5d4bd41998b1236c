"""Calls of matmul_integer: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from operators.quantized_matmul.calls import matrix, parameter
from samples import Sample, laid_out, quantized


def parallel_call(rng: np.random.Generator) -> Sample:
    return Sample("matmul_integer", (matrix(rng, (40, 50), "uint8"), 3, matrix(rng, (50, 60), "int8"), None), {})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    a, b = matrix(rng, (2000, 800), "int8"), matrix(rng, (800, 900), "uint8")
    yield {"a": a, "a_zero_point": None, "b": b, "b_zero_point": matrix(rng, (900,), "uint8")}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    row = np.ones((1, int((nbytes / 4) ** 0.5) + 1), np.uint8)
    return {"a": row.T, "a_zero_point": None, "b": row, "b_zero_point": None}


def random_call(rng: np.random.Generator) -> Sample:
    types = [np.dtype(t) for t in rng.choice(["int8", "uint8"], 2)]
    rows, columns = (int(n) for n in rng.integers(1, 80, 2))
    depth = int(rng.choice([0, 1, 2, 15, 31, 32, 33, 63, 64, 100, 255, 257]))
    batch = ((), (2,), (3, 2))[rng.integers(3)]
    a_batch = tuple(n if rng.random() < 0.7 else 1 for n in batch)[int(rng.integers(0, len(batch) + 1)) :]
    args = (
        laid_out(rng, quantized(rng, (*a_batch, rows, depth), types[0])),
        parameter(rng, a_batch, rows, True, types[0]),
        laid_out(rng, quantized(rng, (*batch, depth, columns), types[1])),
        parameter(rng, batch, columns, False, types[1]),
    )
    return Sample("matmul_integer", args, {"out_dtype": rng.choice(["int32", "int64"])})


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    a, b = np.zeros((500, 60), np.uint8), np.zeros((60, 70), np.int8)
    return {"a": a, "a_zero_point": 5, "b": b, "b_zero_point": 3}, 1 << 22
