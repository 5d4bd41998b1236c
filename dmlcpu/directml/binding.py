"""The binding rule: which arrays and buffers may be given for a tensor; they become arrays of its sizes."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, check_output
from dmlcpu.common.forms import Shape
from dmlcpu.directml.base import Field
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.errors import BindingError
from dmlcpu.runtime.memory import ALIGNED, C_CONTIGUOUS, WRITEABLE
from dmlcpu.runtime.results import maker_of

_BYTE = np.dtype(np.uint8)


class Slot:
    """One tensor of a compiled operator, which arrays and buffers are bound to.

    An array of the tensor's sizes is the tensor, with any strides. Anything else must be the tensor's buffer: flat and
    contiguous, of its type or of bytes; it is viewed with the desc's sizes and strides.
    """

    __slots__ = ("dml_name", "dtype", "make", "name", "nbytes", "operator", "output", "plain", "shape", "strides")

    def __init__(self, operator: str, field: Field, tensor: TensorDesc) -> None:
        self.operator = operator
        self.name = field.name
        self.dml_name = field.dml_name
        self.output = field.output
        # Flags of an array that fits without a copy.
        self.plain = ALIGNED | C_CONTIGUOUS | WRITEABLE if field.output else ALIGNED
        self.shape = tensor.sizes
        self.dtype = tensor.dtype
        self.strides = tensor.byte_strides
        # Sizes are rounded up to 4 bytes. Nothing reads the padding: a buffer needs it only if the desc has more.
        asked = tensor.total_tensor_size_in_bytes > tensor.minimum_size_in_bytes
        self.nbytes = tensor.total_tensor_size_in_bytes if asked else tensor.extent_in_bytes
        # Makes a new array for the tensor, in its own strides if it has any.
        strided = functools.partial(_strided, self.shape, self.dtype, self.nbytes, self.strides)
        self.make: Callable[[], Array] = strided if self.strides else maker_of(self.shape, self.dtype)

    def bind(self, value: Any) -> Array:
        """Return the tensor that `value` is or holds, without a copy (except of a misaligned input)."""
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"{self.operator}: {self.dml_name} is a masked array; allowed: {self.allowed}")
        if isinstance(value, np.ndarray) and value.shape == self.shape and value.dtype == self.dtype:
            array = np.asarray(value)
        else:
            array = self._view(value)
        if self.output:
            return check_output(self.operator, self.dml_name, array, self.shape, self.dtype)
        return array if array.flags.aligned else array.copy()

    def _view(self, value: Any) -> Array:
        if isinstance(value, np.ndarray):
            if value.ndim != 1 or value.dtype not in (self.dtype, _BYTE):
                raise self._refusal(f"an array of {value.dtype} and shape {value.shape}")
            contiguous, nbytes = value.flags.c_contiguous, value.nbytes
        elif isinstance(value, bytes | bytearray | memoryview):
            whole = memoryview(value)
            contiguous, nbytes = whole.c_contiguous, whole.nbytes
        else:
            found = type(value).__name__
            raise TypeError(f"{self.operator}: {self.dml_name} is {found}; allowed: {self.allowed}")
        if not contiguous:
            raise self._refusal("a buffer that is not contiguous")
        if nbytes < self.nbytes:
            raise self._refusal(f"a buffer of {nbytes} bytes")
        return np.ndarray(self.shape, self.dtype, value, strides=self.strides)

    def _refusal(self, found: str) -> BindingError:
        return BindingError(self.operator, self.dml_name, found, self.allowed)

    @property
    def allowed(self) -> str:
        """The text of both forms."""
        types = f"{self.dtype} or uint8" if self.dtype != _BYTE else "uint8"
        return (
            f"an array of {self.dtype} and shape {self.shape}, "
            f"or a contiguous 1-D buffer of {types} of at least {self.nbytes} bytes"
        )


class PackedSlot(Slot):
    """A 4-bit tensor: its buffer has two elements a byte. An array of ml_dtypes' type may also be bound."""

    __slots__ = ("sizes", "type")

    def __init__(self, operator: str, field: Field, tensor: TensorDesc) -> None:
        self.operator, self.name, self.dml_name, self.output = operator, field.name, field.dml_name, field.output
        self.type, self.sizes = tensor.data_type.name.lower(), tensor.sizes
        is_full = tensor.strides is None and tensor.extent_in_bytes * 2 == math.prod(tensor.sizes)
        asked = tensor.total_tensor_size_in_bytes > tensor.minimum_size_in_bytes
        self.nbytes = tensor.total_tensor_size_in_bytes if asked else tensor.extent_in_bytes
        self.plain = ALIGNED | C_CONTIGUOUS | WRITEABLE * field.output
        self.shape, self.dtype, self.strides = (tensor.extent_in_bytes,), _BYTE, None
        # Bits that belong to no element are 0.
        self.make = maker_of(self.shape, _BYTE) if is_full else functools.partial(np.zeros, self.shape, _BYTE)

    def bind(self, value: Any) -> Array:
        """Return the bytes of a buffer, or an array of the tensor's sizes with an element in each byte."""
        if isinstance(value, np.ma.MaskedArray) or getattr(value, "dtype", None) != self.type:
            if isinstance(value, np.ndarray) and value.dtype == _BYTE and not value.flags.c_contiguous:
                raise self._refusal("a buffer that is not contiguous")
            return super().bind(value)
        if value.shape != self.sizes:
            raise self._refusal(f"an array of {value.dtype} and shape {value.shape}")
        if self.output:
            return check_output(self.operator, self.dml_name, value, self.sizes, value.dtype)
        return np.asarray(value)

    @property
    def allowed(self) -> str:
        """The text of both forms."""
        form = f"a contiguous 1-D buffer of uint8 of at least {self.nbytes} bytes, two elements in each"
        return f"{form}, or an array of {self.type} (of ml_dtypes) and shape {self.sizes}"


def _strided(shape: Shape, dtype: np.dtype[Any], nbytes: int, strides: Shape | None) -> Array:
    """Return a new array of these strides."""
    return np.ndarray(shape, dtype, np.zeros(nbytes, _BYTE), strides=strides)


def slot_of(operator: str, field: Field, tensor: TensorDesc) -> Slot:
    """Return the slot of a tensor."""
    return (Slot if tensor.data_type.bits > 4 else PackedSlot)(operator, field, tensor)
