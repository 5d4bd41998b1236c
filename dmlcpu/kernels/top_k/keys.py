"""Order-preserving keys: unsigned integers as wide as the element, whose order is the wanted order, greatest first.

So one kernel for each width serves all types and both directions, and ties are equal keys. All NaNs have one key, above
+inf; both zeros have one key. The smallest elements have the greatest complemented keys.

The map is one line of arithmetic with four constants, so that one vectorized loop serves floats and integers. It takes
the magnitude, negates it if the sign is set, and flips the sign bit for unsigned order, or all other bits for reversed
order. Integers keep their sign in the magnitude: their `mask` is all ones.
"""

from typing import Any, NamedTuple

import numpy as np

from dmlcpu.runtime.jit import device
from dmlcpu.runtime.records import record

UNSIGNED, SIGNED, FLOAT = 0, 1, 2
KINDS = {"b": UNSIGNED, "u": UNSIGNED, "i": SIGNED, "f": FLOAT}  # by the kind of a data type


class KeyMap(NamedTuple):
    """The constants of the map. In kernels they are as wide as the words they map."""

    mask: Any  # leaves the magnitude of a word; greater words have a sign
    infinity: Any  # the greatest magnitude that is not a NaN
    flip: Any  # the bits to invert at the end
    nan: Any  # the key of NaN


KEY_MAP = record(mask=np.uint64, infinity=np.uint64, flip=np.uint64, nan=np.uint64)


def make_key_map(kind: int, width: int, infinity: int, largest: bool, nan_last: bool) -> KeyMap:
    """Return the map of elements of `width` bytes; infinity: the bits of +inf in a float of that width.

    nan_last: NaN also ranks last among the largest.
    """
    ones = (1 << 8 * width) - 1
    sign = ones ^ (ones >> 1)
    flip = 0 if kind == UNSIGNED else sign
    magnitude, limit = (ones >> 1, infinity) if kind == FLOAT else (ones, ones)
    flip = flip if largest else flip ^ ones
    nan = ones if largest and not nan_last else 0  # no other element has either key
    return KeyMap(mask=magnitude, infinity=limit, flip=flip, nan=nan)


@device
def key_map_of(x, constants):
    """Return the map of a KEY_MAP for words as wide as x's, in registers."""
    word = x.dtype.type
    return KeyMap(word(constants.mask), word(constants.infinity), word(constants.flip), word(constants.nan))


@device
def key_of(bits, key_map):
    """Return the key of one element."""
    word = type(bits)
    magnitude = word(bits & key_map.mask)
    value = word(word(0) - magnitude) if bits > key_map.mask else magnitude
    return key_map.nan if magnitude > key_map.infinity else word(value ^ key_map.flip)


@device
def load_keys(x, start, step, n, key_map, keys):
    """Write the keys of x[start], x[start + step], ... to keys[:n]."""
    if step == 1:
        row = x[start : start + n]
        for i in range(n):
            keys[i] = key_of(row[i], key_map)
    else:
        for i in range(n):
            keys[i] = key_of(x[start + i * step], key_map)
