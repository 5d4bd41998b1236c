"""LLVM vectors: types, constants, loads, stores and shuffles."""

from typing import Any

from llvmlite import ir

BYTE, HALF, WORD = ir.IntType(8), ir.IntType(16), ir.IntType(32)


def vector(element: Any, lanes: int) -> Any:
    """Return the type of a vector."""
    return ir.VectorType(element, lanes)


def constant(kind: Any, value: float) -> Any:
    """Return a vector with the same number in all lanes."""
    return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)


def call(builder: Any, name: str, result: Any, operands: list[Any]) -> Any:
    """Emit the call of an LLVM intrinsic."""
    kind = ir.FunctionType(result, [each.type for each in operands])
    return builder.call(builder.module.declare_intrinsic(name, (), kind), operands)


def load(builder: Any, place: Any, lanes: int, align: int = 1) -> Any:
    """Emit the load of a vector of elements from a place on; align: in bytes."""
    return builder.load(builder.bitcast(place, vector(place.type.pointee, lanes).as_pointer()), align=align)


def store(builder: Any, value: Any, place: Any, align: int = 1) -> None:
    """Emit the store of a vector to a place."""
    builder.store(value, builder.bitcast(place, value.type.as_pointer()), align=align)


def shuffle(builder: Any, one: Any, other: Any, lanes: list[int]) -> Any:
    """Emit a vector of chosen lanes of two vectors; the second one's lanes are numbered after the first one's."""
    return builder.shuffle_vector(one, other, ir.Constant(vector(WORD, len(lanes)), [WORD(lane) for lane in lanes]))


def interleave(builder: Any, one: Any, other: Any) -> tuple[Any, Any]:
    """Interleave the lower, and the upper, eight bytes of each 16 bytes of two vectors; every unit supports this."""
    count, width = one.type.count, 128 // one.type.element.width
    low, high = (
        [source + first + i for first in range(half, count, width) for i in range(width // 2) for source in (0, count)]
        for half in (0, width // 2)
    )
    return shuffle(builder, one, other, low), shuffle(builder, one, other, high)
