"""Small calls of scatter_nd that together compile all its kernels for a type."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.kernels import registry
from dmlcpu.operators.scatter_nd.descriptor import ScatterNDOperatorDesc
from dmlcpu.operators.table import Example, Workload


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, then calls that use each kernel, to overwrite (elements are words) and to reduce."""
    singles = _arguments(dtype)
    slices = {name: array if name == "indices" else array.repeat(2).reshape(-1, 2) for name, array in singles.items()}
    yield Example(singles)
    applying = [row.name for row in registry.available("scatter_nd", "apply")]
    for reduction in ("none", "add"):
        for kernel in ("apply", "apply_buckets"):
            yield Example({**slices, "reduction": reduction}, kernel)
        is_half = dtype in ("float16", "bfloat16") and reduction != "none"  # these are not selected
        for kernel in ("apply_buckets", *(["apply"] if is_half else applying)):
            yield Example({**singles, "reduction": reduction}, kernel)


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc, with its inputs, whose tensors have the same number of dimensions."""
    x, indices, updates = _arguments("float32").values()
    inputs = {"input_tensor": x[None], "indices_tensor": indices, "updates_tensor": updates[None]}
    tensors = {name: TensorDesc.of(array) for name, array in inputs.items()}
    desc = ScatterNDOperatorDesc(
        **tensors, output_tensor=tensors["input_tensor"], input_dimension_count=1, indices_dimension_count=2
    )
    yield desc, {name: np.ascontiguousarray(array) for name, array in inputs.items()}


def workload(nbytes: int) -> Workload:
    """Return the replacement of a sixteenth of the rows of a table, in a copy of it."""
    x = np.ones((-(-nbytes // 4_096), 512), np.float32)  # half of the bytes; the result takes as many
    rows = np.random.default_rng(0).permutation(len(x))[: -(-len(x) // 16)]
    updates = np.zeros((len(rows), 512), np.float32)
    # The table is read and written, and so are the rows; indices are few.
    return Workload({"x": x, "indices": rows[:, None], "updates": updates}, "copy", 2 * (x.nbytes + updates.nbytes))


def _arguments(dtype: str) -> dict[str, Any]:
    """Return 8 updates of 64 elements, two of them of the same element."""
    indices = np.array([0, 8, 63, -3, 17, 8, 40, 5])[:, None]
    return {"x": np.ones(64, dtype), "indices": indices, "updates": np.arange(8).astype(dtype)}
