"""What each row may select, in all the forms that it may be said in."""

import numpy as np
import pytest

import dmlcpu
from dmlcpu.selection.exclusions import allowed_of, has_lines, lines_of

ROWS, COLUMNS = 3, 11
LISTS = [[0, 10], [], [3, 3, 7]]
OUT = np.zeros((ROWS, COLUMNS), bool)
for row, numbers in enumerate(LISTS):
    OUT[row, numbers] = True
PAIR = np.array([0, 2, 2, 5]), np.array([0, 10, 3, 3, 7])


def sparse(kind="csr", dtype=np.float32, array=False):
    scipy = pytest.importorskip("scipy.sparse")
    return getattr(scipy, f"{kind}_{'array' if array else 'matrix'}")(OUT.astype(dtype))


def allowed(rows=ROWS, columns=COLUMNS, **given):
    """Return the bits as bool (1 or rows, columns); those of some rows are the same."""
    found = allowed_of("op", rows, columns, **given)
    bits = found.bits(0, rows)
    for start, stop in ((0, (rows + 1) // 2), (rows // 2, rows), (0, rows)):
        assert found.bits(start, stop).tolist() == (bits[start:stop] if len(bits) == rows else bits).tolist()
    assert (bits.dtype, bits.shape[1], bits.flags.c_contiguous) == (np.uint8, -(-columns // 8), True)
    assert bits.shape[0] in (1, rows)
    assert not found.is_by_row or len(bits) == rows
    return np.unpackbits(bits, axis=1, count=columns, bitorder="little").astype(bool)


FORMS = {
    "lists": lambda: LISTS,
    "arrays": lambda: [np.array(each, np.uint8) for each in LISTS],
    "tuples and sets": lambda: [(0, 10), (), {3, 7}],
    "ranges": lambda: [range(0, 11, 10), range(0), frozenset({3, 7})],
    "an array of lists": lambda: np.array([*LISTS, None], object)[:3],
    "numbers beyond the columns": lambda: [[0, 10, 11, 16, 1 << 40], [99], [3, 7, 2**63 - 1]],
    "numbers beyond int64": lambda: [np.array([0, 10, 2**64 - 1], np.uint64), [], [3, 7]],
    "a pair": lambda: PAIR,
    "a pair of int32": lambda: tuple(each.astype(np.int32) for each in PAIR),
    "bool": lambda: OUT,
    "lists of bools": lambda: OUT.tolist(),
    "csr": sparse,
    "csc": lambda: sparse("csc"),
    "coo": lambda: sparse("coo", np.int8),
    "lil": lambda: sparse("lil"),
    "bool csr": lambda: sparse(dtype=bool),
    "csr array": lambda: sparse(array=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_exclusion(form):
    value = FORMS[form]()
    assert allowed(exclude=value).tolist() == (~OUT).tolist()
    assert has_lines(value)
    for start, stop in ((0, 1), (1, 3), (0, 3), (2, 2)):
        own = lines_of(value, start, stop)
        assert allowed(stop - start, exclude=own).tolist() == (~OUT[start:stop]).tolist()


@pytest.mark.parametrize("form", [form for form in FORMS if "bool" not in form or form == "bool csr"])
def test_an_allowlist_for_each_row_has_the_same_forms(form):
    assert allowed(allowlist=FORMS[form]()).tolist() == OUT.tolist()


@pytest.mark.parametrize("value", [[1, 4, 4, 99], (1, 4), {4, 1}, range(1, 5, 3), np.array([4, 1], np.int8)])
def test_an_allowlist_for_all_rows(value):
    expected = np.isin(np.arange(COLUMNS), [1, 4])
    assert allowed(allowlist=value).tolist() == [expected.tolist()]
    assert not has_lines(value)
    assert lines_of(value, 0, 1) is value
    assert allowed(1, exclude=list(value)).tolist() == [(~expected).tolist()]  # of the only row


def test_explicit_zeros_exclude_nothing():
    matrix = sparse()
    matrix.data[:2] = 0
    expected = ~OUT
    expected[0, [0, 10]] = True
    assert allowed(exclude=matrix).tolist() == expected.tolist()
    assert matrix.nnz == 4  # it is as it was
    empty = sparse()
    empty.data[:] = 0
    assert allowed(exclude=empty).all()


def test_a_matrix_that_is_not_in_order():
    matrix = sparse()
    matrix.indices[:2] = [10, 0]
    matrix.has_sorted_indices = False
    assert allowed(exclude=matrix).tolist() == (~OUT).tolist()


def test_masks():
    line = np.arange(COLUMNS) % 3 == 0
    both = np.array([line, ~line, OUT[2]])
    for mask in (line, line.tolist()):
        assert allowed(mask=mask).tolist() == [line.tolist()]
        assert not has_lines(mask)
    for mask in (both, both.tolist(), np.asfortranarray(both)):
        assert allowed(mask=mask).tolist() == both.tolist()
        assert has_lines(mask)
        assert lines_of(mask, 1, 3)[0].__class__ is type(mask[0])
    assert (
        allowed(mask=line, allowlist=[3, 4], exclude=LISTS).tolist()
        == ((line & np.isin(np.arange(COLUMNS), [3, 4])) & ~OUT).tolist()
    )


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 64, 100])
def test_every_number_of_columns(columns):
    out = np.random.default_rng(columns).random((2, columns)) < 0.5
    lists = [np.flatnonzero(each).tolist() for each in out]
    assert allowed(2, columns, exclude=lists).tolist() == (~out).tolist()
    assert allowed(2, columns).tolist() == [[True] * columns]


def test_ids_take_the_place_of_positions():
    ids = np.arange(COLUMNS) * 10

    def positions(numbers):
        found = np.searchsorted(ids, numbers)
        return np.where(np.isin(numbers, ids), np.minimum(found, COLUMNS - 1), -1)

    named = [[10 * number for number in each] for each in LISTS]
    assert allowed(exclude=named, positions=positions).tolist() == (~OUT).tolist()
    assert allowed(exclude=LISTS, positions=positions)[0].tolist() == [False, False] + [True] * 9  # 0 and 10 are ids
    pair = PAIR[0], PAIR[1] * 10
    assert allowed(exclude=pair, positions=positions).tolist() == (~OUT).tolist()
    assert allowed(allowlist=[0, 20, 25], positions=positions).tolist() == [[i in (0, 2) for i in range(COLUMNS)]]
    for by_position in (OUT, sparse()):
        assert allowed(exclude=by_position, positions=positions).tolist() == (~OUT).tolist()


def test_no_rows_and_no_columns():
    assert allowed(0, 5, exclude=[]).shape == (0, 5)
    assert allowed(0, 5, exclude=np.zeros((0, 5), bool)).shape == (0, 5)
    assert allowed(0, 5, mask=np.zeros((0, 5), bool)).shape == (0, 5)
    assert allowed(2, 0, exclude=[[1], []]).shape == (2, 0)
    assert allowed(2, 0, mask=[]).shape == (1, 0)
    assert allowed(2, 0, mask=np.zeros((2, 0), bool)).shape == (2, 0)
    assert allowed(0, 5, allowlist=[]).shape[1] == 5
    assert allowed(0, 5, mask=np.zeros((0, 5), bool), allowlist=[1]).shape == (0, 5)
    assert allowed(0, 5, mask=np.ones(5, bool), allowlist=[1], exclude=[]).shape == (0, 5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mask": np.ones(5, bool)}, "op: mask.shape is (5,); allowed: (11,) or (3, 11)"),
        ({"mask": np.ones((2, 11), bool)}, "op: mask.shape is (2, 11); allowed: (11,) or (3, 11)"),
        ({"mask": np.ones(11)}, "op: mask.dtype is float64; allowed: bool"),
        ({"exclude": np.ones((3, 10), bool)}, "op: exclude.shape is (3, 10); allowed: (3, 11)"),
        ({"exclude": np.ones(11, bool)}, "op: exclude.shape is (11,); allowed: (3, 11)"),
        (
            {"exclude": [[1], [2]]},
            "op: exclude is 2 lists; allowed: a list of ints for each of the 3 queries, a sparse",
        ),
        ({"exclude": [1, 2, 3]}, "op: exclude is numbers; allowed: a list of ints for each of the 3 queries"),
        ({"exclude": [[1], [2], [-3]]}, "op: exclude[2][0] is -3; allowed: at least 0"),
        ({"exclude": [[1], [2], [0.5]]}, "op: exclude[2].dtype is float64; allowed: integers"),
        ({"exclude": [[1], [2], [[3]]]}, "op: exclude[2].shape is (1, 1); allowed: one dimension"),
        ({"exclude": (PAIR[0][:3], PAIR[1])}, "op: exclude[0].shape is (3,); allowed: (4,)"),
        ({"exclude": (PAIR[0] + 1, PAIR[1])}, "op: exclude[0] is other numbers; allowed: rising numbers from 0 to 5"),
        ({"exclude": (PAIR[0][[0, 2, 1, 3]] * [1, 2, 1, 1], PAIR[1])}, "op: exclude[0] is other numbers; allowed: ris"),
        ({"exclude": (PAIR[0], PAIR[1] - 1)}, "op: exclude[1][0] is -1; allowed: at least 0"),
        ({"allowlist": [1, -2]}, "op: allowlist[1] is -2; allowed: at least 0"),
        ({"allowlist": [0.5]}, "op: allowlist.dtype is float64; allowed: integers"),
        ({"allowlist": [[1], [2]]}, "op: allowlist is 2 lists; allowed: a list of ints for each of the 3 queries"),
        ({"allowlist": np.ones((3, 2))}, "op: allowlist[0].dtype is float64; allowed: integers"),
    ],
)
def test_refusals(given, message):
    with pytest.raises(dmlcpu.DmlError) as caught:
        allowed(**given)
    assert message in str(caught.value)


def test_a_sparse_matrix_has_the_shape_of_the_search():
    for shape in ((3, 10), (2, 11), (11, 3)):
        matrix = pytest.importorskip("scipy.sparse").csr_matrix(shape)
        with pytest.raises(dmlcpu.DmlError, match=r"op: exclude.shape is \(\d+, \d+\); allowed: \(3, 11\)"):
            allowed(exclude=matrix)
