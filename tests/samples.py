"""Awkward data for every test: types, values, memory layouts, and calls to compare with the reference."""

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from dmlcpu.operators import OPERATORS
from dmlcpu.products.packing import PackedMatrix, unpack

INTEGERS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
TOP_K_TYPES = [*FLOATS, np.dtype(bool), *INTEGERS]
NUMERIC_TYPES = [*TOP_K_TYPES, *COMPLEX]
# Types that can be overwritten but not reduced: strings, dates, records (also packed), raw bytes, long doubles.
OTHER_TYPES = [np.dtype(t) for t in ("S5", "U3", "M8[s]", "m8[ns]", "V3", "V16", "u1,f4", "i4,i4", "g")]
INDEX_TYPES = [np.dtype(t) for t in (np.int64, np.int32, np.uint64, np.uint32)]

THREADS = (1, 2, 5)


def random_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Any bits: also every NaN, subnormal number and extreme."""
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
    """NaNs of both signs, infinities, zeros; for integers the extremes and their neighbors."""
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
    y = np.zeros([2 * n for n in x.shape], x.dtype)[(..., *(slice(None, None, 2) for _ in x.shape))]
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


# Kernels never see the other layouts: operators copy such arrays.
KERNEL_LAYOUTS = {name: make for name, make in LAYOUTS.items() if make not in (misaligned, swapped)}


def laid_out(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    names = list(LAYOUTS)
    return LAYOUTS[names[rng.integers(len(names))]](x) if x.ndim else x


@dataclasses.dataclass
class Sample:
    """A call of an operator whose result is compared with the reference's, bit for bit."""

    operator: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def first(self) -> np.ndarray:
        """The first argument, which may be the output, too."""
        return self.args[0] if self.args else next(iter(self.kwargs.values()))

    def expected(self) -> tuple[np.ndarray, ...]:
        kwargs = {
            name: unpack(value) if isinstance(value, PackedMatrix) else value for name, value in self.kwargs.items()
        }
        return as_tuple(OPERATORS[self.operator].reference(*self.args, **kwargs))

    def run(self, **more: Any) -> tuple[np.ndarray, ...]:
        return as_tuple(OPERATORS[self.operator].function(*self.args, **self.kwargs, **more))


def as_tuple(result: Any) -> tuple[np.ndarray, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def assert_same_bits(found, expected, case: str = "") -> None:
    for mine, right in zip(found, expected, strict=True):
        right = right.astype(right.dtype.newbyteorder("="))
        assert mine.dtype == right.dtype, f"{case}\nfound {mine.dtype}, expected {right.dtype}"
        assert mine.shape == right.shape, f"{case}\nfound {mine.shape}, expected {right.shape}"
        assert mine.tobytes() == right.tobytes(), f"{case}\nfound\n{mine}\nexpected\n{right}"


def calls_of_examples(operator: str, dtype: str) -> list[tuple[Sample, str | None]]:
    """Return an operator's examples of a type as calls, with the kernels to use; also for bfloat16."""

    def typed(value: Any) -> Any:
        stands_in = dtype == "bfloat16" and isinstance(value, np.ndarray) and value.dtype == np.float16
        return value.astype(ml_dtypes.bfloat16) if stands_in else value

    return [
        (Sample(operator, (), {name: typed(value) for name, value in arguments.items()}), kernel)
        for arguments, kernel in OPERATORS[operator].examples(dtype)
    ]


def modules_of_calls() -> dict[str, ModuleType]:
    """Return the modules `calls` of the operators' tests, by operator. Each has

    - `random_call(rng)`: any call;
    - `parallel_call(rng)`: a Sample that several threads share if the grain is 1;
    - `large_calls(rng)`: the arguments of calls of more than 2 MiB that run in blocks within 1 MiB;
    - `call_with_results_of(nbytes)`: the arguments of a call whose results have at least `nbytes` bytes each;
    - `call_in_blocks()`: the arguments of a call in many blocks, and memory for more than one of them.
    """
    folder = Path(__file__).parent / "operators"
    names = [name for name in OPERATORS if (folder / name / "calls.py").exists()]
    return {name: importlib.import_module(f"operators.{name}.calls") for name in names}


def large_calls() -> list[tuple[str, dict[str, Any]]]:
    """Return all large calls, as operator and arguments."""
    rng = np.random.default_rng(0)
    return [(name, each) for name, module in modules_of_calls().items() for each in module.large_calls(rng)]


def random_example(rng: np.random.Generator, operator: str) -> Sample:
    """Draw one of an operator's examples, of any type, and give its arrays other layouts."""
    types = OPERATORS[operator].types
    calls = calls_of_examples(operator, types[rng.integers(len(types))])
    call, _ = calls[rng.integers(len(calls))]
    for name, value in call.kwargs.items():
        call.kwargs[name] = laid_out(rng, value) if isinstance(value, np.ndarray) else value
    return call


def random_shape(rng: np.random.Generator, most: int, dimensions: int) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, most + 1, dimensions))


def quantized(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Random bytes, or the one extreme everywhere that makes the largest sums."""
    limits = np.iinfo(dtype)
    if rng.random() < 0.2:
        return np.full(shape, rng.choice([limits.min, limits.max]), dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def zipf(size, count, seed=0):
    """Return indices of a dimension: the n-th is n**1.1 times as rare as the first."""
    weights = np.arange(1, size + 1) ** -1.1
    return np.random.default_rng(seed).choice(size, count, p=weights / weights.sum())
