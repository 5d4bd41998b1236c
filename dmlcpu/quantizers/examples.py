"""Shared by the examples of quantize_linear and dequantize_linear: small arrays, and calls as descs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.enums import QuantizationType
from dmlcpu.directml.tensor import TensorDesc

ROWS, COLUMNS = 8, 512  # several tiles, for several threads


def numbers(dtype: str) -> Array:
    """Return unordered numbers."""
    return (np.arange(ROWS * COLUMNS) * 37 % 101).astype(dtype).reshape(ROWS, COLUMNS)


def large(nbytes: int) -> Array:
    """Return float32 in rows of 1,024, which take 4/5 of the bytes: the 8-bit integers take the rest."""
    return np.random.default_rng(0).random((-(-nbytes // 5_120), 1_024), np.float32)


def scales() -> Array:
    """Return a scale for each row."""
    return ((np.arange(ROWS) + 1) / 4).astype(np.float32).reshape(ROWS, 1)


def zero_points(dtype: str) -> Array:
    """Return a zero point for each row."""
    return np.arange(ROWS).astype(dtype).reshape(ROWS, 1)


def descs_of(
    element_wise: Any, blocked: Any, x_type: str, zero_type: str, y_type: str
) -> Iterator[tuple[OperatorDesc, dict[str, Array]]]:
    """Yield a call with a scale and a zero point for each row as a desc of each class, with the inputs to bind."""
    x, scale, zero = numbers(x_type), scales(), zero_points(zero_type)
    each = {"scale_tensor": np.repeat(scale, COLUMNS, axis=1), "zero_point_tensor": np.repeat(zero, COLUMNS, axis=1)}
    of = TensorDesc.of
    tensors = {"input_tensor": of(x), "output_tensor": of(np.empty(x.shape, y_type))}
    yield element_wise(**tensors, **{name: of(array) for name, array in each.items()}), {"input_tensor": x, **each}
    desc = blocked(
        **tensors,
        quantization_type=QuantizationType.SCALE_ZERO_POINT,
        quantization_tensors=(of(scale), of(zero)),
    )
    yield desc, {"input_tensor": x, "quantization_tensors[0]": scale, "quantization_tensors[1]": zero}
