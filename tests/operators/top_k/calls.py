"""Random calls of top_k."""

import numpy as np
from samples import INDEX_TYPES, TOP_K_TYPES, Call, laid_out, random_shape, values


def random_call(rng: np.random.Generator) -> Call:
    dtype = TOP_K_TYPES[rng.integers(len(TOP_K_TYPES))]
    dimensions = int(rng.integers(1, 9)) if rng.random() < 0.2 else int(rng.integers(1, 4))
    shape = random_shape(rng, {1: 600, 2: 60, 3: 14}.get(dimensions, 3), dimensions)
    axis = int(rng.integers(-dimensions, dimensions))
    n = shape[axis]
    k = int(rng.integers(0, n + 1))
    x = laid_out(rng, values(rng, shape, dtype))
    index_type = INDEX_TYPES[rng.integers(4)]
    return Call("top_k", (x, k), {"axis": axis, "largest": bool(rng.integers(2)), "index_dtype": index_type})
