"""Small calls of dequantize_linear that together compile all that a type needs."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.operators.dequantize_linear.descriptor import (
    DequantizeOperatorDesc,
    ElementWiseDequantizeLinearOperatorDesc,
)
from dmlcpu.operators.table import Example, Workload
from dmlcpu.quantizers.examples import descs_of, large, numbers, scales, zero_points


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, and one whose results have another width."""
    x = numbers(dtype)
    yield Example({"x": x, "scale": scales(), "zero_point": zero_points(dtype)})
    yield Example({"x": x, "scale": 0.25, "zero_point": 3, "out_dtype": "float16"})


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as descs, with the inputs to bind."""
    return descs_of(ElementWiseDequantizeLinearOperatorDesc, DequantizeOperatorDesc, "int8", "int8", "float32")


def workload(nbytes: int) -> Workload:
    """Return the dequantization of bytes to float32."""
    x = (large(nbytes) * 200 - 100).astype(np.int8)
    return Workload({"x": x, "scale": 1 / 255, "zero_point": 3}, "copy", x.size + 4 * x.size)
