"""Copies of ranges of elements, by way of the caches or past them."""

from llvmlite import ir
from numba.core import cgutils

from dmlcpu.runtime.intrinsics import emitted
from dmlcpu.runtime.records import CACHE_LINE

_LONG = ir.IntType(64)


@emitted
def copy_range(builder, source, target, first, last):
    """Copy source[first:last] to the same place in another array of that type, which shares no memory with it.

    This is the system's memcpy. It writes long copies past the caches, but decides by the length of this copy alone;
    see `stream`.
    """
    here, there = source.at(first), target.at(first)
    nbytes = builder.mul(builder.sub(last, first), first.type(source.nbytes))
    cgutils.raw_memcpy(builder, there, here, nbytes, 1)


@emitted
def stream(builder, source, first, target, place, count):
    """Copy `count` elements from source[first:] to target[place:], both of one type, past the caches.

    In target they are whole cache lines. Other threads may see later writes of this thread before these, unless there
    is a `fence` between.
    """
    lanes = CACHE_LINE // source.nbytes
    once = builder.module.add_metadata([ir.IntType(32)(1)])
    with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(lanes), inc=True) as (index, _):
        line = source.load(builder.add(first, index), lanes)
        stored = target.store(line, builder.add(place, index), align=CACHE_LINE)
        stored.set_metadata("nontemporal", once)


@emitted
def fence(builder):
    """Make the earlier writes of this thread visible to others before its later ones."""
    builder.fence("seq_cst")
