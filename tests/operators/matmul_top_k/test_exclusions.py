import numpy as np
import pytest
from operators.matmul_top_k.calls import QUERY, VECTORS, select
from samples import assert_same_bits
from sources import in_blocks

import dmlcpu
from dmlcpu import reference
from dmlcpu.operators import OPERATORS
from dmlcpu.operators.matmul_top_k.blocks import _bits_of
from dmlcpu.runtime.threads import use_budget


def restrictions(rng, rows, columns):
    """Yield masks and exclusions of each form; some rows may select nothing."""
    table = rng.random((rows, columns)) < rng.choice([0.05, 0.5, 0.97], (rows, 1))
    lists = [np.flatnonzero(~line).tolist() for line in table]
    starts, numbers = np.cumsum([0, *map(len, lists)]), np.concatenate([*map(np.array, lists), []]).astype(np.int64)
    yield {"mask": table[0]}
    yield {"mask": table}
    yield {"exclude": ~table}
    yield {"exclude": lists}
    yield {"exclude": (starts, numbers)}
    yield {"mask": rng.random(columns) < 0.8, "exclude": [[*line, columns + 5] for line in lists]}
    yield {"mask": np.zeros(columns, bool)}


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("columns", [0, 1, 33, 500])
def test_only_columns_that_are_allowed_are_selected(rows, columns):
    rng = np.random.default_rng(rows * columns)
    a, vectors = rng.integers(-3, 4, (rows, 20)).astype(np.int8), rng.integers(-3, 4, (columns, 20)).astype(np.int8)
    scales = rng.choice([0.5, -1, np.nan, np.inf], columns).astype(np.float32)
    for place, own in enumerate(restrictions(rng, rows, columns)):
        k = (columns, min(10, columns))[place % 2]
        for options in ({"a_zero_point": 2, "bias": 3}, {"b_scale": scales, "mode": "smallest", "nan": "last"}):
            arguments = {"k": k, **own, **options}
            with np.errstate(invalid="ignore"):
                right = reference.matmul_top_k(a, vectors.T, **arguments)
            for b in (vectors.T, np.ascontiguousarray(vectors.T), dmlcpu.pack_b(vectors.T)):
                assert_same_bits(select(a, b, **arguments), right, str(arguments))
            with use_budget(1, kernel="reference"):
                assert_same_bits(select(a, vectors.T, **arguments), right, str(arguments))


def test_fewer_columns_than_k():
    found = select(exclude=[[1, 3, 99]], k=3)
    assert (found.values.tolist(), found.indices.tolist()) == ([[2, 2, -(2**31)]], [[0, 2, -1]])
    found = select(QUERY[0], mask=[False, False, False, True], a_scale=1, mode="smallest")
    assert (found.values.tolist(), found.indices.tolist()) == ([10, np.inf], [3, -1])
    assert select(QUERY[0], exclude=[0, 1], k=1).indices.tolist() == [3]


def test_a_sparse_matrix_excludes():
    sparse = pytest.importorskip("scipy.sparse")
    table = sparse.csr_matrix(np.array([[0, 1, 0, 0], [1, 0, 0, 1]]))
    for own in (table, table.tocoo()):
        assert select(np.repeat(QUERY, 2, axis=0), k=1, exclude=own).indices.tolist() == [[3], [1]]


def test_a_bound_mask_is_read_at_each_call():
    mask = np.ones(4, bool)
    best = dmlcpu.bind(dmlcpu.matmul_top_k, QUERY, VECTORS.T, 1, mask=mask)
    assert best().indices.tolist() == [[1]]
    mask[1] = False
    assert best().indices.tolist() == [[3]]


def test_the_bits_of_a_region():
    """It may begin and end within a byte."""
    table = np.random.default_rng(0).random((5, 77)) < 0.5
    mask = np.packbits(table, axis=1, bitorder="little")
    for start in (0, 3, 8, 21, 69, 76):
        for stop in {start + 1, min(start + 7, 77), min(start + 17, 77), 77}:
            for of_rows, lines in ((mask, table[1:3]), (mask[:1], table[:1])):
                bits = _bits_of(of_rows, slice(1, 3), slice(start, stop))
                found = np.unpackbits(bits, axis=1, count=stop - start, bitorder="little")
                assert (found == lines[:, start:stop]).all(), (start, stop)


@pytest.mark.parametrize("more", [0, 500], ids=["one column each", "four columns each"])
def test_masks_in_blocks(small_blocks, more):
    """Blocks of columns that begin within a byte of the mask; scores that equal those of places without a column."""
    rng, row = np.random.default_rng(9), OPERATORS["matmul_top_k"]
    a, vectors = rng.integers(0, 2, (9, 40)).astype(np.int8), rng.integers(0, 2, (44, 40)).astype(np.int8)
    scales = rng.choice([0.5, np.nan, -np.inf], 44).astype(np.float32)
    for own in restrictions(rng, 9, 44):
        for options in ({}, {"b_scale": scales, "nan": "last"}):
            arguments = {"a": a, "b": vectors.T, "k": 10, **own, **options}
            memory = row.blocks.estimate(**arguments).least() + more
            with np.errstate(invalid="ignore"):
                found, right = in_blocks("matmul_top_k", arguments, memory), reference.matmul_top_k(**arguments)
            assert_same_bits(found, right, str(own))
