"""Machine operations that Numba has no name for. Each works on every processor that LLVM knows."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_LINE = 64  # bytes
_POINTER = ir.IntType(8).as_pointer()
_INT = ir.IntType(32)


@intrinsic
def line_of(_context, array):  # type: ignore[no-untyped-def]
    """Return how many elements of an array are in a cache line, as a constant: loops up to it have known bounds."""

    def generate(context: Any, builder: Any, signature: Any, _arguments: Any) -> Any:
        nbytes = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
        return context.get_constant(types.intp, _LINE // nbytes)

    return types.intp(array), generate


@intrinsic
def prefetch(_context, array, index):  # type: ignore[no-untyped-def]
    """Ask for the cache line of array[index] ahead of its use; an index beyond the array does no harm."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), _POINTER)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [_POINTER], ir.FunctionType(ir.VoidType(), [_POINTER, _INT, _INT, _INT])
        )
        read, keep, data_cache = 0, 3, 1
        builder.call(function, [address, _INT(read), _INT(keep), _INT(data_cache)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def reach(_context, array, index, least):  # type: ignore[no-untyped-def]
    """Return a bit for each of the `line_of` elements from array[index] on: whether it is at least `least`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_data_type(signature.args[0].dtype)
        lanes = _LINE // context.get_abi_sizeof(word)
        line = ir.VectorType(word, lanes)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), line.as_pointer())
        elements = builder.load(address, align=context.get_abi_sizeof(word))
        first = builder.insert_element(ir.Constant(line, ir.Undefined), arguments[2], _INT(0))
        bound = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT, lanes), [_INT(0)] * lanes))
        bits = builder.bitcast(builder.icmp_unsigned(">=", elements, bound), ir.IntType(lanes))
        return bits if lanes == 64 else builder.zext(bits, ir.IntType(64))

    return types.uint64(array, types.intp, array.dtype), generate


@intrinsic
def lowest_bit(_context, bits):  # type: ignore[no-untyped-def]
    """Return the number of the lowest bit that is set; there must be one."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.intp(types.uint64), generate


@intrinsic
def count_bits(_context, bits):  # type: ignore[no-untyped-def]
    """Return how many bits are set."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.intp(types.uint64), generate


@intrinsic
def call(_context, address, part, parts, args):  # type: ignore[no-untyped-def]
    """Call the compiled function of (part, parts, *args) at an address; it returns nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        members = [builder.extract_value(arguments[3], i) for i in range(len(signature.args[3]))]
        values = [arguments[1], arguments[2], *members]
        function = ir.FunctionType(context.get_value_type(types.none), [value.type for value in values])
        builder.call(builder.inttoptr(arguments[0], function.as_pointer()), values)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, args), generate
