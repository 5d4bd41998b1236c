"""Small calls of dynamic_quantize_matmul that together compile all that a type needs on this machine."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.operators.table import Example, Workload
from dmlcpu.products.examples import SIZE, calls, square

_OTHERS = {"b_scale": 0.25, "b_zero_point": -2, "bias": np.linspace(-1, 1, 64, dtype=np.float32)}


def examples(dtype: str) -> Iterator[Example]:
    """Yield calls with results of both types, and with ranges of rows; the first is a plain one."""
    for more in ({}, {"out_dtype": "float16"}, {"per_row": True}):
        for call in calls(dtype, **_OTHERS, **more):
            yield Example({"x": call.pop("a"), **call})


def workload(_nbytes: int) -> Workload:
    """Return a product of square matrices."""
    call = square(b_scale=0.25)
    return Workload({"x": call.pop("a").astype(np.float32), **call}, "multiply", SIZE**3)
