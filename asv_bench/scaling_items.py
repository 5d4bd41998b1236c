"""The calls whose scaling is computed: their data, their plans, and how a plan runs on the data."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

import dmlcpu

SKEW = 1.1  # in Zipf's law
# Kinds of data. Nothing: zeros, for which the system provides no memory until they are read.
NOTHING, UNIFORM, ZIPF = "nothing", "uniform", f"Zipf({SKEW})"


@dataclass
class Call:
    """A call of an operator's function, which can make plans for any number of threads."""

    module: Any  # with the function
    given: tuple[Any, ...]  # the arguments of its `request`
    out: Any = None

    @cached_property
    def requested(self):
        return self.module.request(*self.given)

    def plan(self, budget):
        return self.module.prepare(*self.requested[0], budget)

    def runner(self, plan):
        """Return a callable that runs a plan, each time on the same outputs."""
        arrays = self.requested[1]
        outputs = self.module.allocate(plan, arrays, self.out)
        return Run(plan, arrays, outputs if isinstance(outputs, tuple) else (outputs,))


class Run(NamedTuple):
    plan: Any
    arrays: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def __call__(self):
        return self.plan.run(*self.arrays, *self.outputs)


@dataclass(frozen=True)
class Item:
    """A call that the page shows."""

    name: str
    operator: str  # the folder of its function
    make: Callable[[str], tuple[Any, ...]]  # returns the arguments of `request` for a kind of data
    kinds: tuple[str, ...] = (UNIFORM,)  # of data
    in_place: bool = False
    is_run: bool = True

    def call(self, kind=NOTHING):
        given = self.make(kind)
        module = importlib.import_module(f"dmlcpu.operators.{self.operator}.function")
        return Call(module, given, given[0] if self.in_place else None)


def top_k(rows, n, k, **others):
    def make(kind):
        x = normal((rows, n), kind)
        return x, k, -1, None, None, True, "greatest", None, np.int64, None

    return Item(f"top_k {rows:,} x {n:,}, k {k}", "top_k", make, **others)


def product(m, k, n, packed=True):
    def make(kind):
        a, b = integers((m, k), np.uint8, kind), integers((k, n), np.int8, kind)
        scales = np.full((1, n), 0.01, np.float32)
        b = dmlcpu.pack_b(b) if packed else b
        return a, 0.02, np.uint8(128), b, scales, None, 1.0, np.uint8(128), None, None

    name = f"quantized_matmul {m:,} x {k:,} x {n:,}, {'packed' if packed else 'fresh'} B"
    return Item(name, "quantized_matmul", make)


def scatter(count, rows, width=(), dtype=np.float32, in_place=True):
    def make(kind):
        x, updates = np.zeros((rows, *width), dtype), np.ones((count, *width), dtype)
        return x, places(count, rows, kind), updates, "add", "raise", x if in_place else None

    words = f"{count:,}{f' rows of {width[0]}' if width else f' {np.dtype(dtype)}'}"
    name = f"{'add_at' if in_place else 'scatter_nd add'} {words} into {rows:,}"
    return Item(name, "scatter_nd", make, (UNIFORM, ZIPF), in_place)


def quantize(rows, columns):
    def make(kind):
        return normal((rows, columns), kind), 0.02, np.uint8(128), None, None, None, None

    return Item(f"quantize_linear {rows:,} x {columns:,}", "quantize_linear", make)


def search(queries, vectors, depth, k):
    def make(kind):
        a, among = integers((queries, depth), np.int8, kind), integers((vectors, depth), np.int8, kind)
        return a, dmlcpu.pack_b(among.T), k, *[None] * 5, "largest", "greatest", None, None, None

    return Item(f"matmul_top_k {queries:,} among {vectors:,} x {depth}, k {k}", "matmul_top_k", make)


def normal(shape, kind):
    rng = np.random.default_rng(0)
    return np.zeros(shape, np.float32) if kind == NOTHING else rng.standard_normal(shape, np.float32)


def integers(shape, dtype, kind):
    rng = np.random.default_rng(0)
    return np.zeros(shape, dtype) if kind == NOTHING else rng.integers(-64, 64, shape).astype(dtype)


def places(count, rows, kind):
    """Return the indices of updates. With Zipf's law, the frequent rows are anywhere in the array."""
    rng = np.random.default_rng(0)
    if kind == NOTHING:
        return np.zeros((count, 1), np.int64)
    if kind == UNIFORM:
        return rng.integers(0, rows, (count, 1))
    often = np.cumsum(np.arange(1, rows + 1) ** -SKEW)
    ranks = np.searchsorted(often, rng.random((count, 1)) * often[-1])
    return rng.permutation(rows)[ranks]


ITEMS = {
    item.name: item
    for item in (
        top_k(1_000, 10_000, 10),
        top_k(1, 100_000_000, 50, is_run=False),
        product(1_024, 1_024, 1_024),
        product(16, 4_096, 4_096),
        scatter(250_000, 100_000, (64,), in_place=False),
        scatter(250_000, 100_000, (64,)),
        scatter(8_000_000, 8_000_000, dtype=np.int64),
        scatter(1_000_000, 1_000_000),
        quantize(4_096, 4_096),
        search(1_024, 100_000, 384, 10),
    )
}
