"""Small calls of quantize_linear that together compile all that a type needs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.enums import QuantizationType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.operators.quantize_linear.descriptor import ElementWiseQuantizeLinearOperatorDesc, QuantizeOperatorDesc
from dmlcpu.operators.table import Example, Workload
from dmlcpu.quantizers.examples import large, numbers, of_all, scales, zero_points


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, and one whose results have another width."""
    x, zero_points_of_rows = numbers(dtype), zero_points("uint8")
    yield Example({"x": x, "scale": scales(), "zero_point": zero_points_of_rows})
    yield Example({"x": x, "scale": 0.25, "zero_point": -3, "out_dtype": "int16"})


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as descs, with the inputs to bind."""
    x, scale, zero = numbers("float32"), scales(), zero_points("uint8")
    y = np.empty(x.shape, np.uint8)
    tensors: dict[str, Any] = {"input_tensor": TensorDesc.of(x), "output_tensor": TensorDesc.of(y)}
    inputs = {"input_tensor": x, "scale_tensor": of_all(scale), "zero_point_tensor": of_all(zero)}
    yield (
        ElementWiseQuantizeLinearOperatorDesc(
            **tensors, **{k: TensorDesc.of(v) for k, v in inputs.items() if k not in tensors}
        ),
        inputs,
    )
    of_rows: dict[str, Any] = {"quantization_tensors": (TensorDesc.of(scale), TensorDesc.of(zero))}
    desc = QuantizeOperatorDesc(**tensors, **of_rows, quantization_type=QuantizationType.SCALE_ZERO_POINT)
    yield desc, {"input_tensor": x, "quantization_tensors[0]": scale, "quantization_tensors[1]": zero}


def workload(nbytes: int) -> Workload:
    """Return the quantization of float32 to bytes."""
    x = large(nbytes)
    return Workload({"x": x, "scale": 1 / 255, "zero_point": 3}, "copy", x.nbytes + x.size)
