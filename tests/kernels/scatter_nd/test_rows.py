"""Vector operations on runs against NumPy, for runs of every length up to three cache lines."""

import numpy as np
import pytest
from jitted import jitted
from samples import FLOATS, INTEGERS, specials

from dmlcpu.kernels.scatter_nd import rows

COMPILED = [dtype for dtype in (*INTEGERS, *FLOATS) if dtype in ("f4", "f8") or dtype.kind in "iu"]
BEGIN, GAP = 3, 5  # neither starts a vector


copy_run = jitted(rows.copy_run)
add_run = jitted(rows.add_run)


def runs(dtype):
    rng = np.random.default_rng(7)
    most = 3 * 64 // dtype.itemsize
    return specials(rng, (most + 9,), dtype), specials(rng, (most + 9,), dtype), most


@pytest.mark.parametrize("dtype", COMPILED, ids=str)
def test_copy_run(dtype):
    before, updates, most = runs(dtype)
    for count in range(most + 1):
        out, expected = before.copy(), before.copy()
        copy_run(out, BEGIN, updates, GAP, count)
        expected[BEGIN : BEGIN + count] = updates[GAP : GAP + count]
        assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", COMPILED, ids=str)
def test_add_run_wraps_and_gives_one_nan(dtype):
    before, updates, most = runs(dtype)
    for count in range(most + 1):
        out, expected = before.copy(), before.copy()
        add_run(out, BEGIN, updates, GAP, count)
        with np.errstate(over="ignore", invalid="ignore"):
            total = before[BEGIN : BEGIN + count] + updates[GAP : GAP + count]
        expected[BEGIN : BEGIN + count] = (
            np.where(total == total, total, dtype.type(np.nan)) if dtype in FLOATS else total
        )
        assert out.tobytes() == expected.tobytes()
