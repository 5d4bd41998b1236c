"""float16 and bfloat16, given as bits: each operation is done in float32 and rounded immediately, ties to even.

Numba's CPU target cannot load a float16 (numba#4402). The conversions are written here, because Numba's call a library
routine that is missing on processors without an instruction for them.
"""

import numpy as np

from dmlcpu.runtime.jit import device

FLOAT16_NAN, BFLOAT16_NAN = 0x7E00, 0x7FC0


@device
def float16_to_float32(bits):
    """Return the float32 of a float16 given as uint32; exact."""
    sign = (bits & np.uint32(0x8000)) << np.uint32(16)
    magnitude = (bits & np.uint32(0x7FFF)) << np.uint32(13)
    if magnitude >= np.uint32(0x7C00 << 13):  # infinities and NaNs have the greatest exponent in both types
        return np.uint32(sign | magnitude | np.uint32(0x7F800000)).view(np.float32)
    # Read as a float32, the exponent is 112 too small; multiplying corrects subnormal numbers as well.
    value = np.uint32(magnitude).view(np.float32) * np.float32(2.0**112)
    return np.uint32(np.float32(value).view(np.uint32) | sign).view(np.float32)


@device
def float32_to_float16(value):
    """Return the bits of the nearest float16, ties to even; any NaN becomes the quiet one."""
    bits = np.float32(value).view(np.uint32)
    sign = (bits >> np.uint32(16)) & np.uint32(0x8000)
    magnitude = np.uint32(bits & np.uint32(0x7FFFFFFF))
    if magnitude > np.uint32(0x7F800000):
        return np.uint32(FLOAT16_NAN)
    if magnitude >= np.uint32(0x477FF000):  # 65520, halfway between the greatest float16 and 65536
        return np.uint32(sign | np.uint32(0x7C00))
    if magnitude < np.uint32(0x38800000):  # 2**-14: the result is subnormal
        # Next to 0.5 a float32 has the spacing of float16's subnormal numbers: the addition rounds.
        shifted = magnitude.view(np.float32) + np.float32(0.5)
        return np.uint32(sign | (np.float32(shifted).view(np.uint32) - np.uint32(0x3F000000)))
    odd = (magnitude >> np.uint32(13)) & np.uint32(1)
    rounded = magnitude + np.uint32(0xFFF) + odd - np.uint32(0x38000000)
    return np.uint32(sign | (rounded >> np.uint32(13)))


@device
def bfloat16_to_float32(bits):
    """Return the float32 of a bfloat16 given as uint32; exact."""
    return np.uint32(bits << np.uint32(16)).view(np.float32)


@device
def float32_to_bfloat16(value):
    """Return the bits of the nearest bfloat16, ties to even; any NaN becomes the quiet one."""
    if value != value:
        return np.uint32(BFLOAT16_NAN)
    bits = np.float32(value).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint32((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))
