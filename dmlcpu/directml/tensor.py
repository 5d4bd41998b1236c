"""DML_TENSOR_DESC: the type of a tensor's elements and their layout in its buffer."""

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlcpu.common.arguments import as_integer, check_type, convert
from dmlcpu.directml.checks import UINT64_MAX, UINT_MAX, Desc, check_kind, check_range, set_field, written
from dmlcpu.directml.enums import TensorDataType, TensorFlags, full_name, offered
from dmlcpu.errors import InvalidDescriptorError
from dmlcpu.runtime.memory import elements_overlap

OPERATOR = "DML_BUFFER_TENSOR_DESC"
_MOST_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class TensorDesc(Desc):
    """A tensor in a buffer: element type, sizes and, unless packed, strides.

    Parameters
    ----------
    data_type : TensorDataType
        The type of the elements.
    flags : TensorFlags, default NONE
        OWNED_BY_DML: the tensor is bound once, by `CompiledOperator.initialize`. Inputs only.
    sizes : sequence of int
        1 to 8 sizes, each at least 1, of at most 2**32 - 1 elements together.
    strides : sequence of int, optional
        The distance, in elements, between neighbors along each dimension; 0 repeats one element. By default the tensor
        is packed, in C order.
    total_tensor_size_in_bytes : int, optional
        The size of the buffer. By default the least size that holds all elements, rounded up to a multiple of 4; then
        `dataclasses.replace` computes it again.
    guaranteed_base_offset_alignment : int, default 0
        0, or a power of two that is at least the element's size. It has no effect.

    Raises
    ------
    InvalidDescriptorError
        If a field is out of its range, or fields contradict each other.
    TypeError
        If a field has the wrong Python type.

    Notes
    -----
    The fields and their rules are those of DirectML's ``DML_BUFFER_TENSOR_DESC``.

    Examples
    --------
    >>> import dmlcpu
    >>> desc = dmlcpu.TensorDesc(dmlcpu.TensorDataType.FLOAT16, sizes=(1, 1, 3, 3))
    >>> desc.total_tensor_size_in_bytes
    20
    >>> dmlcpu.TensorDesc(dmlcpu.TensorDataType.FLOAT16, sizes=(3, 0))
    Traceback (most recent call last):
        ...
    dmlcpu.errors.InvalidDescriptorError: DML_BUFFER_TENSOR_DESC: Sizes[1] is 0; allowed: 1 to 4294967295
    """

    data_type: TensorDataType
    _: KW_ONLY
    flags: TensorFlags = TensorFlags.NONE
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    total_tensor_size_in_bytes: int = None  # type: ignore[assignment]  # None only asks; it is a number once made
    guaranteed_base_offset_alignment: int = 0
    # The total if it was not given. `dataclasses.replace` passes both on, and the total is then computed again.
    _computed: int | None = field(default=None, repr=False, compare=False)

    if TYPE_CHECKING:  # fields have plainer types than the arguments

        def __init__(
            self,
            data_type: TensorDataType,
            *,
            flags: TensorFlags = ...,
            sizes: Iterable[SupportsIndex],
            strides: Iterable[SupportsIndex] | None = ...,
            total_tensor_size_in_bytes: SupportsIndex | None = ...,
            guaranteed_base_offset_alignment: SupportsIndex = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_kind(OPERATOR, "DataType", self.data_type, TensorDataType)
        check_kind(OPERATOR, "Flags", self.flags, TensorFlags)
        set_field(self, "sizes", _integers("Sizes", self.sizes))
        if self.strides is not None:
            set_field(self, "strides", _integers("Strides", self.strides))
        self._check_layout()

        total, alignment = self.total_tensor_size_in_bytes, self.guaranteed_base_offset_alignment
        total = total if total is None else as_integer(OPERATOR, "TotalTensorSizeInBytes", total)
        least = self.minimum_size_in_bytes
        is_given = total not in (None, self._computed)
        set_field(self, "_computed", None if is_given else least)
        set_field(self, "total_tensor_size_in_bytes", total if is_given else least)
        alignment = as_integer(OPERATOR, "GuaranteedBaseOffsetAlignment", alignment)
        set_field(self, "guaranteed_base_offset_alignment", alignment)

        check_range(OPERATOR, "TotalTensorSizeInBytes", self.total_tensor_size_in_bytes, least, UINT64_MAX)
        itemsize = max(1, self.data_type.bits // 8)
        if alignment and (not itemsize <= alignment <= UINT_MAX or alignment & (alignment - 1)):
            allowed = f"0, or a power of two from {itemsize} to {2**31}"
            raise InvalidDescriptorError(OPERATOR, "GuaranteedBaseOffsetAlignment", str(alignment), allowed)

    def _check_layout(self) -> None:
        if self.data_type is TensorDataType.UNKNOWN:
            raise InvalidDescriptorError(OPERATOR, "DataType", "UNKNOWN", ", ".join(offered(TensorDataType)))
        if not 1 <= len(self.sizes) <= _MOST_DIMENSIONS:
            raise InvalidDescriptorError(OPERATOR, "DimensionCount", str(len(self.sizes)), f"1 to {_MOST_DIMENSIONS}")
        for i, size in enumerate(self.sizes):
            check_range(OPERATOR, f"Sizes[{i}]", size, 1, UINT_MAX)
        if math.prod(self.sizes) > UINT_MAX:
            found = f"{self.sizes}, {math.prod(self.sizes)} elements"
            raise InvalidDescriptorError(OPERATOR, "Sizes", found, f"at most {UINT_MAX} elements")
        if self.strides is None:
            return
        if len(self.strides) != len(self.sizes):
            found = f"{self.strides}, {len(self.strides)} strides"
            raise InvalidDescriptorError(OPERATOR, "Strides", found, f"{len(self.sizes)}, one for each size")
        for i, stride in enumerate(self.strides):
            check_range(OPERATOR, f"Strides[{i}]", stride, 0, UINT_MAX)

    @classmethod
    def of(cls, array: ArrayLike, flags: TensorFlags = TensorFlags.NONE) -> "TensorDesc":
        """Return the desc of a packed tensor of an array's type and shape, whatever the array's strides.

        Parameters
        ----------
        array : array_like
            An array of a type that DirectML has; int4 and uint4 are those of ml_dtypes.
        flags : TensorFlags, default NONE
            The tensor's flags.

        Returns
        -------
        TensorDesc
            The desc. Any array of its type and shape can be bound to it.

        Raises
        ------
        UnsupportedError
            If DirectML does not have the type.
        InvalidDescriptorError
            If the shape is not valid for a tensor.

        Examples
        --------
        >>> import numpy as np, dmlcpu
        >>> dmlcpu.TensorDesc.of(np.zeros((2, 3), np.int8), flags=dmlcpu.TensorFlags.OWNED_BY_DML)
        TensorDesc(TensorDataType.INT8, flags=TensorFlags.OWNED_BY_DML, sizes=(2, 3))
        """
        given = convert("TensorDesc.of", "array", array)
        check_type("TensorDesc.of", "array", given.dtype, [name.lower() for name in offered(TensorDataType)])
        return cls(TensorDataType[given.dtype.name.upper()], flags=flags, sizes=given.shape)

    def __repr__(self) -> str:
        return written(self, () if self._computed is None else ("total_tensor_size_in_bytes",))

    @property
    def dimension_count(self) -> int:
        """The number of dimensions."""
        return len(self.sizes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the elements; UINT4 and INT4 have none, and raise UnsupportedError."""
        return self.data_type.dtype

    @property
    def extent_in_bytes(self) -> int:
        """The number of bytes from the first element to the end of the last one."""
        if self.strides is None:
            elements = math.prod(self.sizes)
        else:
            elements = 1 + sum((n - 1) * stride for n, stride in zip(self.sizes, self.strides, strict=True))
        return -(-elements * self.data_type.bits // 8)

    @property
    def minimum_size_in_bytes(self) -> int:
        """The extent, rounded up to a multiple of 4: the least TotalTensorSizeInBytes."""
        return -(-self.extent_in_bytes // 4) * 4

    @property
    def byte_strides(self) -> tuple[int, ...] | None:
        """The strides as NumPy counts them; None if the tensor is packed."""
        return self.strides and tuple(stride * self.dtype.itemsize for stride in self.strides)

    def view(self, buffer: Any) -> NDArray[Any]:
        """View a contiguous buffer of at least `extent_in_bytes` with the tensor's sizes and strides, copying nothing.

        A 4-bit tensor is viewed as its bytes, two elements in each.

        Examples
        --------
        >>> import numpy as np, dmlcpu
        >>> desc = dmlcpu.TensorDesc(dmlcpu.TensorDataType.INT32, sizes=(2, 3), strides=(4, 1))
        >>> desc.view(np.arange(8, dtype=np.int32))
        array([[0, 1, 2],
               [4, 5, 6]], dtype=int32)
        """
        if self.data_type.bits < 8:
            return np.ndarray(self.extent_in_bytes, np.uint8, buffer)
        return np.ndarray(self.sizes, self.dtype, buffer, strides=self.byte_strides)

    def elements_overlap(self) -> bool:
        """Return whether two elements share memory in the buffer; True if it is too expensive to decide."""
        return self.strides is not None and elements_overlap(self.sizes, self.strides)

    def to_dict(self) -> dict[str, Any]:
        """Return the tensor as DxDispatch writes it in JSON."""
        return {
            "DataType": full_name(self.data_type),
            "Flags": full_name(self.flags),
            "DimensionCount": self.dimension_count,
            "Sizes": list(self.sizes),
            "Strides": None if self.strides is None else list(self.strides),
            "TotalTensorSizeInBytes": self.total_tensor_size_in_bytes,
            "GuaranteedBaseOffsetAlignment": self.guaranteed_base_offset_alignment,
        }


def _integers(field: str, values: Any) -> tuple[int, ...]:
    try:
        items = list(values)
    except TypeError:
        raise TypeError(f"{OPERATOR}: {field} is {values!r}; allowed: a sequence of integers") from None
    return tuple(as_integer(OPERATOR, f"{field}[{i}]", value) for i, value in enumerate(items))
