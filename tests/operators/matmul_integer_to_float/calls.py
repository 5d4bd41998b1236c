"""Calls of matmul_integer_to_float: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from operators.quantized_matmul.calls import matrix, parameter
from samples import Sample, laid_out, quantized


def parallel_call(rng: np.random.Generator) -> Sample:
    a, b = matrix(rng, (40, 50), "uint8"), matrix(rng, (50, 60), "int8")
    return Sample("matmul_integer_to_float", (a, 0.1, 3, b, 0.2, None, rng.random(60, np.float32)), {})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    yield {
        "a": matrix(rng, (2000, 800), "int8"),
        "a_scale": -0.1,
        "a_zero_point": 3,
        "b": matrix(rng, (800, 900), "uint8"),
        "b_scale": rng.random(900, np.float32),
        "b_zero_point": matrix(rng, (900,), "uint8"),
        "bias": rng.random((2000, 1), np.float32),
    }


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    row = np.ones((1, int((nbytes / 4) ** 0.5) + 1), np.uint8)
    return {"a": row.T, "a_scale": 1.0, "a_zero_point": None, "b": row, "b_scale": 1.0, "b_zero_point": None}


def random_call(rng: np.random.Generator) -> Sample:
    types = [np.dtype(t) for t in rng.choice(["int8", "uint8"], 2)]
    rows, columns = (int(n) for n in rng.integers(1, 80, 2))
    depth = int(rng.choice([0, 1, 2, 15, 31, 32, 33, 63, 64, 100, 255, 257]))
    batch = ((), (2,), (3, 2))[rng.integers(3)]
    a_batch = tuple(n if rng.random() < 0.7 else 1 for n in batch)[int(rng.integers(0, len(batch) + 1)) :]
    args = (
        laid_out(rng, quantized(rng, (*a_batch, rows, depth), types[0])),
        scale(rng, a_batch, rows, True),
        parameter(rng, a_batch, rows, True, types[0]),
        laid_out(rng, quantized(rng, (*batch, depth, columns), types[1])),
        scale(rng, batch, columns, False),
        parameter(rng, batch, columns, False, types[1]),
        bias(rng, (*batch, rows, columns)),
    )
    return Sample("matmul_integer_to_float", args, {"out_dtype": rng.choice(["float32", "float16"])})


def scale(rng: np.random.Generator, batch: tuple[int, ...], length: int, rows: bool) -> np.ndarray:
    """A scale of any numbers: now and then signed, 0, infinite, NaN, tiny and huge ones."""
    found = np.array(parameter(rng, batch, length, rows), np.float32)
    if rng.random() < 0.5:
        odd = np.array([0, -0.0, -1.5, np.inf, -np.inf, np.nan, 1e-45, 1e-20, 3e38, 1e-4], np.float32)
        chosen = rng.random(found.shape) < 0.3
        found = np.where(chosen, odd[rng.integers(0, odd.size, found.shape)], found)
    return found


def bias(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
    """A bias in one of the shapes allowed, or None."""
    if rng.random() < 0.2:
        return None
    own = [n if rng.random() < 0.6 else 1 for n in shape][int(rng.integers(0, len(shape) + 1)) :]
    found = np.asarray(rng.normal(0, 100, own)).astype(rng.choice(["float32", "float16"]))
    if rng.random() < 0.3:
        found = np.where(rng.random(found.shape) < 0.2, found.dtype.type(rng.choice([-0.0, np.inf, np.nan])), found)
    return laid_out(rng, np.asarray(found))


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    matrices = {"a": np.zeros((500, 60), np.uint8), "b": np.zeros((60, 70), np.int8)}
    others = {"a_scale": 0.5, "a_zero_point": 5, "b_scale": 0.25, "b_zero_point": 3}
    return {**matrices, **others, "bias": np.arange(70, dtype=np.float32)}, 1 << 22
