"""The loops over single elements, against a plain loop in NumPy."""

import numpy as np
import pytest
from jitted import jitted
from samples import FLOATS, INTEGERS, specials

from dmlcpu.kernels.scatter_nd import places
from dmlcpu.kernels.scatter_nd.places import Bounds
from dmlcpu.kernels.scatter_nd.reduction import (
    ADD,
    EXTREMES,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    OVERWRITE,
    SIGNED_MAXIMUM,
    SIGNED_MINIMUM,
)
from dmlcpu.runtime.intrinsics import Strided

update_places = jitted(places.update_places)

TYPES = [dtype for dtype in (*INTEGERS, *FLOATS) if dtype in ("f4", "f8") or dtype.kind in "iu"]
REDUCTIONS = {OVERWRITE: lambda mine, update: update, ADD: np.add, MULTIPLY: np.multiply, MINIMUM: None, MAXIMUM: None}
SIGNED = {MINIMUM: SIGNED_MINIMUM, MAXIMUM: SIGNED_MAXIMUM}


def words(array):
    """Return an array as loops see it: integers without a sign."""
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "i" else array


def combined(reduction, mine, update):
    """Return the new element: sums and products have one NaN, of equal extremes and NaNs the old one remains."""
    if reduction in EXTREMES:
        if mine != mine or update != update:
            return mine if mine != mine else update
        return update if (update < mine if reduction == MINIMUM else update > mine) else mine
    with np.errstate(all="ignore"):
        result = REDUCTIONS[reduction](mine, update)
    return result if result == result or reduction == OVERWRITE else type(result)(np.nan)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("apart", "step"), [(1, 1), (1, 0), (3, -2)])
def test_updates_are_applied_one_after_the_other(dtype, reduction, apart, step):
    rng, size = np.random.default_rng(5), 7
    for first, last in ((0, 0), (0, 1), (2, 5), (0, 4), (1, 40), (0, 75)):
        where, values = rng.integers(-size, size, 80), specials(rng, (250,), dtype)
        out = specials(rng, (size + 2,), dtype)
        spread, expected = np.repeat(where, apart), out.copy()
        for i in range(first, last):
            expected[where[i] % size] = combined(reduction, expected[where[i] % size], values[170 + i * step])
        given = Strided(spread, 0, apart, last), Bounds(size, size, size), Strided(words(values), 170, step, last)
        number = SIGNED.get(reduction, reduction) if dtype.kind == "i" else reduction
        assert update_places(*given, first, words(out), number) == last
        assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("bad", [-8, 7, -1, np.iinfo(np.int64).min, np.iinfo(np.int64).max])
@pytest.mark.parametrize("from_end", [0, 7])
def test_a_place_out_of_range_ends_it(bad, from_end):
    where, values = np.arange(70) % 7, np.arange(70.0)
    for place in (0, 1, 2, 3, 4, 66, 69):
        given, out, expected = where.copy(), np.zeros(9), np.zeros(9)
        given[place] = bad
        count = 70 if bad == -1 and from_end else place
        np.add.at(expected, given[:count] % 7, values[:count])
        bounds = Bounds(7, 7, from_end)
        assert update_places(Strided(given, 0, 1, 70), bounds, Strided(values, 0, 1, 70), 0, out, ADD) == count
        assert np.array_equal(out, expected)


@pytest.mark.parametrize("size", [9, 2**31 + 5])  # the latter has places that are negative as int32
def test_narrow_places_are_read_without_a_sign(size):
    where, values = np.array([-1, 3, -9, 0, 8, -1], np.int32), np.arange(1.0, 7.0)
    out, bounds = np.zeros(9), Bounds(min(size, 2**31), min(size, 9), size - 2**32)
    given = Strided(where.view(np.uint32), 0, 1, 6), bounds, Strided(values, 0, 1, 6)
    count = update_places(*given, 0, out, ADD)
    assert count == (6 if size == 9 else 0)
    expected = np.zeros(9)
    np.add.at(expected, where[:count], values[:count])
    assert np.array_equal(out, expected)
