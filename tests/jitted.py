"""Device functions and intrinsics that Python can call."""

from numba import njit


def jitted(function):
    """Return a compiled function that passes its arguments on."""

    @njit
    def call(*arguments):
        return function(*arguments)

    return call
