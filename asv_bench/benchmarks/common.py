"""The tables of shapes, and the data for each."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class TopKCase:
    shape: tuple[int, ...]
    k: int
    axis: int = -1
    dtype: str = "float32"
    data: str = "random"

    def __str__(self):
        axis = "" if self.axis == -1 else f" axis {self.axis}"
        return f"{_by(self.shape)} k {self.k}{axis} {self.dtype}{'' if self.data == 'random' else f' {self.data}'}"

    def shrunk(self):
        """Return the same case, small enough for a test."""
        shape = tuple(min(n, 12) for n in self.shape)
        return replace(self, shape=shape, k=min(self.k, shape[self.axis]))

    def inputs(self):
        """Return x."""
        x = _PATTERNS[self.data](self.shape, _dtype(self.dtype))
        return np.ascontiguousarray(x)


@dataclass(frozen=True)
class ScatterNDCase:
    shape: tuple[int, ...]
    updates: int
    coordinates: int = 1
    rows: int | None = None  # updates meet in so many places; None: each has its own
    reduction: str = "none"
    in_place: bool = False
    dtype: str = "float32"
    zipf: bool = False  # the n-th of the rows is met 1/n times as often as the first
    index_type: str = "int64"

    def __str__(self):
        where = "" if self.rows is None else f" on {self.rows} rows{' by Zipf' if self.zipf else ''}"
        how = f"{'' if self.reduction == 'none' else f' {self.reduction}'}{' in place' if self.in_place else ''}"
        slices = "" if self.coordinates == len(self.shape) else f" of {_by(self.shape[self.coordinates :])}"
        index_type = "" if self.index_type == "int64" else f" by {self.index_type}"
        return f"{self.updates}{slices}{where} into {_by(self.shape)}{how} {self.dtype}{index_type}"

    def shrunk(self):
        """Return the same case, small enough for a test; cases of two sizes stay two."""
        shape, updates = tuple(min(n, 20) for n in self.shape), 8 + len(str(self.updates))
        return replace(self, shape=shape, updates=updates, rows=None if self.rows is None else 4)

    def inputs(self):
        """Return x, indices, updates."""
        rng = np.random.default_rng(0)
        places = self.shape[: self.coordinates]
        space = int(np.prod(places))
        if self.rows is None:
            flat = rng.permutation(space)[: self.updates]
        else:
            weights = 1 / np.arange(1, self.rows + 1) if self.zipf else np.ones(self.rows)
            flat = rng.permutation(self.rows)[rng.choice(self.rows, self.updates, p=weights / weights.sum())]
        indices = np.stack(np.unravel_index(flat, places), axis=-1).astype(self.index_type)
        x = rng.random(self.shape, np.float32).astype(_dtype(self.dtype))
        updates = rng.random((self.updates, *self.shape[self.coordinates :]), np.float32)
        return x, indices, updates.astype(x.dtype)


@dataclass(frozen=True)
class AtCase:
    """NumPy's ufunc.at, or an assignment, in place."""

    shape: tuple[int, ...]
    updates: int
    coordinates: int = 1
    reduction: str = "add"  # "none" assigns
    dtype: str = "float32"

    def __str__(self):
        slices = "" if self.coordinates == len(self.shape) else f" of {_by(self.shape[self.coordinates :])}"
        how = {"add": "add.at", "max": "maximum.at", "none": "assign"}[self.reduction]
        return f"{how} {self.updates}{slices} into {_by(self.shape)} {self.dtype}"

    def shrunk(self):
        """Return the same case, small enough for a test."""
        return replace(self, shape=tuple(min(n, 20) for n in self.shape), updates=8 + len(str(self.updates)))

    def inputs(self):
        """Return x, indices, updates."""
        rng = np.random.default_rng(0)
        indices = tuple(rng.integers(0, n, self.updates) for n in self.shape[: self.coordinates])
        updates = rng.random((self.updates, *self.shape[self.coordinates :]), np.float32)
        return np.zeros(self.shape, self.dtype), indices if len(indices) > 1 else indices[0], updates.astype(self.dtype)


