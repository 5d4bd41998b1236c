"""Every kernel of the product that this machine can run, over the shapes where tiles and blocks end."""

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


@pytest.mark.parametrize("signs", list(itertools.product(["int8", "uint8"], repeat=3)), ids="-".join)
@pytest.mark.parametrize("kernel", [entry.name for entry in registry.available("quantized_matmul", "dot")])
def test_every_kernel(kernel, signs):
    rng = np.random.default_rng([*f"{kernel} {signs}".encode()])  # other numbers of threads each
    layouts, runs, is_skinny = itertools.cycle(KERNEL_LAYOUTS.values()), 0, kernel.startswith("skinny")
    for (a_batch, b_batch, rows, depth, columns), extreme in itertools.product(PRODUCTS, (False, True)):
        types = [np.dtype(name) for name in signs]
        batch = np.broadcast_shapes(a_batch, b_batch)
        a = quantized(rng, (*a_batch, rows, depth), types[0])
        b = quantized(rng, (*b_batch, depth, columns + 5), types[1])[..., 2:-3]  # rows are read beyond nowhere
        if extreme:
            a[...], b[...] = np.iinfo(types[0]).min, np.iinfo(types[1]).max
        arguments = (
            next(layouts)(a),
            rng.uniform(0.001, 2, (rows, 1)).astype(np.float32),
            quantized(rng, (1, 1), types[0]),
            b if is_skinny else next(layouts)(b),
            rng.uniform(0.001, 2, (1, columns)).astype(np.float32),
            quantized(rng, (1, columns), types[1]),
            (rng.uniform(0.5, 2, (rows, 1)) * (2000 * depth if extreme else 100 * depth**0.5)).astype(np.float32),
            quantized(rng, (rows, 1), types[2]),
        )
        expected = reference.quantized_matmul(*arguments)
        threads = int(rng.choice(THREADS))
        found = np.empty((*batch, rows, columns), types[2])
        with use_budget(threads, grain=1, kernel=kernel):
            try:
                dmlcpu.quantized_matmul(*arguments, out=found)
            except LookupError:  # this kernel is not for such products
                continue
        shapes = f"batches {a_batch} and {b_batch}, {rows=}, {depth=}, {columns=}"
        assert_same_bits((found,), (expected,), f"{shapes}, {extreme=}, {threads=}")
        runs += 1
    problems = [Problem(1, rows, columns, depth, 1) for _, _, rows, depth, columns in PRODUCTS]
    able = [problem for problem in problems if not is_skinny or fits_few_rows(*problem[1:])]
    assert runs == 2 * len(able) > 6
