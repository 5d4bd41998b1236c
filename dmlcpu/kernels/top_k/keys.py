"""Keys: unsigned integers as wide as the element whose order is the wanted order, greatest first.

One kernel a width then serves every type and both directions, and a tie is an equal key. NaNs get one key above
+inf, both zeros the same; the smallest elements are found under complemented keys.

The map is one line of arithmetic with five constants, so that one vectorised loop serves floats and integers: take
the magnitude; negate it if the sign is set; flip the sign bit, so that order is unsigned, or all others, so that it is
reversed. Integers have no sign to take away: their `mask` and `positive` are all ones.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from dmlcpu.runtime.jit import device

UNSIGNED, SIGNED, FLOAT = 0, 1, 2


@functools.cache
def key_codes(kind: int, width: int, infinity: int, largest: bool) -> NDArray[np.unsignedinteger]:
    """Return what `key_of` needs, for elements of `width` bytes: mask, positive, infinity, flip and the key of NaN.

    `infinity`: the bits of +inf in a float of that width.
    """
    ones = (1 << 8 * width) - 1
    sign = ones ^ (ones >> 1)
    flip = 0 if kind == UNSIGNED else sign
    magnitude, limit = (ones >> 1, infinity) if kind == FLOAT else (ones, ones)
    flip, nan = (flip, ones) if largest else (flip ^ ones, 0)
    return np.array([magnitude, magnitude, limit, flip, nan], f"u{width}")


@device
def key_of(bits, mask, positive, infinity, flip, nan):
    """Return the key of one element; all arguments and the result have the key's type."""
    word = type(bits)
    magnitude = word(bits & mask)
    value = word(word(0) - magnitude) if bits > positive else magnitude
    return nan if magnitude > infinity else word(value ^ flip)


@device
def load_keys(x, start, step, n, codes, keys):
    """Write the keys of x[start], x[start + step], ... to keys[:n]. x, codes, keys: words of one width."""
    mask, positive, infinity, flip, nan = codes[0], codes[1], codes[2], codes[3], codes[4]
    if step == 1:
        row = x[start : start + n]
        for i in range(n):
            keys[i] = key_of(row[i], mask, positive, infinity, flip, nan)
    else:
        for i in range(n):
            keys[i] = key_of(x[start + i * step], mask, positive, infinity, flip, nan)


@device
def write_row(x, start, step, order, k, values, v, v_step, indices, i, i_step, words):
    """Write the elements x[start + order[j] * step] and the numbers order[j], j < k, to their output sequences.

    indices: uint32 words, `words` (1 or 2) an index; the low word comes first.
    """
    for j in range(k):
        position = order[j]
        # Unsigned numbers spare the question whether an index counts from the end.
        values[np.uintp(v + j * v_step)] = x[np.uintp(start + position * step)]
        low = np.uintp(i + j * i_step)
        indices[low] = position & 0xFFFFFFFF
        if words == 2:
            indices[low + np.uintp(1)] = position >> 32
