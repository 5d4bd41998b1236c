"""Kernels: functions of (part, parts, ...) that do one share of the work.

A kernel is compiled once, lazily. The plan decides how many parts the work is worth. For one, Python calls the kernel,
which costs 0.2 us. For more, a function that several threads run calls it for every part, by its address. Results
never depend on `parts`.

A `parallel=True` twin of every kernel would do the same, but Numba passes its body through LLVM three times: that was
half of all compile time.
"""

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from dmlcpu.runtime import threads
from dmlcpu.runtime.jit import compile_kernel
from dmlcpu.runtime.uninterrupted import uninterrupted


class Kernel:
    """A kernel, whose function returns nothing; a call with (parts, ...) does all shares, on threads if several."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        self._compiled: dict[tuple[Any, ...], tuple[int, Any]] = {}

    @property
    def share(self) -> Any:
        """The compiled function of (part, parts, ...)."""
        made = vars(self)
        # Threads that come first together may each make one; all of them use the first that is kept.
        return made.get("_share") or made.setdefault("_share", compile_kernel(self.function))

    def for_parts(self, parts: int, most: int | None = None) -> Callable[..., Any]:
        """Return a function of (...) that does all shares; a single share is called directly, in C.

        most: threads that take the shares, if there are more shares than threads.
        """
        if parts == 1:
            return functools.partial(self.share, 0, 1)
        return functools.partial(self, parts, most=most) if most else functools.partial(self, parts)

    def __call__(self, parts: int, *args: Any, most: int | None = None) -> None:
        """Run with the work cut into `parts` shares, on at most `most` threads."""
        if parts == 1 or not threads.launch(self.address(args), parts, args, (most or parts) - 1):
            for part in range(parts):
                self.share(part, parts, *args)

    def address(self, args: tuple[Any, ...]) -> int:
        """Return where the machine code for arguments of these types is."""
        # Numba's types follow from these; to ask Numba for them would take 8 us an argument. (`dtype.num` does not do:
        # it is the same for all record types.)
        kinds = tuple([(x.dtype, x.ndim, x.flags.num) if isinstance(x, np.ndarray) else type(x) for x in args])
        found = self._compiled.get(kinds)
        if found is None:
            found = self._compiled[kinds] = uninterrupted(self._compile, args)
        return found[0]

    def _compile(self, args: tuple[Any, ...]) -> tuple[int, Any]:
        """Return where the machine code is, and what keeps it in memory."""
        share = self.share
        signature = (numba.intp, numba.intp, *map(share.typeof_pyval, args))
        share.compile(signature)
        result = share.overloads[signature]
        return result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name), result


kernel = Kernel  # as a decorator
