"""Every kernel of the product that this machine can run, over the shapes where tiles and blocks end."""

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
    # batch of a, batch of b, M, K, N
    ((), (), 1, 1, 1),
    ((), (), 2, 31, 4),
    ((), (), 3, 32, 5),
    ((), (), 31, 33, 63),
    ((), (), 32, 64, 64),
    ((), (), 33, 65, 65),
    ((), (), 1, 300, 130),
    ((), (), 130, 40, 1),
    ((2,), (2,), 5, 7, 9),
    ((2, 1), (3,), 4, 33, 3),
    ((1, 2, 1), (3, 1, 2), 3, 9, 2),
    ((), (), 2, 70_001, 5),  # longer than int32 sums may be
    ((), (), 1, 1, 64),
    ((2,), (2,), 16, 15, 127),
    ((2, 1), (2,), 3, 17, 65),
    ((), (), 5, 1_041, 250),
    ((), (), 2, 33_026, 70),
)


@functools.lru_cache(maxsize=1)  # the kernels for the same types follow one another
def products(signs):
    """Return a name, the arguments of a call, b in rows side by side and the expected result of each case."""
    rng, layouts = np.random.default_rng([*f"{signs}".encode()]), itertools.cycle(KERNEL_LAYOUTS.values())
    types, cases = [np.dtype(name) for name in signs], []
    for (a_batch, b_batch, rows, depth, columns), extreme in itertools.product(PRODUCTS, (False, True)):
        a, b = quantized(rng, (*a_batch, rows, depth), types[0]), quantized(rng, (*b_batch, depth, columns), types[1])
        if extreme:
            a[...], b[...] = np.iinfo(types[0]).min, np.iinfo(types[1]).max
        arguments = {
            "a": next(layouts)(a),
            "a_scale": rng.uniform(0.001, 2, (rows, 1)).astype(np.float32),
            "a_zero_point": quantized(rng, (1, 1), types[0]),
            "b": next(layouts)(b),
            "b_scale": rng.uniform(0.001, 2, (1, columns)).astype(np.float32),
            "b_zero_point": quantized(rng, (1, columns), types[1]),
            "y_scale": (rng.uniform(0.5, 2, (rows, 1)) * (2000 * depth if extreme else 100 * depth**0.5)).astype("f4"),
            "y_zero_point": quantized(rng, (rows, 1), types[2]),
        }
        in_rows = np.zeros((*b_batch, depth, columns + 5), types[1])[..., 2:-3]  # rows are read beyond nowhere
        in_rows[...] = arguments["b"]
        name = f"batches {a_batch} and {b_batch}, {rows=}, {depth=}, {columns=}, {extreme=}"
        cases.append((name, arguments, in_rows, reference.quantized_matmul(**arguments)))
    return cases


@pytest.mark.parametrize("kernel", [entry.name for entry in registry.available("quantized_matmul", "dot")])
@pytest.mark.parametrize("signs", list(itertools.product(["int8", "uint8"], repeat=3)), ids="-".join)
def test_every_kernel(signs, kernel):
    rng = np.random.default_rng([*f"{kernel} {signs}".encode()])  # other numbers of threads each
    runs, is_skinny = 0, kernel.startswith("skinny")
    for name, arguments, in_rows, expected in products(signs):
        given, threads = {**arguments, "b": in_rows} if is_skinny else arguments, int(rng.choice(THREADS))
        found = ~expected  # no element is right before
        with use_budget(threads, grain=1, kernel=kernel):
            try:
                dmlcpu.quantized_matmul(**given, out=found)
            except LookupError:  # this kernel is not for such products
                continue
        assert_same_bits((found,), (expected,), f"{name}, {threads=}")
        runs += 1
    problems = [Problem(1, rows, columns, depth, 1) for _, _, rows, depth, columns in PRODUCTS]
    able = [problem for problem in problems if not is_skinny or fits_few_rows(*problem[1:])]
    assert runs == 2 * len(able) > 6
