"""The check of scales: each call with arrays of them makes it, and NumPy would take as long as a small product."""

import functools
from typing import Any

import numpy as np

from dmlcpu.runtime.jit import compile_kernel, device
from dmlcpu.runtime.kernel import kernel


@device
def _are_positive(scales):
    good = True
    for i in range(scales.size):
        good &= (scales[i] > 0) & (scales[i] < np.inf)
    return good


def _check(scales):
    return _are_positive(scales)


@kernel
def check_scales(part, parts, a_scale, b_scale, y_scale, found):
    """Write whether all scales are positive and finite."""
    found[0] = _are_positive(a_scale) & _are_positive(b_scale) & _are_positive(y_scale)


@functools.cache
def _compiled() -> Any:
    return compile_kernel(_check)


def are_positive(scales: np.ndarray) -> bool:
    """Return whether all scales of a flat float32 array are positive and finite."""
    good: bool = _compiled()(scales)
    return good
