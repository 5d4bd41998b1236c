"""Calls of dequantize_linear: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from operators.quantize_linear.calls import RESULTS, drawn_shape, integers, parameter_shapes
from samples import Sample, laid_out, values

INPUTS = [*RESULTS, np.dtype(np.int32), np.dtype(np.uint32)]
FLOATS = [np.dtype(t) for t in (np.float32, np.float16, ml_dtypes.bfloat16)]


def parallel_call(rng: np.random.Generator) -> Sample:
    x = rng.integers(0, 256, (60, 700)).astype(np.uint8)
    return Sample("dequantize_linear", (x, rng.random((60, 1), np.float32)), {})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    x = rng.integers(0, 256, (3000, 800)).astype(np.uint8)
    yield {"x": x, "scale": 0.02, "zero_point": 7}
    yield {"x": x, "scale": rng.random((3000, 25), np.float32)}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    return {"x": np.zeros(-(-nbytes // 4), np.uint8), "scale": 1.0}


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    return {"x": np.zeros((500, 4000), np.uint8), "scale": 1.0}, 1 << 18


def random_call(rng: np.random.Generator) -> Sample:
    x_type, y_type = INPUTS[rng.integers(len(INPUTS))], FLOATS[rng.integers(3)]
    shape = drawn_shape(rng)
    x = laid_out(rng, integers(rng, shape, x_type))
    scale_shape, zero_shape, options = parameter_shapes(rng, shape)
    scale = laid_out(rng, values(rng, scale_shape, FLOATS[rng.integers(3)]))  # any bits
    zero = integers(rng, zero_shape, x_type) if rng.random() < 0.7 else None
    return Sample(
        "dequantize_linear", (x, scale, zero), options | ({"out_dtype": y_type} if rng.random() < 0.7 else {})
    )
