"""The check of scales: each call with arrays of them makes it, and NumPy would take as long as a small product."""

import functools
from typing import Any

import numpy as np

from dmlcpu.runtime.jit import compile_kernel


def _are_positive(scales):
    good = True
    for i in range(scales.size):
        good &= (scales[i] > 0) & (scales[i] < np.inf)
    return good


@functools.cache
def _compiled() -> Any:
    return compile_kernel(_are_positive)


def are_positive(scales: np.ndarray) -> bool:
    """Return whether all scales of a flat float32 array are positive and finite."""
    good: bool = _compiled()(scales)
    return good