class MatmulInputs(NamedTuple):
    a: np.ndarray  # (M, K)
    a_scale: np.ndarray  # (1, 1) or (M, 1)
    a_zero_point: np.ndarray
    b: np.ndarray  # (K, N)
    b_scale: np.ndarray  # (1, 1) or (1, N)
    b_zero_point: None
    y_scale: np.ndarray  # (1, 1) or (M, 1)
    y_zero_point: np.ndarray


@dataclass(frozen=True)
class QuantizedMatmulCase:
    m: int
    k: int
    n: int
    types: tuple[str, str, str] = ("uint8", "int8", "uint8")  # of a, b and y
    constant_b: bool = True  # weights: packed once, where a contender can
    per_row: bool = False
    per_column: bool = True
    batch: tuple[int, ...] = ()

    def __str__(self):
        types = "*".join(_short(t) for t in self.types[:2])
        rows = f"{' per row' if self.per_row else ''}{' per column' if self.per_column else ''}"
        b = "constant" if self.constant_b else "fresh"
        batch = "".join(f"{n} of " for n in self.batch)
        return f"{batch}{self.m}x{self.k}x{self.n} {types} to {_short(self.types[2])}{rows or ' per tensor'} {b} B"

    def shrunk(self):
        """Return the same case, small enough for a test."""
        return replace(self, batch=self.batch and (2,), m=min(self.m, 9), k=min(self.k, 40), n=min(self.n, 21))

    def inputs(self):
        rng = np.random.default_rng(0)
        a = rng.integers(
            np.iinfo(self.types[0]).min, np.iinfo(self.types[0]).max, (*self.batch, self.m, self.k), self.types[0]
        )
        # Weights of 7 bits: on CPUs without VNNI, peers add pairs of products in 16 bits and saturate beyond.
        weights = (-64, 64) if self.types[1] == "int8" else (0, 128)
        b = rng.integers(*weights, (*self.batch, self.k, self.n), self.types[1])
        rows = (self.m, 1) if self.per_row else (1, 1)
        columns = (1, self.n) if self.per_column else (1, 1)
        a_scale, b_scale = (rng.uniform(0.01, 0.02, shape).astype(np.float32) for shape in (rows, columns))
        # With this scale most of y is neither the least nor the greatest number of its type.
        y_scale = rng.uniform(1, 2, rows).astype(np.float32) * np.float32(0.01 * self.k**0.5)
        zero_points = [np.full(rows, 128 if t == "uint8" else 3, t) for t in (self.types[0], self.types[2])]
        return MatmulInputs(a, a_scale, zero_points[0], b, b_scale, None, y_scale, zero_points[1])


class IntegerInputs(NamedTuple):
    a: np.ndarray  # (M, K)
    a_zero_point: None
    b: np.ndarray  # (K, N)
    b_zero_point: None


@dataclass(frozen=True)
class MatmulIntegerCase:
    m: int
    k: int
    n: int
    types: tuple[str, str] = ("uint8", "int8")  # of a and b
    constant_b: bool = True

    def __str__(self):
        types = "*".join(_short(t) for t in self.types)
        return f"{self.m}x{self.k}x{self.n} {types} to s32 {'constant' if self.constant_b else 'fresh'} B"

    def shrunk(self):
        """Return the same case, small enough for a test."""
        return replace(self, m=min(self.m, 9), k=min(self.k, 40), n=min(self.n, 21))

    def inputs(self):
        matrices = QuantizedMatmulCase(self.m, self.k, self.n, (*self.types, "int8")).inputs()
        return IntegerInputs(matrices.a, None, matrices.b, None)


def _dtype(name):
    if name == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401  # NumPy knows the name from then on
        except ImportError:
            raise NotImplementedError("ml_dtypes is not installed") from None
    return np.dtype(name)


def _random(shape, dtype):
    rng = np.random.default_rng(0)
    if dtype.kind in "iu":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape, np.float32).astype(dtype)


