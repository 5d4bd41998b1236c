"""Copies of ranges of elements, by way of the caches or past them."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime.intrinsics import address
from dmlcpu.runtime.records import CACHE_LINE

_LONG = ir.IntType(64)


@intrinsic
def copy_range(_context, source, target, first, last):
    """Copy source[first:last] to the same place in another array of that type, with which it shares no memory.

    This is the system's own memcpy. It writes what no cache will hold without reading it first, but decides by the
    length of this copy alone; see `stream`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, first, last = arguments
        nbytes = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
        here, there = [address(context, builder, signature, arguments, array, first) for array in (0, 1)]
        cgutils.raw_memcpy(builder, there, here, builder.mul(builder.sub(last, first), first.type(nbytes)), 1)
        return context.get_dummy_value()

    return types.void(source, target, types.intp, types.intp), generate


@intrinsic
def stream(_context, source, first, target, place, count):
    """Copy `count` elements from source[first:] to target[place:], both of one type, past the caches.

    In target they are whole cache lines. Other threads may see later writes of this thread before these, unless there
    is a `fence` between.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        element = context.get_data_type(signature.args[0].dtype)
        nbytes = context.get_abi_sizeof(element)
        line = ir.VectorType(element, CACHE_LINE // nbytes)

        def line_at(array: int, begin: Any, index: Any) -> Any:
            place = address(context, builder, signature, arguments, array, builder.add(begin, index))
            return builder.bitcast(place, line.as_pointer())

        _, first, _, place, count = arguments
        once = builder.module.add_metadata([ir.IntType(32)(1)])
        with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(line.count), inc=True) as (index, _):
            elements = builder.load(line_at(0, first, index), align=nbytes)
            builder.store(elements, line_at(2, place, index), align=CACHE_LINE).set_metadata("nontemporal", once)
        return context.get_dummy_value()

    index = types.intp
    return types.void(source, index, target, index, index), generate


@intrinsic
def fence(_context):
    """Let other threads see all that this one wrote before they see what it writes next."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
