"""Kept calls: a kernel's arguments are written to memory once, and a call is given nothing but that memory.

Numba looks at every argument of every call, which takes longer than the smallest kernels do.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlcpu.runtime.intrinsics import address_of
from dmlcpu.runtime.jit import compile_lazily
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.launches import enter, entry_of, keep_launch
from dmlcpu.runtime.memory import Array

_ENTRY, _LAUNCH = 0, 1  # cells of a kept call; the launch begins with the number of its next part
_ARRAY_CELLS, _OTHER_CELLS = 7, 4  # of a one-dimensional array in a launch; of the rest


def _keep(cells, address, args):  # type: ignore[no-untyped-def]
    """Write a launch of one part, and its entry."""
    keep_launch(address_of(cells, _LAUNCH), address, args)
    cells[_ENTRY] = entry_of(args)


def _call(cells, scratch):  # type: ignore[no-untyped-def]
    """Do the part of a kept launch. A counter at the start of the workspace is set to 0, for kernels that have one."""
    cells[_LAUNCH] = 0
    scratch[0] = 0
    enter(cells[_ENTRY], address_of(cells, _LAUNCH))


@functools.cache
def _compiled() -> tuple[Any, Any]:
    return compile_lazily(_keep), compile_lazily(_call)


def kept_call(kernel: Kernel, *args: Array) -> Callable[[], None]:
    """Return a function that calls a kernel for a single part with these arguments, the last of them its workspace."""
    keep, call = _compiled()
    cells = np.zeros(_OTHER_CELLS + _ARRAY_CELLS * len(args), np.int64)
    keep(cells, kernel.address(args), args)
    scratch = args[-1]

    def again(_held: Any = args) -> None:  # the cells have the addresses of all arguments
        call(cells, scratch)

    return again
