"""Awkward data for every test: types, values, memory layouts, and random calls of the three operators."""

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import dmlcpu
from dmlcpu import reference

INTEGERS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
TOP_K_TYPES = [*FLOATS, np.dtype(bool), *INTEGERS]
NUMERIC_TYPES = [*TOP_K_TYPES, *COMPLEX]
# What can be overwritten but not reduced: strings, dates, records (packed ones too), raw bytes, long doubles.
OTHER_TYPES = [np.dtype(t) for t in ("S5", "U3", "M8[s]", "m8[ns]", "V3", "V16", "u1,f4", "i4,i4", "g")]
INDEX_TYPES = [np.dtype(t) for t in (np.int64, np.int32, np.uint64, np.uint32)]

THREADS = (1, 2, 5)


def random_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Any bits at all: every NaN, subnormal number and extreme turns up."""
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    if dtype.kind == "b":
        raw &= 1
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape).copy()


def few_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Small numbers, so that there are ties, zeros of both signs, and sums that do not overflow."""
    values = rng.integers(-2, 3, shape)
    if dtype in FLOATS or dtype in COMPLEX:
        return (values * rng.choice([-0.5, 0.5], shape)).astype(dtype)
    return values.astype(dtype)


def specials(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """NaNs of both signs, infinities, zeros; for integers the extremes and their neighbours."""
    if dtype in FLOATS:
        pool = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0]).astype(dtype)
    elif dtype in INTEGERS:
        limits = np.iinfo(dtype)
        pool = np.array([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], dtype)
    else:
        pool = random_bits(rng, (4,), dtype)
    return pool[rng.integers(0, pool.size, shape)]


DISTRIBUTIONS: dict[str, Callable[..., np.ndarray]] = {
    "random bits": random_bits,
    "few values": few_values,
    "specials": specials,
}


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Draw an array of one of the distributions that the type has."""
    names = list(DISTRIBUTIONS) if dtype in NUMERIC_TYPES else ["random bits"]
    return DISTRIBUTIONS[names[rng.integers(len(names))]](rng, shape, dtype)


def read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


def strided(x: np.ndarray) -> np.ndarray:
    """Every second element of a larger array, along every axis."""
    y = np.zeros([2 * n for n in x.shape], x.dtype)[tuple(slice(None, None, 2) for _ in x.shape)]
    y[...] = x
    return y


def reversed_in_memory(x: np.ndarray) -> np.ndarray:
    flip = tuple(slice(None, None, -1) for _ in x.shape)
    return x[flip].copy()[flip]


def misaligned(x: np.ndarray) -> np.ndarray:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    y = raw[1 : 1 + x.nbytes].view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


def swapped(x: np.ndarray) -> np.ndarray:
    return x.astype(x.dtype.newbyteorder()) if x.dtype.kind in "iufc" else x


def broadcast(x: np.ndarray) -> np.ndarray:
    """Zero strides along the first axis. This one changes the values."""
    return np.broadcast_to(x[:1], x.shape) if x.ndim and x.shape[0] else x


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": strided,
    "negative strides": reversed_in_memory,
    "read-only": read_only,
    "zero strides": broadcast,
    "misaligned": misaligned,
    "byte-swapped": swapped,
}


def laid_out(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    names = list(LAYOUTS)
    return LAYOUTS[names[rng.integers(len(names))]](x) if x.ndim else x


@dataclasses.dataclass
class Call:
    """A call of an operator whose result `check` compares with the reference's, bit for bit."""

    operator: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def expected(self) -> tuple[np.ndarray, ...]:
        return as_tuple(getattr(reference, self.operator)(*self.args, **self.kwargs))

    def run(self, **more: Any) -> tuple[np.ndarray, ...]:
        return as_tuple(getattr(dmlcpu, self.operator)(*self.args, **self.kwargs, **more))


