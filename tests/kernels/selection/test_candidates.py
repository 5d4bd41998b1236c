"""Keys and lists of candidates, by themselves."""

import numpy as np
import pytest
from numba import njit

from dmlcpu.common.forms import Form
from dmlcpu.kernels.gemm.table import UNPACKED
from dmlcpu.kernels.selection.candidates import LEAST, MOST_COLUMNS, column_of, cut_back, key_of, least_of, score_of
from dmlcpu.kernels.selection.comparisons import KEYS, insert_key
from dmlcpu.kernels.selection.work import SELECTION
from dmlcpu.runtime.records import record_at, record_of
from dmlcpu.selection.call import Call, Order
from dmlcpu.selection.plan import selection_fields

BYTE = np.dtype(np.int8)
INTEGERS = np.array([-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1], np.int32)
FLOATS = np.array([-np.inf, -3e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.5, 3e38, np.inf, np.nan], np.float32)
COLUMNS = np.array([0, 1, 31, 2**20, MOST_COLUMNS - 1])


def top_of(order):
    call = Call(Form((1, 1), BYTE), Form((1, 10**6), BYTE), UNPACKED, False, (None,) * 4, None, order, (1,), ())
    return record_of(SELECTION, **selection_fields(call, 1, 1, 0))


@njit
def keys_of(scores, column, tops, keys, again, columns):
    top = record_at(tops, 0, SELECTION)
    for i in range(scores.size):
        keys[i] = key_of(scores[i], column, top)
        again[i], columns[i] = score_of(keys[i], top), column_of(keys[i])


@njit
def least(threshold, column, tops):
    return least_of(threshold, column, record_at(tops, 0, SELECTION))


@njit
def insert(cells, first, key, count):
    insert_key(cells, first, key, count)


@njit
def cut(keys, count, k):
    return cut_back(keys, count, k)


def keys(order, column):
    """Return the keys of all scores in one column, after a look at what they stand for."""
    scores = FLOATS.view(np.int32) if order.is_scaled else INTEGERS
    found, again, columns = np.empty(scores.size, np.uint64), np.empty_like(scores), np.empty(scores.size, np.int64)
    keys_of(scores, column, top_of(order), found, again, columns)
    assert again.tolist() == scores.tolist()
    assert (columns == column).all()
    assert found.min() > 0
    return found


@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("is_largest", [False, True])
@pytest.mark.parametrize("nan_last", [False, True])
def test_keys_have_the_order_of_scores_and_then_of_columns(is_scaled, is_largest, nan_last):
    order = Order(3, is_scaled, is_largest, nan_last)
    table = np.stack([keys(order, column) for column in COLUMNS])
    assert (np.diff(table.astype(object), axis=0) < 0).all()  # the lower column has the greater key
    numbers = table if is_largest else table[:, ::-1]
    if is_scaled:
        nan = numbers[:, -1] if is_largest else numbers[:, 0]
        is_first = is_largest and not nan_last
        others = numbers[:, :-1] if is_largest else numbers[:, 1:]
        assert (nan > others.max() if is_first else nan < others.min()).all()
        zeros = np.delete(others, 4 if is_largest else 5, axis=1)  # they are equal: only the columns count
        assert (np.diff(zeros.max(axis=0).astype(object)) > 0).all()
        both = others[:, 4:6] >> np.uint64(1)
        assert (both[:, 0] == both[:, 1]).all()
    else:
        assert (numbers[-1, 1:] > numbers[0, :-1]).all()


@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("is_largest", [False, True])
def test_every_score_whose_key_reaches_a_threshold_reaches_the_least(is_scaled, is_largest):
    """The least may let more pass, whose keys are compared."""
    order, column = Order(3, is_scaled, is_largest), 50
    scores = FLOATS if is_scaled else INTEGERS.astype(np.int64)
    behind = keys(order, column + 1)
    for threshold in np.concatenate([keys(order, 10), keys(order, column), behind]):
        bound = np.int64(least(threshold, column, top_of(order)))
        if is_scaled:
            directed = scores if is_largest else -scores
            passes = ~(directed < bound.astype(np.int32).view(np.float32))
        else:
            passes = (scores if is_largest else ~scores) >= bound
        assert passes[behind >= threshold].all()
    equal = least(keys(order, column)[2], column, top_of(order))
    assert equal != least(behind[2], column, top_of(order))  # a later column loses a tie


def test_the_least_before_there_are_k_candidates():
    for order in (Order(3, False), Order(3, True)):
        top = top_of(order)
        assert least(np.uint64(0), 5, top) == top.view(SELECTION)["lowest"][0]
    assert LEAST == 0


@pytest.mark.parametrize("count", [KEYS, 4 * KEYS])
def test_keys_are_inserted_in_order(count):
    rng = np.random.default_rng(count)
    cells = np.zeros(count + 3, np.int64)
    cells[1] = -1
    given = rng.integers(1, 2**64, 3 * count, np.uint64)
    for i, key in enumerate(given):
        insert(cells, 2, key, count)
        right = np.sort(given[: i + 1])[::-1][:count]
        assert cells[2 : 2 + right.size].view(np.uint64).tolist() == right.tolist()
        assert not cells[2 + right.size : 2 + count].any()
    assert (cells[0], cells[1], cells[-1]) == (0, -1, 0)


@pytest.mark.parametrize("k", [1, 10, 47, 48])
def test_a_full_list_is_cut_back_to_k_or_some_more(k):
    given = np.random.default_rng(k).integers(1, 2**64, 48, np.uint64)
    found = given.copy()
    threshold, kept = cut(found, 48, k)
    assert k <= kept <= k + (48 - k) // 4
    assert found[:kept].tolist() == given[given >= threshold].tolist()
    assert np.sort(found[:kept])[::-1][:k].tolist() == np.sort(given)[::-1][:k].tolist()
