"""Small calls of scatter_elements that together compile all its kernels for a type."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.operators.scatter_elements.descriptor import ScatterElementsOperatorDesc
from dmlcpu.operators.table import Example, Workload


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, a reduction, whose elements are numbers, rows of each kind, and a strided line."""
    arguments = _arguments(dtype)
    yield Example(arguments)
    yield Example({**arguments, "reduction": "add"})
    rows = {**arguments, "indices": np.broadcast_to(arguments["indices"][:, :1], arguments["indices"].shape)}
    yield Example(rows)
    yield Example({**rows, "reduction": "add"})
    yield Example(
        {"x": np.ones(80, dtype)[::2], "indices": np.arange(40), "updates": _numbers(dtype)[0, :40], "axis": 0}
    )


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc, with the inputs to bind."""
    x, indices, updates, axis = _arguments("float32").values()
    inputs = {"input_tensor": x, "indices_tensor": indices, "updates_tensor": updates}
    tensors = {name: TensorDesc.of(array) for name, array in inputs.items()}
    yield ScatterElementsOperatorDesc(**tensors, output_tensor=TensorDesc.of(x), axis=axis), inputs


def workload(nbytes: int) -> Workload:
    """Return the copy of rows of 64 float32, with half as many random updates along axis 0."""
    rng, columns = np.random.default_rng(0), 64
    count = max(1, nbytes // (14 * columns))  # bytes: 8 of x and y, 4 of indices, 2 of updates
    x, half = rng.random((count, columns), np.float32), -(-count // 2)
    indices = rng.integers(0, count, (half, columns))
    amount = 2 * x.nbytes + indices.nbytes + x[:half].nbytes
    return Workload({"x": x, "indices": indices, "updates": x[:half].copy(), "axis": 0}, "copy", amount)


def _arguments(dtype: str) -> dict[str, Any]:
    """Return 4 updates in each of 256 columns, two of the same element; 256 byte columns are enough for two threads."""
    indices = np.array([[0], [-2], [5], [0]]) + np.arange(256) % 2
    return {"x": np.ones((8, 256), dtype), "indices": indices, "updates": _numbers(dtype), "axis": 0}


def _numbers(dtype: str) -> Array:
    return (np.arange(1024) % 7).astype(dtype).reshape(4, 256)
