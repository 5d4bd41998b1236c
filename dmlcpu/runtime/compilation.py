"""Whether kernels are compiled. People switch that off to debug code of their own; the reference computes then."""

from numba import config

# Numba's decorators return functions as they are while compilation is off, and kernels cannot call such helpers: a
# process that has imported them so goes on without compiling.
_OFF_FOR_GOOD = bool(config.DISABLE_JIT)


def can_compile() -> bool:
    """Return whether kernels can be used: NUMBA_DISABLE_JIT, or `numba.config` since, may have switched that off."""
    return not (config.DISABLE_JIT or _OFF_FOR_GOOD)
