"""Whether kernels are compiled. Users switch it off to debug code of their own; the reference computes then."""

from numba import config

# While compilation is off, Numba's decorators return functions unchanged, and kernels cannot call such helpers. A
# process that has imported them cannot compile later.
_OFF_FOR_GOOD = bool(config.DISABLE_JIT)


def can_compile() -> bool:
    """Return whether kernels can be used: NUMBA_DISABLE_JIT, or `numba.config` since, may have switched that off."""
    return not (config.DISABLE_JIT or _OFF_FOR_GOOD)
