"""Atomic operations on words of memory, and waiting for another thread to change one. cells: int64, flat."""

import platform
import sys
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.runtime.intrinsics import address_of, emitted
from dmlcpu.runtime.jit import device

_ORDER = "seq_cst"  # a thread that sees the word sees all that was written before it
_INT, _LONG = ir.IntType(32), ir.IntType(64)

# Linux's number of the futex call. Where there is none, threads cannot sleep in compiled code.
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0) if sys.platform == "linux" else 0
_WAIT, _WAKE = 128, 129  # for threads of one process
_MONOTONIC = 1
_THREAD_CLOCK = 6  # with a thread's number: the clock of the time that the scheduler has given it
_TICK = 1_000_000  # nanoseconds: clocks that count ticks only return multiples
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
def add(builder, cells, index, value: types.int64) -> types.int64:
    """Add a value to cells[index] and return what it was."""
    return builder.atomic_rmw("add", cells.at(index), value, _ORDER)


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
    return _emit_clock(builder, _INT(_MONOTONIC))


@emitted
def running_time(builder, thread) -> types.int64:
    """Return for how long a thread of this process has run on a processor, in nanoseconds; thread: Linux's number.

    If the system does not report it, or only counts ticks (gVisor's are 10 ms), the thread counts as always running.
    """
    clock = builder.or_(builder.shl(builder.not_(thread), _LONG(3)), _LONG(_THREAD_CLOCK))
    ran, now = [_emit_clock(builder, each) for each in (builder.trunc(clock, _INT), _INT(_MONOTONIC))]
    return _emit_known(builder, ran, now)


def _emit_known(builder: Any, ran: Any, now: Any) -> Any:
    """Emit `ran` if a clock that counts nanoseconds has been read, else `now`."""
    known = builder.icmp_signed(">", builder.srem(ran, _LONG(_TICK)), _LONG(0))
    return builder.select(known, ran, now)


def _emit_clock(builder: Any, clock: Any) -> Any:
    """Emit the reading of one of the system's clocks: nanoseconds, or -1 if it cannot be read."""
    pair = ir.ArrayType(_LONG, 2)
    time = cgutils.alloca_once(builder, pair)
    function = ir.FunctionType(_INT, [_INT, pair.as_pointer()])
    clock_gettime = cgutils.get_or_insert_function(builder.module, function, "clock_gettime")
    error = builder.call(clock_gettime, [clock, time])
    seconds, fraction = [builder.extract_value(builder.load(time), i) for i in (0, 1)]
    now = builder.add(builder.mul(seconds, _LONG(10**9)), fraction)
    return builder.select(builder.icmp_signed("==", error, _INT(0)), now, _LONG(-1))


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
def sleep(cells, index, value, limit):
    """Wait asleep while cells[index], which fits 32 bits, has a value; return after `wake`, or for no reason at all.

    limit: 0, or the address of the longest time to wait: two int64, seconds and nanoseconds.
    """
    _syscall(FUTEX, address_of(cells, index), _WAIT, value, limit, 0, 0)


@device
def wake(cells, index):
    """Wake the thread that sleeps until cells[index] changes."""
    _syscall(FUTEX, address_of(cells, index), _WAKE, 1, 0, 0, 0)
