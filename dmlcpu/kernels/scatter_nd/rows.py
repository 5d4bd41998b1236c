"""Vector operations on runs of elements: whole cache lines, then halves, quarters, ... of one. No scalar loops."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from dmlcpu.runtime.intrinsics import emitted
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


def _emit_run(builder: Any, out: Any, o: Any, updates: Any, u: Any, count: Any, combine: Any = None) -> None:
    """Emit the overwriting of a run, or the update of its elements by combine(builder, mine, update)."""

    def emit(index: Any, width: int) -> None:
        at, new = builder.add(o, index), updates.load(builder.add(u, index), width)
        if combine:
            new = combine(builder, out.load(at, width), new)
        out.store(new, at)

    _walk(builder, count, CACHE_LINE // out.nbytes, emit)


def _add(builder: Any, mine: Any, update: Any) -> Any:
    """Emit sums: integers wrap, and every NaN is the same quiet one (see kernels/scatter_nd/reduction.py)."""
    kind = mine.type
    if isinstance(kind.element, ir.IntType):
        return builder.add(mine, update)
    total = builder.fadd(mine, update)
    nan = ir.Constant(kind, [float("nan")] * kind.count)
    return builder.select(builder.fcmp_unordered("uno", total, total), nan, total)


@emitted
def copy_run(builder, out, o, updates, u, count):
    """Copy updates[u : u + count] to out[o:]; both are of one type and share no memory."""
    _emit_run(builder, out, o, updates, u, count)


@emitted
def add_run(builder, out, o, updates, u, count):
    """Add updates[u : u + count] to out[o:]; both are of one type and share no memory."""
    _emit_run(builder, out, o, updates, u, count, _add)
