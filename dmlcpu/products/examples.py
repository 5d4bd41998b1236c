"""Shared by the examples of products: small calls, and a plain one as a desc."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.enums import TensorFlags
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.products.packing import pack_b

SIZE = 512  # of square matrices


def matrix(rows: int, dtype: str) -> Array:
    """Return a matrix of 64 columns."""
    return (np.arange(rows * 64) * 37 % 101).astype(dtype).reshape(rows, 64)


def calls(dtype: str, **more: Any) -> Iterator[dict[str, Any]]:
    """Yield the arguments of a call with few rows, for which there is a kernel, then with many and a packed matrix."""
    b = matrix(64, "int8")
    yield {"a": matrix(16, dtype), "b": b, **more}
    yield {"a": matrix(96, dtype), "b": pack_b(b), **more}


def square(**more: Any) -> dict[str, Any]:
    """Return the arguments of a product of matrices of SIZE rows and columns, the right one packed."""
    a, b = (np.random.default_rng(seed).integers(-100, 100, (SIZE, SIZE), np.int8) for seed in (0, 1))
    return {"a": a, "b": pack_b(b), **more}


def desc_example(
    desc_class: Any, parameters: Mapping[str, float], output: np.dtype[Any], **more: Array
) -> tuple[OperatorDesc, dict[str, Array]]:
    """Return a product of int8 matrices as a desc, with the inputs to bind: all except A are owned.

    more: tensors other than the matrices and the parameters.
    """
    a, constants = matrix(16, "int8"), {"b_tensor": matrix(64, "int8"), **more}
    for name, number in parameters.items():
        dtype = np.float32 if name.endswith("scale") else np.int8
        constants[f"{name.replace('y_', 'output_')}_tensor"] = np.array([[number]], dtype)
    desc: OperatorDesc = desc_class(
        a_tensor=TensorDesc.of(a),
        output_tensor=TensorDesc.of(np.empty((16, 64), output)),
        **{name: TensorDesc.of(array, TensorFlags.OWNED_BY_DML) for name, array in constants.items()},
    )
    return desc, {"a_tensor": a, **constants}
