"""Calls of dynamic_quantize_matmul: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from operators.dynamic_quantize_linear.calls import FLOATS
from operators.matmul_integer_to_float.calls import bias, scale
from operators.quantized_matmul.calls import matrix, parameter
from samples import Sample, laid_out, quantized


def parallel_call(rng: np.random.Generator) -> Sample:
    x, b = rng.standard_normal((40, 50), dtype=np.float32), matrix(rng, (50, 60), "int8")
    return Sample("dynamic_quantize_matmul", (x, b, 0.2, None, rng.random(60, np.float32)), {})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    others = {
        "b": matrix(rng, (800, 900), "uint8"),
        "b_scale": rng.random(900, np.float32),
        "b_zero_point": matrix(rng, (900,), "uint8"),
        "bias": rng.random((2000, 1), np.float32),
    }
    yield {"x": rng.standard_normal((2000, 800), dtype=np.float32), **others, "per_row": True}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    row = np.ones((1, int((nbytes / 4) ** 0.5) + 1), np.uint8)
    return {"x": row.T.astype(np.float32), "b": row, "b_scale": 1.0}


def random_call(rng: np.random.Generator) -> Sample:
    b_type = np.dtype(rng.choice(["int8", "uint8"]))
    rows, columns = (int(n) for n in rng.integers(1, 80, 2))
    depth = int(rng.choice([0, 1, 2, 15, 31, 32, 33, 63, 64, 100, 255, 257]))
    batch = ((), (2,), (3, 2))[rng.integers(3)]
    x_batch = tuple(n if rng.random() < 0.7 else 1 for n in batch)[int(rng.integers(0, len(batch) + 1)) :]
    x = rng.standard_normal((*x_batch, rows, depth)) * rng.choice([1, 1e-3, 100, 0]) + rng.choice([0, 0, 5, -5])
    x *= rng.choice([1, 1, 0.01, 0], (rows, 1))
    args = (
        laid_out(rng, x.astype(FLOATS[rng.integers(len(FLOATS))])),
        laid_out(rng, quantized(rng, (*batch, depth, columns), b_type)),
        scale(rng, batch, columns, False),
        parameter(rng, batch, columns, False, b_type),
        bias(rng, (*batch, rows, columns)),
    )
    options = {"per_row": bool(rng.random() < 0.6), "out_dtype": rng.choice(["float32", "float16"])}
    return Sample("dynamic_quantize_matmul", args, options)


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    matrices = {"x": np.zeros((500, 60), np.float32), "b": np.zeros((60, 70), np.int8)}
    return {**matrices, "b_scale": 0.25, "b_zero_point": 3, "bias": np.arange(70, dtype=np.float32)}, 1 << 22
