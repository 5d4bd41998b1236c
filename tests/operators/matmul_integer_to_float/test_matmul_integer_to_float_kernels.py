"""Every kernel with floats as results that this machine can run, over the shapes where tiles and blocks end."""

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
    return itertools.cycle([None, whole[:, 0].copy(), np.ascontiguousarray(whole.T), whole[:1].T, whole.T])


@pytest.mark.parametrize(("signs", "floats"), CASES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel(kernel, signs, floats):
    rng = np.random.default_rng([*f"{kernel} {signs} {floats}".encode()])  # other numbers of threads each
    layouts, runs, is_skinny = itertools.cycle(KERNEL_LAYOUTS.values()), 0, kernel.startswith("skinny")
    for (batch, rows, depth, columns), of_rows in itertools.product(PRODUCTS, (False, True)):
        a = quantized(rng, (*batch, rows, depth), np.dtype(signs[0]))
        b = quantized(rng, (*batch, depth, columns), np.dtype(signs[1]))
        a_scale = FLOATS[np.arange(rows)[:, None] % FLOATS.size] if of_rows else 0.01
        b_scale = rng.normal(0, 0.1, columns).astype(np.float32)
        numbers = [a_scale, quantized(rng, (rows, 1), a.dtype)], [b_scale, quantized(rng, (1, columns), b.dtype)]
        a, b = next(layouts)(a), b if is_skinny else next(layouts)(b)
        apart = np.empty((*batch, columns, rows), floats).swapaxes(-1, -2)  # columns are not side by side
        bias = biases(rng, rows, columns)
        for packs, out in itertools.product((False, True), (apart, None)):
            threads = int(rng.choice(THREADS))
            given, added = dmlcpu.pack_b(b) if packs else b, next(bias)
            with use_budget(threads, grain=1, kernel=kernel):
                try:
                    found = dmlcpu.matmul_integer_to_float(
                        a, *numbers[0], given, *numbers[1], added, out_dtype=floats, out=out
                    )
                except LookupError:  # this kernel is not for such products
                    continue
            expected = reference.matmul_integer_to_float(a, *numbers[0], b, *numbers[1], added, out_dtype=floats)
            shapes = f"batch {batch}, {rows=}, {depth=}, {columns=}, {of_rows=}, {threads=}, {packs=}, bias {added}"
            assert_same_bits((found,), (expected,), shapes)
            runs += 1
    problems = [Problem(1, rows, columns, depth, 1) for _, rows, depth, columns in PRODUCTS]
    able = [problem for problem in problems if not is_skinny or fits_few_rows(*problem[1:])]
    assert runs == 2 * 2 * len(able) * (1 if is_skinny else 2) > 6
