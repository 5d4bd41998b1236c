"""Keys: unsigned integers as wide as the element whose order is the wanted order, greatest first.

One kernel a width then serves every type and both directions, and a tie is an equal key. NaNs get one key above
+inf, both zeros the same; the smallest elements are found under complemented keys.
"""

import numpy as np

from dmlcpu.runtime.jit import device

UNSIGNED, SIGNED, FLOAT = 0, 1, 2


@device
def load_keys(x, start, step, n, kind, infinity, largest, keys):
    """Write the keys of x[start], x[start + step], ... to keys[:n].

    x, keys: unsigned words of one width; infinity: the bits of +inf in a float of that width.
    """
    # Numba widens to 64 bits and stores the low ones: the complement, taken in 64 bits, is right in any width.
    sign = np.uint64(1) << np.uint64(8 * keys.itemsize - 1)
    flip = np.uint64(0) if largest else ~np.uint64(0)
    if kind == FLOAT:
        greatest_number = np.uint64(infinity)
        for i in range(n):
            bits = np.uint64(x[start + i * step])
            magnitude = bits & (sign - np.uint64(1))
            key = ~bits if bits & sign else bits | sign
            if magnitude == 0:
                key = sign
            if magnitude > greatest_number:
                key = ~np.uint64(0)
            keys[i] = key ^ flip
    else:
        flip ^= sign if kind == SIGNED else np.uint64(0)
        for i in range(n):
            keys[i] = np.uint64(x[start + i * step]) ^ flip


@device
def write_row(x, start, step, order, k, values, v, v_step, indices, i, i_step, words):
    """Write the elements x[start + order[j] * step] and the numbers order[j], j < k, to their output sequences.

    indices: uint32 words, `words` (1 or 2) an index; the low word comes first.
    """
    for j in range(k):
        position = order[j]
        values[v + j * v_step] = x[start + position * step]
        indices[i + j * i_step] = position & 0xFFFFFFFF
        if words == 2:
            indices[i + j * i_step + 1] = position >> 32
