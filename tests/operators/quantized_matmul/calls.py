"""Random calls of quantized_matmul."""

import numpy as np
from samples import Sample, laid_out, quantized


def random_call(rng: np.random.Generator) -> Sample:
    types = [np.dtype(t) for t in rng.choice(["int8", "uint8"], 3)]
    rows, columns = (int(n) for n in rng.integers(1, 80, 2))
    depth = int(rng.choice([0, 1, 2, 15, 31, 32, 33, 63, 64, 100, 255, 257]))
    batch = ((), (2,), (3, 2))[rng.integers(3)]
    a_batch = tuple(n if rng.random() < 0.7 else 1 for n in batch)[int(rng.integers(0, len(batch) + 1)) :]
    a, b = quantized(rng, (*a_batch, rows, depth), types[0]), quantized(rng, (*batch, depth, columns), types[1])
    y_zero = parameter(rng, batch, rows, True, types[2])
    args = (
        laid_out(rng, a),
        parameter(rng, a_batch, rows, True),
        parameter(rng, a_batch, rows, True, types[0]),
        laid_out(rng, b),
        parameter(rng, batch, columns, False),
        parameter(rng, batch, columns, False, types[1]),
        parameter(rng, batch, rows, True) * np.float32(max(depth, 1) * 60),
        y_zero,
    )
    return Sample("quantized_matmul", args, {} if y_zero is not None else {"out_dtype": types[2]})


def parameter(
    rng: np.random.Generator, batch: tuple[int, ...], length: int, rows: bool, zero_of: np.dtype | None = None
) -> np.ndarray | None:
    """A scale, or the zero point of a type (or None), in one of the shapes allowed."""
    matrix = (length, 1) if rows else (1, length)
    shape = ((), (length,), matrix, (*batch, *matrix))[rng.integers(4)]
    if zero_of is None:
        return np.asarray(rng.uniform(1e-3, 2, shape)).astype(rng.choice(["float32", "float16"]))
    return None if rng.random() < 0.2 else np.asarray(quantized(rng, shape, zero_of))
