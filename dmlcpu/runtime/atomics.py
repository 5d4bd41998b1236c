"""Words of memory that several threads read and write, and how one of them waits for another. cells: int64, flat."""

import platform
import sys
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime.jit import device

_ORDER = "seq_cst"  # what a thread wrote before is seen by whoever sees the word
_LONG = ir.IntType(64)

# Linux's number of the futex call. Where there is none, threads cannot sleep in compiled code.
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0) if sys.platform == "linux" else 0
_WAIT, _WAKE = 128, 129  # for threads of one process
_MONOTONIC = 1
_CHECKS = 32  # of a word between two looks at the clock, some microseconds

_syscall: Any = types.ExternalFunction("syscall", types.int64(*[types.int64] * 7))


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.gep(context.make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])


@intrinsic
def address_of(_context, cells, index):  # type: ignore[no-untyped-def]
    """Return the address of cells[index]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(_place(context, builder, signature, arguments), _LONG)

    return types.int64(cells, types.intp), generate


@intrinsic
def load(_context, cells, index):  # type: ignore[no-untyped-def]
    """Return cells[index] as it is now."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_place(context, builder, signature, arguments), _ORDER, 8)

    return types.int64(cells, types.intp), generate


@intrinsic
def exchange(_context, cells, index, value):  # type: ignore[no-untyped-def]
    """Set cells[index] and return what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("xchg", _place(context, builder, signature, arguments), arguments[2], _ORDER)

    return types.int64(cells, types.intp, types.int64), generate


@intrinsic
def compare_exchange(_context, cells, index, expected, value):  # type: ignore[no-untyped-def]
    """Set cells[index] if it is as expected; return what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature, arguments)
        return builder.extract_value(builder.cmpxchg(place, arguments[2], arguments[3], _ORDER, _ORDER), 0)

    return types.int64(cells, types.intp, types.int64, types.int64), generate


@intrinsic
def relax(_context):  # type: ignore[no-untyped-def]
    """Let the processor rest for a moment within a loop that waits for another core."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        if platform.machine() == "x86_64":
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", [], pause), [])
        elif platform.machine() == "aarch64":  # isb takes about as long as x86's pause; yield takes no time
            barrier = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
            builder.call(builder.module.declare_intrinsic("llvm.aarch64.isb", [], barrier), [ir.IntType(32)(15)])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def nanoseconds(_context):  # type: ignore[no-untyped-def]
    """Return the system's monotonic clock, in nanoseconds."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        pair = ir.ArrayType(_LONG, 2)
        time = cgutils.alloca_once(builder, pair)
        function = ir.FunctionType(ir.IntType(32), [ir.IntType(32), pair.as_pointer()])
        clock_gettime = cgutils.get_or_insert_function(builder.module, function, "clock_gettime")
        builder.call(clock_gettime, [ir.IntType(32)(_MONOTONIC), time])
        seconds, fraction = [builder.extract_value(builder.load(time), i) for i in (0, 1)]
        return builder.add(builder.mul(seconds, _LONG(10**9)), fraction)

    return types.int64(), generate


@device
def spin(cells, index, value, most):  # type: ignore[no-untyped-def]
    """Wait awake for cells[index] to change, so many nanoseconds at most; return whether it is still `value`."""
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
def sleep(cells, index, value):  # type: ignore[no-untyped-def]
    """Wait asleep until cells[index], whose value fits 32 bits, has changed and `wake` was called."""
    while load(cells, index) == value:
        _syscall(FUTEX, address_of(cells, index), _WAIT, value, 0, 0, 0)


@device
def wake(cells, index):  # type: ignore[no-untyped-def]
    """Wake the thread that sleeps until cells[index] changes."""
    _syscall(FUTEX, address_of(cells, index), _WAKE, 1, 0, 0, 0)
