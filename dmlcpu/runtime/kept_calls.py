"""Kept calls: a kernel's arguments are written to memory once, and a call is given nothing but that memory.

Numba looks at every argument of every call, which takes longer than the smallest kernels do.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dmlcpu.runtime.intrinsics import address_of
from dmlcpu.runtime.jit import PYTHON_ONLY, compile_lazily
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.launches import do_part, keep_launch, set_zero, step_of
from dmlcpu.runtime.memory import Array

# The cells of a kept call: the address of its counter, and a launch.
_COUNTER, _LAUNCH = 0, 1
_LAUNCH_CELLS, _ARRAY_CELLS = 4, 7  # of a launch without its arguments; of an array


def _keep(cells, address, args, scratch):  # type: ignore[no-untyped-def]
    """Write a launch of one part, and where its counter is."""
    keep_launch(address_of(cells, _LAUNCH), step_of(args), address, args)
    cells[_COUNTER] = address_of(scratch, 0)


def _call(cells):  # type: ignore[no-untyped-def]
    """Do the part of a kept launch."""
    set_zero(cells[_COUNTER])
    do_part(address_of(cells, _LAUNCH), 0)


def _call_if(cells, found, second):  # type: ignore[no-untyped-def]
    """Do a kept launch, and a second one if it has left another number than 0 in `found`; return whether it has."""
    set_zero(cells[_COUNTER])
    do_part(address_of(cells, _LAUNCH), 0)
    if found[0] == 0:
        return False
    set_zero(second[_COUNTER])
    do_part(address_of(second, _LAUNCH), 0)
    return True


_made: dict[Callable[..., Any], Any] = {}


def _compiled(function: Callable[..., Any]) -> Any:
    # Cells have addresses of its machine code. So of several, made by threads that come first together, all threads use
    # the one that is kept.
    return _made.get(function) or _made.setdefault(function, compile_lazily(function, **PYTHON_ONLY))


def _kept(kernel: Kernel, args: tuple[Array, ...]) -> Array:
    """Return the cells of a call."""
    cells = np.zeros(_LAUNCH + _LAUNCH_CELLS + _ARRAY_CELLS * len(args), np.int64)
    _compiled(_keep)(cells, kernel.address(args), args, args[-1])
    return cells


def kept_call(kernel: Kernel, *args: Array) -> Callable[[], bool]:
    """Return a call of a kernel for a single part with these arguments, for one thread at a time; it returns True.

    The last argument is its workspace. The first cell of that is set to 0, for kernels with a counter there.
    """
    cells, call = _kept(kernel, args), _compiled(_call)

    def again(_held: Any = args) -> bool:  # the cells have the addresses of all arguments
        call(cells)
        return True

    return again


def kept_call_if(first: Kernel, found: tuple[Array, ...], kernel: Kernel, *args: Array) -> Callable[[], bool]:
    """Return a kept call that is made if one before it leaves another number than 0 in the last of `found`.

    It returns whether it was made.
    """
    before, cells, call, flag = _kept(first, found), _kept(kernel, args), _compiled(_call_if), found[-1]

    def again(_held: Any = (found, args)) -> bool:
        done: bool = call(before, flag, cells)
        return done

    return again
