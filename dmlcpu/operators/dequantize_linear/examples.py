"""Small calls of dequantize_linear that together compile all that a type needs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.enums import QuantizationType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.operators.dequantize_linear.descriptor import (
    DequantizeOperatorDesc,
    ElementWiseDequantizeLinearOperatorDesc,
)
from dmlcpu.operators.table import Example, Workload
from dmlcpu.quantizers.examples import large, numbers, of_all, scales, zero_points


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, and one whose results have another width."""
    x = numbers(dtype)
    yield Example({"x": x, "scale": scales(), "zero_point": zero_points(dtype)})
    yield Example({"x": x, "scale": 0.25, "zero_point": 3, "out_dtype": "float16"})


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as descs, with the inputs to bind."""
    x, scale, zero = numbers("int8"), scales(), zero_points("int8")
    y = np.empty(x.shape, np.float32)
    tensors: dict[str, Any] = {"input_tensor": TensorDesc.of(x), "output_tensor": TensorDesc.of(y)}
    inputs = {"input_tensor": x, "scale_tensor": of_all(scale), "zero_point_tensor": of_all(zero)}
    yield (
        ElementWiseDequantizeLinearOperatorDesc(
            **tensors, **{k: TensorDesc.of(v) for k, v in inputs.items() if k not in tensors}
        ),
        inputs,
    )
    of_rows: dict[str, Any] = {"quantization_tensors": (TensorDesc.of(scale), TensorDesc.of(zero))}
    desc = DequantizeOperatorDesc(**tensors, **of_rows, quantization_type=QuantizationType.SCALE_ZERO_POINT)
    yield desc, {"input_tensor": x, "quantization_tensors[0]": scale, "quantization_tensors[1]": zero}


def workload(nbytes: int) -> Workload:
    """Return the dequantization of bytes to float32."""
    x = (large(nbytes) * 200 - 100).astype(np.int8)
    return Workload({"x": x, "scale": 1 / 255, "zero_point": 3}, "copy", x.size + 4 * x.size)