def as_tuple(result: Any) -> tuple[np.ndarray, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def assert_same_bits(found, expected, case: str = "") -> None:
    """Compare the arrays of two tuples; `case` begins the message."""
    for mine, right in zip(found, expected, strict=True):
        right = right.astype(right.dtype.newbyteorder("="))
        assert mine.dtype == right.dtype, f"{case}\n{mine.dtype} is not {right.dtype}"
        assert mine.shape == right.shape, f"{case}\n{mine.shape} is not {right.shape}"
        assert mine.tobytes() == right.tobytes(), f"{case}\nfound\n{mine}\nexpected\n{right}"


def random_shape(rng: np.random.Generator, most: int, dimensions: int) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, most + 1, dimensions))


def random_top_k(rng: np.random.Generator) -> Call:
    dtype = TOP_K_TYPES[rng.integers(len(TOP_K_TYPES))]
    dimensions = int(rng.integers(1, 9)) if rng.random() < 0.2 else int(rng.integers(1, 4))
    shape = random_shape(rng, {1: 600, 2: 60, 3: 14}.get(dimensions, 3), dimensions)
    axis = int(rng.integers(-dimensions, dimensions))
    n = shape[axis]
    k = int(rng.integers(0, n + 1))
    x = laid_out(rng, values(rng, shape, dtype))
    index_type = INDEX_TYPES[rng.integers(4)]
    return Call("top_k", (x, k), {"axis": axis, "largest": bool(rng.integers(2)), "index_dtype": index_type})


def random_scatter_nd(rng: np.random.Generator) -> Call:
    reduction = str(rng.choice(["none", "none", "add", "mul", "min", "max"]))
    types = [*NUMERIC_TYPES, *OTHER_TYPES] if reduction == "none" else NUMERIC_TYPES
    types = [t for t in types if t.kind != "c"] if reduction in ("min", "max") else types
    dtype = types[rng.integers(len(types))]
    dimensions = int(rng.integers(1, 6))
    shape = random_shape(rng, 6, dimensions)
    coordinates = int(rng.integers(0, dimensions + 1))
    outer = random_shape(rng, 8, int(rng.integers(0, 3)))
    mode = str(rng.choice(["raise", "drop", "clip"]))
    index_type = INDEX_TYPES[rng.integers(4)] if rng.random() < 0.8 else np.dtype(np.int8)
    signed = index_type.kind == "i"
    sizes = np.array(shape[:coordinates], np.int64)
    beyond = 0 if mode == "raise" else 2
    low = -sizes - beyond if signed else 0 * sizes
    indices = rng.integers(low, sizes + beyond, (*outer, coordinates)).astype(index_type)
    updates = values(rng, outer + shape[coordinates:], dtype)
    if outer:  # one tuple, repeated along itself, is another tuple
        indices = laid_out(rng, indices)
    arguments = (laid_out(rng, values(rng, shape, dtype)), indices, laid_out(rng, updates))
    return Call("scatter_nd", arguments, {"reduction": reduction, "mode": mode})


def random_quantized_matmul(rng: np.random.Generator) -> Call:
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
    return Call("quantized_matmul", args, {} if y_zero is not None else {"out_dtype": types[2]})


def quantized(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Random bytes, or the one extreme everywhere that makes the largest sums."""
    limits = np.iinfo(dtype)
    if rng.random() < 0.2:
        return np.full(shape, rng.choice([limits.min, limits.max]), dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def parameter(
    rng: np.random.Generator, batch: tuple[int, ...], length: int, rows: bool, zero_of: np.dtype | None = None
) -> np.ndarray | None:
    """A scale, or the zero point of a type (or None), in one of the shapes allowed."""
    matrix = (length, 1) if rows else (1, length)
    shape = ((), (length,), matrix, (*batch, *matrix))[rng.integers(4)]
    if zero_of is None:
        return np.asarray(rng.uniform(1e-3, 2, shape)).astype(rng.choice(["float32", "float16"]))
    return None if rng.random() < 0.2 else np.asarray(quantized(rng, shape, zero_of))


RANDOM_CALLS = (random_top_k, random_scatter_nd, random_quantized_matmul)
