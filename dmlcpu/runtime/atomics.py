"""Atomic operations on words of memory, and waiting for another thread to change one. cells: int64, flat."""

import platform
import sys
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.runtime.intrinsics import address_of, emitted
from dmlcpu.runtime.jit import device

_ORDER = "seq_cst"  # a thread that sees the word sees all that was written before it
_LONG = ir.IntType(64)

# Linux's number of the futex call. Where there is none, threads cannot sleep in compiled code.
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0) if sys.platform == "linux" else 0
_WAIT, _WAKE = 128, 129  # for threads of one process
_MONOTONIC = 1
_CHECKS = 32  # of a word between two looks at the clock, some microseconds

_syscall: Any = types.ExternalFunction("syscall", types.int64(*[types.int64] * 7))


@emitted
def load(builder, cells, index) -> types.int64:
    """Return cells[index] as it is now."""
    return builder.load_atomic(cells.at(index), _ORDER, 8)


@emitted
def exchange(builder, cells, index, value: types.int64) -> types.int64:
    """Set cells[index] and return what it was."""
    return builder.atomic_rmw("xchg", cells.at(index), value, _ORDER)


@emitted
def compare_exchange(builder, cells, index, expected: types.int64, value: types.int64) -> types.int64:
    """Set cells[index] if it is as expected; return what it was."""
    return builder.extract_value(builder.cmpxchg(cells.at(index), expected, value, _ORDER, _ORDER), 0)


@emitted
def fetch_add(builder, cells, index) -> types.int64:
    """Return cells[index] and add 1 to it; other memory may be seen in another order."""
    return builder.atomic_rmw("add", cells.at(index), _LONG(1), "monotonic")


@emitted
def relax(builder):
    """Let the processor rest for a moment within a loop that waits for another core."""
    if platform.machine() == "x86_64":
        pause = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", [], pause), [])
    elif platform.machine() == "aarch64":  # isb takes about as long as x86's pause; yield takes no time
        barrier = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
        builder.call(builder.module.declare_intrinsic("llvm.aarch64.isb", [], barrier), [ir.IntType(32)(15)])


@emitted
def nanoseconds(builder) -> types.int64:
    """Return the system's monotonic clock, in nanoseconds."""
    pair = ir.ArrayType(_LONG, 2)
    time = cgutils.alloca_once(builder, pair)
    function = ir.FunctionType(ir.IntType(32), [ir.IntType(32), pair.as_pointer()])
    clock_gettime = cgutils.get_or_insert_function(builder.module, function, "clock_gettime")
    builder.call(clock_gettime, [ir.IntType(32)(_MONOTONIC), time])
    seconds, fraction = [builder.extract_value(builder.load(time), i) for i in (0, 1)]
    return builder.add(builder.mul(seconds, _LONG(10**9)), fraction)


@device
def spin(cells, index, value, most):
    """Wait awake for cells[index] to change, at most `most` nanoseconds; return whether it is still `value`."""
    end = 0
    while True:
        for _ in range(_CHECKS):
            if load(cells, index) != value:
                return False
            relax()
        now = nanoseconds()
        if end == 0:
            end = now + most
        elif now > end:
            return True


@device
def sleep(cells, index, value):
    """Wait asleep until cells[index], whose value fits 32 bits, has changed and `wake` was called."""
    while load(cells, index) == value:
        _syscall(FUTEX, address_of(cells, index), _WAIT, value, 0, 0, 0)


@device
def wake(cells, index):
    """Wake the thread that sleeps until cells[index] changes."""
    _syscall(FUTEX, address_of(cells, index), _WAKE, 1, 0, 0, 0)
