"""Vector operations on runs against NumPy, for runs of every length up to three cache lines."""

import numpy as np
import pytest
from jitted import jitted
from samples import FLOATS, INTEGERS, specials

from dmlcpu.kernels.scatter_nd import rows

COMPILED = [dtype for dtype in (*INTEGERS, *FLOATS) if dtype in ("f4", "f8") or dtype.kind in "iu"]
BEGIN, GAP = 3, 5  # neither starts a vector


def overwritten(before, updates):
    return updates


def added(before, updates):
    """Return sums, which wrap, and have one NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = before + updates
    return np.where(total == total, total, total.dtype.type(np.nan)) if total.dtype in FLOATS else total


@pytest.mark.parametrize(("operation", "expect"), [(rows.copy_run, overwritten), (rows.add_run, added)])
@pytest.mark.parametrize("dtype", COMPILED, ids=str)
def test_a_run_is_updated_and_nothing_beside_it(dtype, operation, expect):
    rng, update = np.random.default_rng(7), jitted(operation)
    most = 3 * 64 // dtype.itemsize
    before, updates = specials(rng, (most + 9,), dtype), specials(rng, (most + 9,), dtype)
    for count in range(most + 1):
        out, expected = before.copy(), before.copy()
        update(out, BEGIN, updates, GAP, count)
        expected[BEGIN : BEGIN + count] = expect(before[BEGIN : BEGIN + count], updates[GAP : GAP + count])
        assert out.tobytes() == expected.tobytes()
