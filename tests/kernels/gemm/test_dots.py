"""The microkernels that read contiguous columns, against NumPy."""

import numpy as np
import pytest
from numba import njit

from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.microkernels.dots import DEPTH_STEP, make_dots
from dmlcpu.runtime.intrinsics import Strided
from dmlcpu.runtime.memory import aligned_empty

ROWS = [row for row in registry.available("matmul_top_k", "dot") if row.reads_columns]


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.name)
def compiled(request):
    """Return a function of a microkernel, compiled once for all depths, and its lanes."""
    microkernel = registry.load(request.param.parts[0])
    intrinsic = make_dots(microkernel)

    @njit
    def dots(b, depth, flip, a, first, acc, at):
        intrinsic(b, depth, flip, a, first, acc, at)

    return dots, microkernel.unit.lanes


@pytest.mark.parametrize("depth", [1, 31, 32, 33, 64, 65, 200])
def test_products_of_a_row_and_columns(compiled, depth):
    """Bytes of every value, with either sign on the right; those behind a column's end count nothing."""
    dots, lanes = compiled
    rng = np.random.default_rng(depth)
    line = -(-depth // DEPTH_STEP) * DEPTH_STEP
    a = np.zeros(line + 4, np.int8)
    a[4 : 4 + depth] = rng.choice([-128, -1, 1, 127], depth)
    step = depth + 5
    b = rng.integers(0, 256, 3 + lanes * step + line, np.uint8)
    for flip in (0, 128):
        acc = aligned_empty(lanes + 2, np.int32)
        acc[:] = 7
        dots(Strided(b, 3, step, lanes), depth, flip, a.view(np.uint32), 1, acc, 1)
        columns = np.stack([b[3 + j * step :][:depth] ^ np.uint8(flip) for j in range(lanes)])
        assert acc[1:-1].tolist() == (columns.astype(np.int64) @ a[4 : 4 + depth].astype(np.int64)).tolist()
        assert (acc[0], acc[-1]) == (7, 7)
