"""Calls of quantize_linear: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from samples import Sample, laid_out, random_bits, random_shape, values

INPUTS = [np.dtype(t) for t in (np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.float64)]
RESULTS = [np.dtype(t) for t in (np.uint8, np.int8, np.uint16, np.int16, ml_dtypes.int4, ml_dtypes.uint4)]


def parallel_call(rng: np.random.Generator) -> Sample:
    x = rng.standard_normal((60, 700), dtype=np.float32)
    return Sample("quantize_linear", (x, rng.random((60, 1), np.float32) + 0.01), {})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    x = rng.standard_normal((3000, 500), dtype=np.float32)
    yield {"x": x, "scale": 0.02, "zero_point": 7}
    yield {"x": x, "scale": rng.random(500, np.float32) + 0.1, "axis": 1}
    yield {"x": x, "scale": rng.random((47, 500), np.float32) + 0.1, "axis": 0, "block_size": 64}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    return {"x": np.zeros(nbytes, np.float32), "scale": 1.0}


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    return {"x": np.zeros((500, 4000), np.float32), "scale": 1.0}, 1 << 18


def random_call(rng: np.random.Generator) -> Sample:
    x_type, y_type = INPUTS[rng.integers(len(INPUTS))], RESULTS[rng.integers(len(RESULTS))]
    shape = drawn_shape(rng)
    x = values(rng, shape, x_type) if rng.random() < 0.5 else near_ties(rng, shape).astype(x_type)
    with np.errstate(all="ignore"):
        x = laid_out(rng, x)
    scale_shape, zero_shape, options = parameter_shapes(rng, shape)
    scale = rng.choice(np.array([0.5, 1, 2, 0.1, 3.3, 1e-3, 1e30, 1e-38], np.float32), scale_shape)
    zero = integers(rng, zero_shape, y_type) if rng.random() < 0.7 else None
    is_plain = zero is None or rng.random() < 0.3
    return Sample(
        "quantize_linear", (x, laid_out(rng, scale), zero), options | ({"out_dtype": y_type} if is_plain else {})
    )


def near_ties(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Halves, whose quotients by powers of two are ties, and their neighbors."""
    ties = rng.integers(-600, 600, shape).astype(np.float32) / 2
    return np.nextafter(ties, rng.choice(np.array([-1e3, 0, 1e3], np.float32), shape)) if rng.random() < 0.5 else ties


def drawn_shape(rng: np.random.Generator) -> tuple[int, ...]:
    if rng.random() < 0.3:
        return (int(rng.integers(1, 5)), int(rng.integers(1, 2500)))
    return random_shape(rng, 13, int(rng.integers(0, 5)))


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Any integers of a type; ml_dtypes' too."""
    return (
        random_bits(rng, shape, np.dtype(np.int8)).astype(dtype)
        if dtype.kind == "V"
        else random_bits(rng, shape, dtype)
    )


def parameter_shapes(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, Any, dict[str, Any]]:
    """Draw shapes of scale and zero point, and the axis and block size that they need."""
    way = rng.integers(4)
    if not shape or way == 0:
        return (), rng.choice([0, 1]) * (1,), {}
    axis = int(rng.integers(len(shape)))
    if way == 1:
        along = (shape[axis],)
        return *(along if rng.random() < 0.7 else () for _ in range(2)), {"axis": axis - len(shape)}
    if way == 2:
        size = int(rng.integers(1, shape[axis] + 3))
        blocks = (*shape[:axis], -(-shape[axis] // size), *shape[axis + 1 :])
        return *(blocks if rng.random() < 0.7 else () for _ in range(2)), {"axis": axis, "block_size": size}
    return *(tuple(divisor(rng, n) for n in shape) for _ in range(2)), {}


def divisor(rng: np.random.Generator, n: int) -> int:
    return int(rng.choice([size for size in range(1, n + 1) if n % size == 0]))
