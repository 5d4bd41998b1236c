"""DirectML's face: descs of tensors and operators, checked as DirectML checks them, and compiled operators."""

from dmlcpu.descriptors.compiled import CompiledOperator, compile_operator
from dmlcpu.descriptors.dxdispatch import operator_desc_from_dict
from dmlcpu.descriptors.enums import (
    AxisDirection,
    FeatureLevel,
    OperatorType,
    TensorDataType,
    TensorFlags,
)
from dmlcpu.descriptors.quantized_linear_matrix_multiply import QuantizedLinearMatrixMultiplyOperatorDesc
from dmlcpu.descriptors.scatter_nd import ScatterNDOperatorDesc
from dmlcpu.descriptors.tensor import TensorDesc
from dmlcpu.descriptors.top_k1 import TopK1OperatorDesc, TopKOperatorDesc

__all__ = [
    "AxisDirection",
    "CompiledOperator",
    "FeatureLevel",
    "OperatorType",
    "QuantizedLinearMatrixMultiplyOperatorDesc",
    "ScatterNDOperatorDesc",
    "TensorDataType",
    "TensorDesc",
    "TensorFlags",
    "TopK1OperatorDesc",
    "TopKOperatorDesc",
    "compile_operator",
    "operator_desc_from_dict",
]
