"""Compiling kernels ahead of time, into the cache, so that no later process waits for them."""

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from dmlcpu.batch.faults import extra

_INTEGERS = tuple(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u"))
_NUMBERS = ("bool", *_INTEGERS, "float16", "bfloat16", "float32", "float64")

# The data types each operator is compiled for.
TYPES = {
    "top_k": _NUMBERS,
    "scatter_nd": _NUMBERS,
    "quantized_matmul": ("int8", "uint8"),
}


def chosen(ops: Sequence[str], types: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs (operator, type) of these operators and types that there are."""
    return [(op, name) for op in ops for name in TYPES[op] if name in types]


def warm_up(cases: Sequence[tuple[str, str]]) -> str:
    """Compile what the cases need, with a progress bar where stderr is a terminal; return what was done, in words."""
    tqdm = extra("tqdm").tqdm

    from dmlcpu.config import cache_folder
    from dmlcpu.runtime.compilation import can_compile
    from dmlcpu.runtime.threads import limits

    if not can_compile():
        return "nothing to compile: compilation is switched off (NUMBA_DISABLE_JIT), the reference gives all results"
    start = time.perf_counter()
    compiled, cached = _counts()
    with tqdm(cases, desc="Compiling", unit="case", disable=None, leave=False) as progress:
        for op, name in progress:
            progress.set_postfix_str(f"{op} {name}")
            # Every element being worth a share, kernels are compiled, and what launches them on threads.
            with limits(2, grain=1):
                _CALLS[op](name)
    compiled, cached = (after - before for after, before in zip(_counts(), (compiled, cached), strict=True))
    seconds = time.perf_counter() - start
    return f"compiled {compiled} kernels in {seconds:.1f} s, {cached} were in the cache already: {cache_folder()}"


def _counts() -> tuple[int, int]:
    """Return how many kernels this process has compiled, and how many it has found in the cache."""
    from dmlcpu.kernels import registry
    from dmlcpu.runtime.threads import layer

    kernels = [entry.kernel.share for entry in registry.available()]
    statistics = [compiled.stats for compiled in (*layer().compiled(), *kernels)]
    return (
        sum(sum(each.cache_misses.values()) for each in statistics),
        sum(sum(each.cache_hits.values()) for each in statistics),
    )


def _top_k(name: str) -> None:
    import numpy as np

    from dmlcpu.kernels import registry
    from dmlcpu.operators.top_k import allocate, execute

    x = np.zeros((128, 128), _array_type(name))
    for entry in registry.available("top_k", "select"):
        for axis in (0, 1):
            out = allocate(x, 1, axis, np.dtype(np.int64), None)
            with contextlib.suppress(LookupError):  # a kernel takes sequences along one axis or the other, or both
                execute(x, 1, axis, True, *out, kernel=entry.name)


def _scatter_nd(name: str) -> None:
    import numpy as np

    from dmlcpu.operators.scatter_nd import execute

    x = np.zeros(64, _array_type(name))
    indices, updates = np.arange(0, 64, 4)[:, None], np.zeros(16, x.dtype)
    for reduction, kernel in itertools.product(("none", "add"), ("apply", "apply_buckets")):
        execute(x, indices, updates, np.empty_like(x), reduction=reduction, kernel=kernel)


def _quantized_matmul(name: str) -> None:
    import numpy as np

    from dmlcpu.operators import pack_b, quantized_matmul

    a = np.zeros((96, 64), name)
    for b_type in TYPES["quantized_matmul"]:
        b = np.zeros((64, 128), b_type)
        for rows, given in ((a, pack_b(b)), (a[:1], b)):  # a few rows have a kernel of their own
            quantized_matmul(rows, 1.0, 0, given, 1.0, 0, 1.0, 0, out_dtype=name)


def _array_type(name: str) -> Any:
    return "float16" if name == "bfloat16" else name  # one kernel: 16-bit words, and an argument that tells them apart


_CALLS: dict[str, Callable[[str], None]] = {
    "top_k": _top_k,
    "scatter_nd": _scatter_nd,
    "quantized_matmul": _quantized_matmul,
}
