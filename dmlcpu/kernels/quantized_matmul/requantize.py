"""Requantization: what exact sums are multiplied by; the rest of it is one vector operation, in runtime/panels.py."""

import numpy as np

from dmlcpu.runtime.jit import device

GREATEST = np.finfo(np.float32).max


@device
def multiplier(a_scale, b_scale, y_scale):
    """Return what a sum is multiplied by.

    Scales whose product overflows would make it infinite, and then zero times it NaN; the greatest number makes zero
    of zero, and of everything else what is clipped anyway.
    """
    return min(np.float32(np.float32(a_scale * b_scale) / y_scale), GREATEST)
