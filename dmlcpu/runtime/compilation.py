"""Whether kernels are compiled, and when. Users switch it off to debug their own code; the reference computes then."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from numba import config
from numba.core import event

# While compilation is off, Numba's decorators return functions unchanged, and kernels cannot call such helpers. A
# process that has imported them cannot compile later.
OFF_FOR_GOOD = bool(config.DISABLE_JIT)


def can_compile() -> bool:
    """Return whether kernels can be used: NUMBA_DISABLE_JIT, or `numba.config` since, may have switched that off."""
    return not (config.DISABLE_JIT or OFF_FOR_GOOD)


class Compilations(event.Listener):  # type: ignore[misc]
    """What has been compiled since `watch_compilations` began; what is loaded from the cache does not count."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self.count = 0  # of functions that Python or a launch calls
        self.seconds = 0.0
        self._begin = begin
        self._depth = 0  # a kernel's helpers are compiled while it is
        self._started = 0.0

    def on_start(self, _event: Any) -> None:
        """Note that something begins to be compiled."""
        if self.count == self._depth == 0:
            self._begin()
        if self._depth == 0:
            self._started = time.perf_counter()
        self._depth += 1

    def on_end(self, _event: Any) -> None:
        """Note that it is compiled."""
        self._depth -= 1
        if self._depth == 0:
            self.count += 1
            self.seconds += time.perf_counter() - self._started

    def total(self) -> float:
        """Return the seconds until now, also of what is being compiled."""
        return self.seconds + (time.perf_counter() - self._started if self._depth else 0.0)


@contextlib.contextmanager
def watch_compilations(begin: Callable[[], None]) -> Iterator[Compilations]:
    """Count what is compiled, and call begin() before the first of it; for a block that compiles on one thread."""
    with event.install_listener("numba:compile", Compilations(begin)) as compilations:
        yield compilations


def watch_process(begin: Callable[[], None]) -> Compilations:
    """Count what this process compiles from now on, as `watch_compilations` does."""
    compilations = Compilations(begin)
    event.register("numba:compile", compilations)
    return compilations
