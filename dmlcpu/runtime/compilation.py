"""Whether kernels are compiled. Users switch it off to debug code of their own; the reference computes then."""

from collections.abc import Callable
from typing import Any

from numba import config

# While compilation is off, Numba's decorators return functions unchanged, and kernels cannot call such helpers. A
# process that has imported them cannot compile later.
_OFF_FOR_GOOD = bool(config.DISABLE_JIT)


def can_compile() -> bool:
    """Return whether kernels can be used: NUMBA_DISABLE_JIT, or `numba.config` since, may have switched that off."""
    return not (config.DISABLE_JIT or _OFF_FOR_GOOD)


def in_python(helper: Any) -> Callable[..., Any]:
    """Return the Python function of a helper that kernels call."""
    function: Callable[..., Any] = getattr(helper, "py_func", helper)  # without compilation it is that function
    return function
