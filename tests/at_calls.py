"""NumPy's ufunc.at and ours on the same arguments, compared to the bit."""

import math

import numpy as np
import pytest

import dmlcpu
from dmlcpu import at


def assign(x, indices, updates):
    x[indices] = updates


NUMPYS = {
    dmlcpu.add_at: np.add.at,
    dmlcpu.maximum_at: np.maximum.at,
    dmlcpu.minimum_at: np.minimum.at,
    dmlcpu.put_at: assign,
}
ALWAYS = at.Limits(0, (0, 0), (0, 0), 0, 0)
NEVER = at.Limits(math.inf, (0, math.inf), (0, math.inf), math.inf, math.inf)
PAIRS = pytest.mark.parametrize(("ours", "numpys"), NUMPYS.items(), ids=lambda each: each.__name__)


def same(ours, mine, theirs):
    """Compare arrays to the bit, except for the bits of NaNs and, of maxima and minima, the sign of zeros."""
    assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
    with np.errstate(all="ignore"):
        if mine.dtype.kind in "fcV":
            is_nan = theirs != theirs
            np.testing.assert_array_equal(mine != mine, is_nan)
            mine, theirs = mine[~is_nan], theirs[~is_nan]
        if mine.dtype.kind in "fV" and ours in (dmlcpu.maximum_at, dmlcpu.minimum_at):
            mine, theirs = mine + np.zeros_like(mine), theirs + np.zeros_like(theirs)
    assert mine.tobytes() == theirs.tobytes()


def check(ours, numpys, x, indices, updates):
    mine, theirs = x.copy(order="K"), x.copy(order="K")
    whole = np.broadcast_to(updates, x[indices].shape) if np.ndim(updates) else updates  # see _apply
    with np.errstate(all="ignore"):
        numpys(theirs, indices, whole)
        assert ours(mine, indices, updates) is None
    same(ours, mine, theirs)


def check_or_same_error(ours, numpys, x, indices, updates):
    mine, theirs = x.copy(), x.copy()
    with np.errstate(all="ignore"):
        try:
            numpys(theirs, indices, updates)
        except (TypeError, ValueError, OverflowError) as error:
            with pytest.raises(type(error)):
                ours(mine, indices, updates)
        else:
            ours(mine, indices, updates)
    if x.dtype.kind in "OU":
        assert mine.tolist() == theirs.tolist()
    else:
        same(ours, mine, theirs)
