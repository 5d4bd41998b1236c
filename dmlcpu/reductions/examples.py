"""Shared by the examples of argmax and argmin: small arrays, and calls as descs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.enums import AxisDirection
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.kernels import registry


def calls(operator: str, dtype: str) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yield the arguments of a plain call, then of one for each kernel, cut into pieces if there are two threads."""
    yield {"x": numbers(4, 64, dtype), "axis": 1}, None
    for row in registry.available(operator, "find"):
        yield {"x": numbers(4096, 2, dtype), "axis": 0}, row.name


def desc_example(desc_class: Any) -> tuple[OperatorDesc, dict[str, Array]]:
    """Return the plain call as a desc, with the input to bind."""
    x = numbers(4, 64, "float32")
    y = TensorDesc.of(np.empty((4, 1), np.int64))
    direction = AxisDirection.INCREASING
    desc = desc_class(input_tensor=TensorDesc.of(x), output_tensor=y, axes=(1,), axis_direction=direction)
    return desc, {"input_tensor": x}


def large(nbytes: int) -> Array:
    """Return float32 in rows of 10,000."""
    return np.random.default_rng(0).random((-(-nbytes // 40_000), 10_000), np.float32)


def numbers(rows: int, columns: int, dtype: str) -> Array:
    """Return unordered numbers, some of them repeated."""
    return (np.arange(rows * columns) * 37 % 101).astype(dtype).reshape(rows, columns)
