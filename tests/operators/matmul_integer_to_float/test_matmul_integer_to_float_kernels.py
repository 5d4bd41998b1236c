"""Every kernel with floats as results that this machine can run, over the shapes where tiles and blocks end."""

import functools
import itertools

import numpy as np
import pytest
from operators.matmul_integer.test_matmul_integer_kernels import PRODUCTS
from samples import KERNEL_LAYOUTS, THREADS, assert_same_bits, quantized

import dmlcpu
from dmlcpu import reference
from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.cut import fits_few_rows
from dmlcpu.kernels.gemm.work import Problem
from dmlcpu.runtime.threads import use_budget

KERNELS = [entry.name for entry in registry.available("matmul_integer_to_float", "dot")]
# What converts a tile does not see the signs.
CASES = [(signs, "float32") for signs in itertools.product(["int8", "uint8"], repeat=2)]
CASES.append((("uint8", "int8"), "float16"))
FLOATS = np.array([0, -0.0, -1.5, np.inf, np.nan, 1e-45, 3e38, 0.1, 0.29, 0.05], np.float32)


def biases(rng, rows, columns):
    """Biases of every kind that kernels tell apart: none, one for each column or row, and whole ones of two layouts."""
    whole = rng.normal(0, 30, (columns, rows)).astype(np.float32)
    whole.flat[:: 1 + whole.size // 7] = -0.0
    return [None, whole[:, 0].copy(), np.ascontiguousarray(whole.T), whole[:1].T, whole.T]


@functools.lru_cache(maxsize=1)  # the kernels for the same types follow one another
def products(signs, floats):
    """Return a name, the arguments of a call, b in rows side by side, and biases with their results of each case."""
    rng, layouts = np.random.default_rng([*f"{signs} {floats}".encode()]), itertools.cycle(KERNEL_LAYOUTS.values())
    cases, number = [], itertools.count()
    for (batch, rows, depth, columns), of_rows in itertools.product(PRODUCTS, (False, True)):
        a = quantized(rng, (*batch, rows, depth), np.dtype(signs[0]))
        b = quantized(rng, (*batch, depth, columns), np.dtype(signs[1]))
        a_scale = FLOATS[np.arange(rows)[:, None] % FLOATS.size] if of_rows else 0.01
        b_scale = rng.normal(0, 0.1, columns).astype(np.float32)
        numbers = [a_scale, quantized(rng, (rows, 1), a.dtype)], [b_scale, quantized(rng, (1, columns), b.dtype)]
        a, b = next(layouts)(a), next(layouts)(b)
        kinds = biases(rng, rows, columns)
        added = [kinds[next(number) % len(kinds)] for _ in range(4)]  # in the next case another kind is left out
        expected = [
            reference.matmul_integer_to_float(a, *numbers[0], b, *numbers[1], each, out_dtype=floats) for each in added
        ]
        name = f"batch {batch}, {rows=}, {depth=}, {columns=}, {of_rows=}"
        cases.append((name, (a, *numbers[0], b, *numbers[1]), b.copy(), list(zip(added, expected, strict=True))))
    return cases


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("signs", "floats"), CASES)
def test_every_kernel(signs, floats, kernel):
    rng = np.random.default_rng([*f"{kernel} {signs} {floats}".encode()])  # other numbers of threads each
    runs, is_skinny = 0, kernel.startswith("skinny")
    for name, (*of_a, b, b_scale, b_zero), in_rows, added in products(signs, floats):
        b, shape = in_rows if is_skinny else b, added[0][1].shape
        apart = np.empty((*shape[:-2], *shape[:-3:-1]), floats).swapaxes(-1, -2)  # columns are not side by side
        for (packs, out), (bias, expected) in zip(itertools.product((False, True), (apart, None)), added, strict=True):
            threads = int(rng.choice(THREADS))
            given = dmlcpu.pack_b(b) if packs else b
            with use_budget(threads, grain=1, kernel=kernel):
                try:
                    found = dmlcpu.matmul_integer_to_float(
                        *of_a, given, b_scale, b_zero, bias, out_dtype=floats, out=out
                    )
                except LookupError:  # this kernel is not for such products
                    continue
            assert_same_bits((found,), (expected,), f"{name}, {threads=}, {packs=}, bias {bias}")
            runs += 1
    problems = [Problem(1, rows, columns, depth, 1) for _, rows, depth, columns in PRODUCTS]
    able = [problem for problem in problems if not is_skinny or fits_few_rows(*problem[1:])]
    assert runs == 2 * 2 * len(able) * (1 if is_skinny else 2) > 6
