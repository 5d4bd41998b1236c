"""Intrinsics for compiled callers: memory on the stack, and records in it."""

from collections import namedtuple
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime.intrinsics import flat_array
from dmlcpu.runtime.records import CACHE_LINE, CELL

_CELL = ir.IntType(8 * CELL)


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


def tuple_of(dtype):
    """Return a class of tuples that have the fields of a record, for `write_record`."""
    return namedtuple("Fields", dtype.names)


@intrinsic
def write_record(_context, cells, dtype, fields):
    """Write all fields of a record to the first of some cells; a nested record is a tuple, and a table a short one."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        start = context.make_array(cells)(context, builder, arguments[0]).data
        _emit_writes(context, builder, start, dtype.dtype, fields, arguments[2])
        return context.get_dummy_value()

    return types.void(cells, dtype, fields), generate


def _emit_writes(context: Any, builder: Any, start: Any, target: Any, given: Any, value: Any) -> None:
    """Emit the writing of a value, or of all members of a tuple, to the cells from `start` on; given: its type."""
    if not isinstance(given, types.BaseTuple):
        builder.store(context.cast(builder, value, given, types.int64), start)
        return
    places = [(number, target) for number in range(len(given))]  # of a table
    if isinstance(target, types.Record):
        places = [(target.offset(name) // CELL, field) for name, field in target.members]
        if len(given) != len(places) or getattr(given, "fields", (*target.fields,)) != (*target.fields,):
            raise TypeError(f"a record takes {', '.join(target.fields)}, not {given}")
    for (cell, field), own, part in zip(places, given, cgutils.unpack_tuple(builder, value), strict=True):
        _emit_writes(context, builder, builder.gep(start, [_CELL(cell)]), field, own, part)
