"""Requantization: exact integer sums of products become the output's bytes, in the one order of roundings promised."""

import numpy as np

from dmlcpu.runtime.jit import device

# Adding and taking away 1.5 * 2**23 rounds a float32 of at most 2**22 to an integer, ties to even, in any vector unit.
ROUND = np.float32(12582912.0)
# A rounded value beyond this is clipped whatever the zero point, and within it the rounding above is exact.
LIMIT = np.float32(1024.0)


@device
def requantize_row(sums, n, row_sum, a_zero, depth, column_sums, b_zeros, b_zero_step, a_scale, b_scales, b_scale_step,
                   y_scale, y_zero, lowest, highest, y, y_start, y_step):  # fmt: skip
    """Write n outputs of one row. sums: (n,) int64, the sums of a * b without zero points.

    column_sums: (n,) int64; b_zeros: int32 and b_scales: float32, b_zero_step and b_scale_step (0 or 1) apart;
    y: uint8, the low byte of the result whatever its sign.
    """
    for j in range(n):
        b_zero = np.int64(b_zeros[j * b_zero_step])
        # sum (a - a_zero) (b - b_zero) = sum ab - b_zero sum a - a_zero sum b + depth a_zero b_zero
        exact = sums[j] - b_zero * row_sum - a_zero * (column_sums[j] - depth * b_zero)
        multiplier = np.float32(np.float32(a_scale * b_scales[j * b_scale_step]) / y_scale)
        value = np.float32(np.float32(exact) * multiplier)
        # Scales whose product overflows make the multiplier infinite; zero stays zero all the same.
        value = np.float32(0.0) if exact == 0 else value
        value = min(max(value, -LIMIT), LIMIT)
        rounded = np.int32((value + ROUND) - ROUND) + y_zero
        y[y_start + j * y_step] = min(max(rounded, lowest), highest)
