"""Vector operations on runs of elements: whole cache lines, then halves, quarters, ... of one. No scalar loops."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime.intrinsics import address
from dmlcpu.runtime.records import CACHE_LINE

_LONG = ir.IntType(64)


def _walk(builder: Any, count: Any, lanes: int, emit: Callable[[Any, int], None]) -> None:
    """Emit a walk over `count` elements; emit(index, width) emits the work on `width` of them from `index` on."""
    rest = builder.and_(count, _LONG(lanes - 1))
    with cgutils.for_range_slice(builder, _LONG(0), builder.sub(count, rest), _LONG(lanes), inc=True) as (index, _):
        emit(index, lanes)
    width = lanes // 2
    while width:
        # All wider pieces lie before this one.
        before = builder.and_(count, _LONG(-2 * width))
        with builder.if_then(cgutils.is_not_null(builder, builder.and_(count, _LONG(width)))):
            emit(before, width)
        width //= 2


def _generator(combine: Callable[[Any, Any, Any], Any] | None) -> Callable[..., Any]:
    """Return the code generator of an intrinsic(out, o, updates, u, count)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, o, _, u, count = arguments
        element = context.get_data_type(signature.args[0].dtype)
        nbytes = context.get_abi_sizeof(element)

        def emit(index: Any, width: int) -> None:
            there, update = (
                builder.bitcast(
                    address(context, builder, signature, arguments, array, builder.add(begin, index)),
                    ir.VectorType(element, width).as_pointer(),
                )
                for array, begin in ((0, o), (2, u))
            )
            new = builder.load(update, align=nbytes)
            if combine:
                new = combine(builder, builder.load(there, align=nbytes), new)
            builder.store(new, there, align=nbytes)

        _walk(builder, count, CACHE_LINE // nbytes, emit)
        return context.get_dummy_value()

    return generate


def _add(builder: Any, mine: Any, update: Any) -> Any:
    """Emit sums: integers wrap, and every NaN is the same quiet one (see kernels/scatter_nd/reduction.py)."""
    kind = mine.type
    if isinstance(kind.element, ir.IntType):
        return builder.add(mine, update)
    total = builder.fadd(mine, update)
    nan = ir.Constant(kind, [float("nan")] * kind.count)
    return builder.select(builder.fcmp_unordered("uno", total, total), nan, total)


@intrinsic
def copy_run(_context, out, o, updates, u, count):
    """Copy updates[u : u + count] to out[o:]; both are of one type and share no memory."""
    return types.void(out, types.intp, updates, types.intp, types.intp), _generator(None)


@intrinsic
def add_run(_context, out, o, updates, u, count):
    """Add updates[u : u + count] to out[o:]; both are of one type and share no memory."""
    return types.void(out, types.intp, updates, types.intp, types.intp), _generator(_add)
