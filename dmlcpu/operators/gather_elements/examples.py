"""Small calls of gather_elements that together compile all its kernels for a type."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.operators.gather_elements.descriptor import GatherElementsOperatorDesc
from dmlcpu.operators.table import Example, Workload


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, because all types of a width share a kernel."""
    yield Example(_arguments(dtype))


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc, with the inputs to bind."""
    x, indices, axis = _arguments("float32").values()
    inputs = {"input_tensor": x, "indices_tensor": indices}
    tensors = {name: TensorDesc.of(array) for name, array in inputs.items()}
    output = TensorDesc.of(np.empty(indices.shape, x.dtype))
    yield GatherElementsOperatorDesc(**tensors, output_tensor=output, axis=axis), inputs


def workload(nbytes: int) -> Workload:
    """Return as many random elements along axis 0 as an array of rows of 64 float32 has."""
    rng, columns = np.random.default_rng(0), 64
    count = max(1, nbytes // (16 * columns))  # bytes: 4 each of x and y, 8 of indices
    x, indices = rng.random((count, columns), np.float32), rng.integers(0, count, (count, columns))
    return Workload({"x": x, "indices": indices, "axis": 0}, "copy", 2 * x.nbytes + indices.nbytes)


def _arguments(dtype: str) -> dict[str, Any]:
    """Return 4 elements of each of 16 columns."""
    x = (np.arange(128) % 7).astype(dtype).reshape(8, 16)
    return {"x": x, "indices": np.array([[0], [-2], [5], [0]]) + np.arange(16) % 2, "axis": 0}
