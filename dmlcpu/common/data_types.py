"""The table of data types, one row for each. It imports nothing heavy."""

from typing import NamedTuple


class DataType(NamedTuple):
    """An element type, with each of its names and numbers."""

    name: str  # NumPy's; bfloat16, int4 and uint4 are those of ml_dtypes
    bits: int
    kind: str  # as in NumPy: b bool, u unsigned, i signed, f floating, c complex; top_k's keys depend on it
    directml: int  # of DML_TENSOR_DATA_TYPE, which has these names in capitals; 0: not in DirectML
    onnx: int  # of TensorProto.DataType
    infinity: int = 0  # the bits of +inf: greater ones are NaN in top_k's keys
    computed_as: str | None = None  # the type of elements in scatters' kernels that reduce; signed integers are words

    @property
    def highest(self) -> int:
        """The greatest integer of an integer type; of bool 1."""
        return 1 if self.kind == "b" else (1 << self.bits - (self.kind == "i")) - 1

    @property
    def lowest(self) -> int:
        """The least integer of an integer type."""
        return -self.highest - 1 if self.kind == "i" else 0


# fmt: off
DATA_TYPES = {
    row.name: row
    for row in (
        DataType("bool", 8, "b", 0, 9, computed_as="uint8"),
        DataType("uint8", 8, "u", 5, 2, computed_as="uint8"),
        DataType("uint16", 16, "u", 4, 4, computed_as="uint16"),
        DataType("uint32", 32, "u", 3, 12, computed_as="uint32"),
        DataType("uint64", 64, "u", 10, 13, computed_as="uint64"),
        DataType("int8", 8, "i", 8, 3, computed_as="uint8"),
        DataType("int16", 16, "i", 7, 5, computed_as="uint16"),
        DataType("int32", 32, "i", 6, 6, computed_as="uint32"),
        DataType("int64", 64, "i", 11, 7, computed_as="uint64"),
        DataType("float16", 16, "f", 2, 10, 0x7C00, computed_as="uint16"),
        DataType("bfloat16", 16, "f", 0, 16, 0x7F80, computed_as="uint16"),
        DataType("float32", 32, "f", 1, 1, 0x7F800000, computed_as="float32"),
        DataType("float64", 64, "f", 9, 11, 0x7FF0000000000000, computed_as="float64"),
        DataType("complex64", 64, "c", 0, 14, computed_as="float32"),
        DataType("complex128", 128, "c", 0, 15, computed_as="float64"),
        DataType("uint4", 4, "u", 12, 21),
        DataType("int4", 4, "i", 13, 22),
    )
}
# fmt: on
NUMBERS = tuple(row.name for row in DATA_TYPES.values() if row.kind in "buif" and row.bits >= 8)  # the ordered types
INDICES = ("int64", "int32", "uint64", "uint32")
BYTE_TYPES = ("int8", "uint8")
