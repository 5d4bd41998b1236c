"""The check of scales, which each call with arrays of them makes; NumPy would take as long as a small product."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlcpu.runtime.jit import compile_kernel, device
from dmlcpu.runtime.kept_calls import kept_call, kept_call_if
from dmlcpu.runtime.kernel import Kernel, kernel

_ONE = np.ones(1, np.float32)


@device
def _are_positive(scales):
    good = True
    for i in range(scales.size):
        good &= (scales[i] > 0) & (scales[i] < np.inf)
    return good


@kernel
def check_scales(part, parts, a_scale, b_scale, y_scale, found):
    """Write whether all scales are positive and finite."""
    found[0] = _are_positive(a_scale) & _are_positive(b_scale) & _are_positive(y_scale)


@functools.cache
def _compiled() -> Any:
    return compile_kernel(_are_positive.py_func)


def are_positive(scales: np.ndarray) -> bool:
    """Return whether all scales of a flat float32 array are positive and finite."""
    good: bool = _compiled()(scales)
    return good


def keep_scaled(scales: list[np.ndarray], kernel: Kernel, *args: np.ndarray) -> Callable[[], bool]:
    """Return a kept call that first checks up to three flat arrays of scales, and returns whether they are valid."""
    if not scales:
        return kept_call(kernel, *args)
    checked = (*scales, *[_ONE] * (3 - len(scales)), np.zeros(1, np.int64))
    return kept_call_if(check_scales, checked, kernel, *args)