def _organ_pipe(shape, dtype):
    n = shape[-1]
    return np.broadcast_to(-np.abs(np.arange(n) - n // 2).astype(dtype), shape)


_PATTERNS = {
    "random": _random,
    "sorted": lambda shape, dtype: np.sort(_random(shape, dtype), axis=-1),
    "reversed": lambda shape, dtype: np.sort(_random(shape, dtype), axis=-1)[..., ::-1],
    "all equal": np.ones,
    "two values": lambda shape, dtype: (_random(shape, dtype) > 0).astype(dtype),
    "all NaN": lambda shape, dtype: np.full(shape, np.nan, dtype),
    "organ pipe": _organ_pipe,
}


def _by(shape):
    return "x".join(map(str, shape))


def _short(dtype):
    return {"uint8": "u8", "int8": "s8"}[dtype]


def _table(*cases):
    return {str(case): case for case in cases}


TOP_K = _table(
    TopKCase((1_000, 10_000), 10),
    TopKCase((64, 32_000), 50),
    TopKCase((200, 151_936), 40),
    TopKCase((10_000, 1_000), 100),
    TopKCase((1_000, 1_000), 500),
    TopKCase((1_000, 1_000), 1_000),
    TopKCase((2_000, 2_048), 2_048),
    TopKCase((100_000, 64), 8),
    TopKCase((1_000_000, 8), 2),
    TopKCase((10_000, 1_000), 10, axis=0),
    TopKCase((32, 500, 300), 5, axis=1),
    TopKCase((1, 1_000_000), 10),
    TopKCase((1, 10_000_000), 1_000),
    TopKCase((1, 100_000_000), 100),
)
TOP_K_TYPES = _table(
    *(
        TopKCase((1_000, 10_000), 10, dtype=name)
        for name in (
            "float16",
            "bfloat16",
            "float64",
            *(f"{u}int{bits}" for bits in (8, 16, 32, 64) for u in ("", "u")),
        )
    )
)
TOP_K_DATA = _table(*(TopKCase((1_000, 10_000), 10, data=name) for name in _PATTERNS if name != "random"))

SCATTER_ND = _table(
    ScatterNDCase((50_257, 768), 2_048),
    ScatterNDCase((1_000_000, 64), 10_000),
    ScatterNDCase((4_096, 4_096), 4_000_000, coordinates=2),
    ScatterNDCase((10_000_000,), 5_000_000),
    ScatterNDCase((50_257, 768), 16_384, in_place=True),
    ScatterNDCase((50_257, 768), 16_384, rows=2_000, reduction="add", in_place=True),
    ScatterNDCase((30_000, 256), 100_000, rows=30_000, zipf=True, reduction="add", in_place=True),
    ScatterNDCase((1_000_000,), 4_000_000, rows=1_000, reduction="add", in_place=True),
    ScatterNDCase((1_000,), 20_000_000, rows=1_000, reduction="add", in_place=True),
)
SCATTER_ND_TYPES = _table(
    *(ScatterNDCase((50_257, 768), 2_048, dtype=name) for name in ("uint8", "float16", "float32", "float64")),
    *(
        ScatterNDCase((4_096, 4_096), 4_000_000, coordinates=2, index_type=name)
        for name in ("int64", "uint64", "int32", "uint32")
    ),
)
# Slices of so many elements; how much of 4 Mi elements is updated; how often a place is met; the type of indices.
SCATTER_ND_GRID = _table(
    *(
        ScatterNDCase(
            (2**22 // length, length) if length > 1 else (2**22,),
            2**22 // length // rarity,
            rows=None if repeats == 1 else 2**22 // length // rarity // repeats,
            reduction="none" if repeats == 1 else "add",
            index_type=index_type,
        )
        for length in (1, 16, 256, 4_096)
        for rarity in (2, 64)
        for repeats in (1, 8)
        for index_type in ("int64", "int32")
    )
)

AT = _table(
    AtCase((10_000, 64), 100_000),
    AtCase((50_257, 768), 16_384),
    AtCase((1_000_000,), 1_000_000),
    AtCase((1_000_000,), 1_000_000, dtype="float64"),
    AtCase((1_000_000,), 1_000_000, dtype="int64"),
    AtCase((1_000, 1_000), 1_000_000, coordinates=2),
    AtCase((10_000, 64), 100_000, reduction="max"),
    AtCase((1_000_000,), 1_000_000, reduction="max"),
    AtCase((10_000, 64), 100_000, reduction="none"),
    AtCase((1_000_000,), 1_000_000, reduction="none"),
    AtCase((10_000, 64), 10),
    AtCase((1_000,), 10),
)

_SIZES = [
    (1_024, 1_024, 1_024),
    (2_048, 2_048, 2_048),
    (512, 4_096, 4_096),
    (128, 768, 3_072),
    (384, 1_024, 1_024),
    (16, 4_096, 4_096),
    (1, 4_096, 4_096),
]
QUANTIZED_MATMUL = _table(
    *(QuantizedMatmulCase(*sizes, constant_b=constant_b) for sizes in _SIZES for constant_b in (True, False)),
    QuantizedMatmulCase(128, 64, 128, constant_b=False, per_column=False, batch=(64,)),
)
QUANTIZED_MATMUL_PARAMETERS = _table(
    *(
        QuantizedMatmulCase(512, 512, 512, (a, b, y), per_row=per_row, per_column=per_row)
        for a in ("uint8", "int8")
        for b in ("uint8", "int8")
        for y in ("uint8", "int8")
        for per_row in (False, True)
    )
)

MATMUL_INTEGER = _table(
    *(
        MatmulIntegerCase(*sizes, (a, "int8"), constant_b)
        for a in ("uint8", "int8")
        for sizes in ((1_024, 1_024, 1_024), (1, 4_096, 4_096))
        for constant_b in (True, False)
    )
)

# What PyTorch's programs call.
TORCH = _table(
    TopKCase((64,), 5),
    *(TopKCase((1, n), 50) for n in (1_000, 10_000, 50_257, 151_936)),
    TopKCase((32, 50_257), 50),
    TopKCase((1_000, 1_000), 500),
    ScatterNDCase((50_257, 64), 4_096, rows=2_000, reduction="add", in_place=True),
    ScatterNDCase((50_257, 768), 16_384, rows=2_000, reduction="add", in_place=True),
    ScatterNDCase((50_257, 64), 4_096, rows=2_000, reduction="add", in_place=True, dtype="int64"),
    ScatterNDCase((1_000, 1_000), 100_000, coordinates=2, rows=1_000_000, reduction="add", in_place=True),
    ScatterNDCase((1_000, 1_000), 100_000, coordinates=2, in_place=True),
    ScatterNDCase((50_257, 64), 4_096, in_place=True),
    MatmulIntegerCase(1_024, 1_024, 1_024, ("int8", "int8"), False),
    MatmulIntegerCase(4, 4_096, 4_096, ("int8", "int8"), False),
)

# What is shared among threads, but small enough for the start of the threads to count.
THREADED = _table(
    *(TopKCase((1, n), k) for n in (20_000, 50_000, 151_936, 500_000) for k in (1, 50)),
    TopKCase((64, 32_000), 50),
    TopKCase((1_000, 1_000), 500),
    QuantizedMatmulCase(100, 768, 2_304),
    QuantizedMatmulCase(1, 4_096, 4_096),
    QuantizedMatmulCase(128, 768, 3_072, constant_b=False),
    ScatterNDCase((50_257, 768), 2_048),
    ScatterNDCase((1_000_000,), 10_000),
)

# So small that what is timed is everything around the work; of the sizes of the operators' own first examples.
TINY = {
    "top_k": TopKCase((1, 64), 8),
    "scatter_nd": ScatterNDCase((64,), 8),
    "quantized_matmul": QuantizedMatmulCase(16, 64, 64),
    "matmul_integer": MatmulIntegerCase(16, 64, 64),
}

# What several Python threads call, in turns.
MIXED = (
    *TINY.values(),
    TopKCase((64, 32_000), 50),
    ScatterNDCase((1_000_000,), 10_000),
    QuantizedMatmulCase(100, 768, 2_304),
)
