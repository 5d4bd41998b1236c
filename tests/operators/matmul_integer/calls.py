"""Random calls of matmul_integer."""

import numpy as np
from operators.quantized_matmul.calls import parameter
from samples import Sample, laid_out, quantized


def random_call(rng: np.random.Generator) -> Sample:
    types = [np.dtype(t) for t in rng.choice(["int8", "uint8"], 2)]
    rows, columns = (int(n) for n in rng.integers(1, 80, 2))
    depth = int(rng.choice([0, 1, 2, 15, 31, 32, 33, 63, 64, 100, 255, 257]))
    batch = ((), (2,), (3, 2))[rng.integers(3)]
    a_batch = tuple(n if rng.random() < 0.7 else 1 for n in batch)[int(rng.integers(0, len(batch) + 1)) :]
    args = (
        laid_out(rng, quantized(rng, (*a_batch, rows, depth), types[0])),
        parameter(rng, a_batch, rows, True, types[0]),
        laid_out(rng, quantized(rng, (*batch, depth, columns), types[1])),
        parameter(rng, batch, columns, False, types[1]),
    )
    return Sample("matmul_integer", args, {"out_dtype": rng.choice(["int32", "int64"])})
