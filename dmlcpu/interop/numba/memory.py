"""Intrinsics for compiled callers: the words of an array, and memory on the stack."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from dmlcpu.runtime.intrinsics import flat_array
from dmlcpu.runtime.records import CACHE_LINE, CELL

_CELL = ir.IntType(8 * CELL)


@intrinsic
def words_of(_context, array, word):
    """Return a contiguous array's memory as flat, writable words of a type like np.uint32, valid while the array is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        size = context.get_abi_sizeof(context.get_data_type(result.dtype))
        nbytes = builder.mul(source.nitems, source.itemsize)
        return flat_array(context, builder, result, source.data, builder.udiv(nbytes, nbytes.type(size)))

    result = types.Array(word.dtype, 1, "C")
    return result(array, word), generate


def stack_of(cells: int) -> Any:
    """Make an intrinsic that allocates `cells` int64, uninitialised, on the stack of its caller.

    They start a cache line. The caller is never inlined, so its memory is free when it returns, also in a loop.
    """

    @intrinsic
    def on_stack(_context):
        def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
            builder.function.attributes.add("noinline")
            with builder.goto_entry_block():  # Numba's own `alloca_once` would fill it with zeros
                memory = builder.alloca(ir.ArrayType(_CELL, cells))
            memory.align = CACHE_LINE
            return flat_array(context, builder, result, memory, context.get_constant(types.intp, cells))

        result = types.Array(types.int64, 1, "C")
        return result(), generate

    return on_stack
