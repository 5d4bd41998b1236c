"""Operations on arrays that Numba has no name for. Each works on every little-endian processor that LLVM knows."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from dmlcpu.runtime.records import CACHE_LINE

_LEAST_LANES = 16  # LLVM unrolls shorter loops instead of making vectors of them
_POINTER = ir.IntType(8).as_pointer()
_INT = ir.IntType(32)


def lanes_of(context: Any, element: Any) -> int:
    """Return how many elements of a type make a line, see `line_of`."""
    nbytes: int = context.get_abi_sizeof(context.get_data_type(element))
    return max(CACHE_LINE // nbytes, _LEAST_LANES)


def address(context: Any, builder: Any, signature: Any, arguments: Any, array: int, index: Any) -> Any:
    """Emit the address of the element `index` of an argument."""
    return builder.gep(context.make_array(signature.args[array])(context, builder, arguments[array]).data, [index])


@intrinsic
def address_of(_context, array, index):  # type: ignore[no-untyped-def]
    """Return the address of array[index]; of an array of several dimensions, of its element `index` in memory."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(address(context, builder, signature, arguments, 0, arguments[1]), ir.IntType(64))

    return types.int64(array, types.intp), generate


def flat_array(context: Any, builder: Any, kind: Any, data: Any, length: Any) -> Any:
    """Emit a flat array over memory that something else keeps alive."""
    element = context.get_data_type(kind.dtype)
    nbytes = context.get_constant(types.intp, context.get_abi_sizeof(element))
    array = context.make_array(kind)(context, builder)
    data = builder.bitcast(data, element.as_pointer())
    populate_array(array, data=data, shape=[length], strides=[nbytes], itemsize=nbytes, meminfo=None)
    return array._getvalue()


def emit_prefetch(builder: Any, place: Any) -> None:
    """Emit a prefetch of the cache line at a place."""
    address = builder.bitcast(place, _POINTER)
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [_POINTER], ir.FunctionType(ir.VoidType(), [_POINTER, _INT, _INT, _INT])
    )
    read, keep, data_cache = 0, 3, 1
    builder.call(function, [address, _INT(read), _INT(keep), _INT(data_cache)])


def splat(builder: Any, value: Any, lanes: int) -> Any:
    """Emit a vector of one value."""
    first = builder.insert_element(ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT, lanes), [_INT(0)] * lanes))


@intrinsic
def line_of(_context, array):  # type: ignore[no-untyped-def]
    """Return how many elements of an array are compared at a time, as a constant: loops up to it have known bounds.

    They fill a cache line; 64-bit elements fill two.
    """

    def generate(context: Any, _builder: Any, signature: Any, _arguments: Any) -> Any:
        return context.get_constant(types.intp, lanes_of(context, signature.args[0].dtype))

    return types.intp(array), generate


@intrinsic
def prefetch(_context, array, index):  # type: ignore[no-untyped-def]
    """Prefetch the `line_of` elements from array[index] on; beyond the array it does no harm."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(address(context, builder, signature, arguments, 0, arguments[1]), _POINTER)
        element = signature.args[0].dtype
        nbytes = lanes_of(context, element) * context.get_abi_sizeof(context.get_data_type(element))
        for offset in range(0, nbytes, CACHE_LINE):
            emit_prefetch(builder, builder.gep(place, [_INT(offset)]))
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def as_words(_context, cells, start, like):  # type: ignore[no-untyped-def]
    """Return cells[start:] as elements of the type that `like` is or has, in the same memory.

    cells: contiguous, and alive as long as the result; Numba's own `view` compiles for half a second.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        nbytes = [context.get_abi_sizeof(context.get_data_type(kind.dtype)) for kind in (signature.args[0], result)]
        a_cell = context.get_constant(types.intp, nbytes[0] // nbytes[1])
        length = builder.mul(builder.sub(source.nitems, arguments[1]), a_cell)
        return flat_array(context, builder, result, builder.gep(source.data, [arguments[1]]), length)

    result = types.Array(getattr(like, "dtype", like), 1, "C")
    return result(cells, types.intp, like), generate


@intrinsic
def either(_context, condition, one, first, other):  # type: ignore[no-untyped-def]
    """Return one[first:] if a condition holds, else other, as a flat array; both are of one type.

    They are alive as long as the result. Numba has no variable that is one of two arrays of different shapes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        condition, _, first, _ = arguments
        mine, others = (context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (1, 3))
        data = builder.select(condition, builder.gep(mine.data, [first]), others.data)
        length = builder.select(condition, builder.sub(mine.nitems, first), others.nitems)
        return flat_array(context, builder, result, data, length)

    result = types.Array(other.dtype, 1, "C")
    return result(types.boolean, one, types.intp, other), generate
