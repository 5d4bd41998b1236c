"""Small calls of dynamic_quantize_linear that together compile all that a type needs."""

from collections.abc import Iterator

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.operators.dynamic_quantize_linear.descriptor import DynamicQuantizeLinearOperatorDesc
from dmlcpu.operators.table import Example, Workload
from dmlcpu.quantizers.examples import large, numbers


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, and one with a range for each row; the same kernels serve all calls."""
    yield Example({"x": numbers(dtype)})
    yield Example({"x": numbers(dtype), "axis": -1})


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as a desc, with the input to bind."""
    x = numbers("float32")
    desc = DynamicQuantizeLinearOperatorDesc(
        input_tensor=TensorDesc.of(x),
        output_tensor=TensorDesc.of(x.astype(np.uint8)),
        output_scale_tensor=TensorDesc.of(x[:1, :1]),
        output_zero_point_tensor=TensorDesc.of(x[:1, :1].astype(np.uint8)),
    )
    yield desc, {"input_tensor": x}


def workload(nbytes: int) -> Workload:
    """Return the quantization of float32 to bytes, by a range that has to be found first."""
    x = large(nbytes)
    return Workload({"x": x}, "copy", x.nbytes + x.size)
