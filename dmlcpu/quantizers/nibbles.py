"""Tensors of 4 bits in NumPy, for calls without compilation: two elements are in a byte, the first in the low bits."""

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.directml.enums import TensorDataType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.runtime.memory import packed_strides


def elements(tensor: TensorDesc, array: Array) -> Array:
    """Return the elements of a tensor; those of 4 bits as int8 or uint8."""
    if tensor.data_type.bits > 4:
        return array
    is_signed = tensor.data_type is TensorDataType.INT4
    if array.dtype != np.uint8:  # of ml_dtypes
        widened: Array = array.astype(np.int8 if is_signed else np.uint8)
        return widened
    places = _places(tensor)
    found: Array = (array[places >> 1] >> ((places & 1) << 2).astype(np.uint8)) & 15
    signed: Array = (found ^ 8).astype(np.int8) - np.int8(8)
    return signed if is_signed else found


def store(tensor: TensorDesc, values: Array, array: Array) -> None:
    """Write integers of 8 bits, clipped, to a tensor of 4 bits."""
    is_signed = tensor.data_type is TensorDataType.INT4
    clipped = np.clip(values, *((-8, 7) if is_signed else (0, 15)))
    if array.dtype != np.uint8:
        array[...] = clipped.astype(array.dtype)
        return
    places, bits = _places(tensor), (clipped & 15).astype(np.uint8)
    for shift, keep in ((0, 0xF0), (4, 0x0F)):
        mine = (places & 1) == shift // 4
        where = places[mine] >> 1
        array[where] = (array[where] & keep) | (bits[mine] << shift)


def _places(tensor: TensorDesc) -> Array:
    """Return the number of each element in the buffer."""
    strides = tensor.strides or packed_strides(tensor.sizes)
    places = np.zeros(tensor.sizes, np.intp)
    for d, (n, stride) in enumerate(zip(tensor.sizes, strides, strict=True)):
        places += (np.arange(n) * stride).reshape([-1 if e == d else 1 for e in range(len(tensor.sizes))])
    return places
