import numpy as np
import pytest
from numba import njit

from dmlcpu.runtime.records import cells_of, record, record_at, record_of

TENSOR = record(start=np.int64, strides=(np.int64, 3))
WORK = record(n=np.int64, mask=np.uint64, x=TENSOR, y=TENSOR)
SPACE = record(64, flags=(np.uint8, 5), acc=(np.int32, (2, 3)), inner=record(64, scale=(np.float32, 4)))
VALUES = {
    "n": 7,
    "mask": 2**64 - 1,
    "x": {"start": 1, "strides": [2, 3, 4]},
    "y": {"start": -5, "strides": [6]},  # what is behind is 0
}


@njit
def read(works, index):
    work = record_at(works, index, WORK)
    return work.n, work.mask, work.x.start, work.x.strides[2], work.y.start, work.y.strides[0], work.y.strides[1]


@njit
def write(cells, index):
    space = record_at(cells, index, SPACE)
    space.flags[4] = 9
    space.acc[1, 2] = -7
    space.inner.scale[3] = 0.5


def test_a_kernel_reads_what_was_filled_in_by_name():
    works = record_of(WORK, **VALUES)
    assert works.dtype == np.int64
    assert works.size == cells_of(WORK)
    assert read(works, 0) == (7, 2**64 - 1, 1, 4, -5, 6, 0)
    assert read(np.concatenate([np.zeros(3, np.int64), works]), 3) == (7, 2**64 - 1, 1, 4, -5, 6, 0)
    assert works.view(WORK)[0]["x"]["strides"].tolist() == [2, 3, 4]


def test_a_kernel_writes_where_the_record_says():
    cells = np.zeros(8 + cells_of(SPACE), np.int64)
    write(cells, 8)
    assert not cells[:8].any()
    space = cells[8:].view(SPACE)[0]
    assert space["flags"].tolist() == [0, 0, 0, 0, 9]
    assert space["acc"].tolist() == [[0, 0, 0], [0, 0, -7]]
    assert space["inner"]["scale"].tolist() == [0, 0, 0, 0.5]


def test_arrays_of_a_workspace_start_cache_lines():
    assert [SPACE.fields[name][1] for name in SPACE.names] == [0, 64, 128]
    assert SPACE.itemsize == 192


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**VALUES, "k": 3}, r"^record as a whole: missing \[\], unknown \['k'\]$"),
        ({name: VALUES[name] for name in ("n", "x", "y")}, r"^record as a whole: missing \['mask'\], unknown \[\]$"),
        ({**VALUES, "y": {"begin": 0, "strides": []}}, r"^record y: missing \['start'\], unknown \['begin'\]$"),
    ],
)
def test_an_incomplete_record_is_refused(values, message):
    with pytest.raises(TypeError, match=message):
        record_of(WORK, **values)


def test_a_table_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match=r"^record field x.strides: a table of \(4,\); allowed: \(3,\)$"):
        record_of(WORK, **{**VALUES, "x": {"start": 0, "strides": [1, 2, 3, 4]}})
