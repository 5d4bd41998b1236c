"""Small calls of quantize_linear that together compile all that a type needs."""

from collections.abc import Iterator

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.operators.quantize_linear.descriptor import ElementWiseQuantizeLinearOperatorDesc, QuantizeOperatorDesc
from dmlcpu.operators.table import Example, Workload
from dmlcpu.quantizers.examples import descs_of, large, numbers, scales, zero_points


def examples(dtype: str) -> Iterator[Example]:
    """Yield a plain call, and one whose results have another width."""
    x, zero_points_of_rows = numbers(dtype), zero_points("uint8")
    yield Example({"x": x, "scale": scales(), "zero_point": zero_points_of_rows})
    yield Example({"x": x, "scale": 0.25, "zero_point": -3, "out_dtype": "int16"})


def desc_examples() -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield the plain call as descs, with the inputs to bind."""
    return descs_of(ElementWiseQuantizeLinearOperatorDesc, QuantizeOperatorDesc, "float32", "uint8", "uint8")


def workload(nbytes: int) -> Workload:
    """Return the quantization of float32 to bytes."""
    x = large(nbytes)
    return Workload({"x": x, "scale": 1 / 255, "zero_point": 3}, "copy", x.nbytes + x.size)
