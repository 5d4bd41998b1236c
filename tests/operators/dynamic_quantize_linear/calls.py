"""Calls of dynamic_quantize_linear: random ones, and ones of the sizes that tests of all operators need."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from operators.quantize_linear.calls import INPUTS, drawn_shape
from samples import Sample, laid_out

FLOATS = [dtype for dtype in INPUTS if dtype.kind != "i"]


def parallel_call(rng: np.random.Generator) -> Sample:
    return Sample("dynamic_quantize_linear", (rng.standard_normal((60, 700), dtype=np.float32),), {})


def large_calls(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    yield {"x": rng.standard_normal((3000, 500), dtype=np.float32), "out_dtype": "int8"}


def call_with_results_of(nbytes: int) -> dict[str, Any]:
    return {"x": np.zeros(nbytes, np.float32)}


def call_in_blocks() -> tuple[dict[str, Any], int]:
    """Return a call in many blocks, and memory for more than one of them."""
    return {"x": np.zeros((500, 4000), np.float32)}, 1 << 18


def random_call(rng: np.random.Generator) -> Sample:
    dtype = FLOATS[rng.integers(len(FLOATS))]
    x = rng.standard_normal(drawn_shape(rng)) * rng.choice([1, 1e-3, 100, 0]) + rng.choice([0, 0, 5, -5])
    x = laid_out(rng, x.astype(dtype))
    options = {"out_dtype": rng.choice([np.uint8, np.int8])} if rng.random() < 0.7 else {}
    if x.ndim and rng.random() < 0.6:
        options["axis"] = int(rng.integers(-x.ndim, x.ndim))
    return Sample("dynamic_quantize_linear", (x,), options)
