"""Every kernel of the integer sums that this machine can run, over the shapes where tiles and blocks end."""

import functools
import itertools

import numpy as np
import pytest
from samples import KERNEL_LAYOUTS, THREADS, assert_same_bits, quantized

import dmlcpu
from dmlcpu import reference
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.cut import fits_few_rows
from dmlcpu.kernels.gemm.work import Problem
from dmlcpu.runtime.threads import use_budget

PRODUCTS = (
    # batch, M, K, N
    ((), 1, 1, 1),
    ((), 13, 70, 33),
    ((2, 3), 5, 257, 40),
    ((), 40, 1_100, 70),
    ((), 3, 0, 5),
    ((), 2, 40_001, 34),  # sums exceed int32
    ((2,), 16, 15, 130),
    ((), 1, 300, 65),
    ((), 3, 70, 2_100),  # more columns than are prepared together
)


KERNELS = [entry.name for entry in registry.available("matmul_integer", "dot")]
# What writes int64 is the same text in all of them.
CASES = [(name, "int32") for name in KERNELS] + [(name, "int64") for name in KERNELS if name.endswith("generic")]


@functools.lru_cache(maxsize=1)  # the kernels for the same types follow one another
def products(signs):
    """Return a name, the arguments of a call, b in rows side by side and the exact product of each case."""
    rng, layouts = np.random.default_rng([*f"{signs}".encode()]), itertools.cycle(KERNEL_LAYOUTS.values())
    cases = []
    for (batch, rows, depth, columns), extreme in itertools.product(PRODUCTS, (False, True)):
        a = quantized(rng, (*batch, rows, depth), np.dtype(signs[0]))
        b = quantized(rng, (*batch, depth, columns), np.dtype(signs[1]))
        if extreme:
            a[...], b[...] = np.iinfo(a.dtype).max, np.iinfo(b.dtype).max
        zeros = quantized(rng, (rows, 1), a.dtype), quantized(rng, (1, columns), b.dtype)
        a, b = next(layouts)(a), next(layouts)(b)
        expected = reference.matmul_integer(a, zeros[0], b, zeros[1], out_dtype="int64")
        name = f"batch {batch}, {rows=}, {depth=}, {columns=}, {extreme=}"
        cases.append((name, (a, zeros[0], b, zeros[1]), b.copy(), expected))
    return cases


@pytest.mark.parametrize(("kernel", "sums"), CASES)
@pytest.mark.parametrize("signs", list(itertools.product(["int8", "uint8"], repeat=2)), ids="-".join)
def test_every_kernel(signs, kernel, sums):
    rng = np.random.default_rng([*f"{kernel} {signs} {sums}".encode()])  # other numbers of threads each
    runs, is_skinny = 0, kernel.startswith("skinny")
    for name, (a, a_zero, b, b_zero), in_rows, product in products(signs):
        b, expected = in_rows if is_skinny else b, product.astype(sums)
        apart = np.empty((*product.shape[:-2], *product.shape[:-3:-1]), sums).swapaxes(-1, -2)  # not in rows
        for packs, out in itertools.product((False, True), (apart, None)):
            threads = int(rng.choice(THREADS))
            given = dmlcpu.pack_b(b) if packs else b
            np.invert(expected, out=apart)  # no element is right before
            with use_budget(threads, grain=1, kernel=kernel):
                try:
                    found = dmlcpu.matmul_integer(a, a_zero, given, b_zero, out_dtype=sums, out=out)
                except LookupError:  # this kernel is not for such products
                    continue
            assert_same_bits((found,), (expected,), f"{name}, {threads=}, {packs=}")
            runs += 1
    problems = [Problem(1, rows, columns, depth, 1) for _, rows, depth, columns in PRODUCTS]
    able = [problem for problem in problems if not is_skinny or fits_few_rows(*problem[1:])]
    assert runs == 2 * 2 * len(able) * (1 if is_skinny else 2) > 6
