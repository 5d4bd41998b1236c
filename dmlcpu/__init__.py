"""DirectML's TOP_K1, SCATTER_ND and QUANTIZED_LINEAR_MATRIX_MULTIPLY on any CPU.

The public names load on first use, so that importing the package imports neither Numba nor NumPy.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlcpu import batch as batch, reference as reference
    from dmlcpu.config import show_config as show_config
    from dmlcpu.descriptors import (
        AxisDirection as AxisDirection,
        CompiledOperator as CompiledOperator,
        FeatureLevel as FeatureLevel,
        OperatorType as OperatorType,
        QuantizedLinearMatrixMultiplyOperatorDesc as QuantizedLinearMatrixMultiplyOperatorDesc,
        ScatterNDOperatorDesc as ScatterNDOperatorDesc,
        TensorDataType as TensorDataType,
        TensorDesc as TensorDesc,
        TensorFlags as TensorFlags,
        TopK1OperatorDesc as TopK1OperatorDesc,
        TopKOperatorDesc as TopKOperatorDesc,
        compile_operator as compile_operator,
        operator_desc_from_dict as operator_desc_from_dict,
    )
    from dmlcpu.errors import (
        BindingError as BindingError,
        DmlError as DmlError,
        IndexOutOfRangeError as IndexOutOfRangeError,
        InvalidDescriptorError as InvalidDescriptorError,
        UnsupportedError as UnsupportedError,
    )
    from dmlcpu.operators import (
        PackedMatrix as PackedMatrix,
        TopK as TopK,
        pack_b as pack_b,
        quantized_matmul as quantized_matmul,
        scatter_nd as scatter_nd,
        top_k as top_k,
    )
    from dmlcpu.runtime.threads import (
        get_num_threads as get_num_threads,
        set_num_threads as set_num_threads,
    )

__version__ = "0.1.0"

_MODULES = ("batch", "reference")
_HOMES = {
    "dmlcpu.config": ("show_config",),
    "dmlcpu.descriptors": (
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
    ),
    "dmlcpu.errors": (
        "BindingError",
        "DmlError",
        "IndexOutOfRangeError",
        "InvalidDescriptorError",
        "UnsupportedError",
    ),
    "dmlcpu.operators": ("PackedMatrix", "TopK", "pack_b", "quantized_matmul", "scatter_nd", "top_k"),
    "dmlcpu.runtime.threads": ("get_num_threads", "set_num_threads"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME_OF, *_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"dmlcpu.{name}")
    else:
        raise AttributeError(f"module 'dmlcpu' has no attribute {name!r}")
    globals()[name] = value  # the next look-up finds it without coming here
    return value


def __dir__() -> list[str]:
    return __all__
