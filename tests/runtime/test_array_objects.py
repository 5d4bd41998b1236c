import numpy as np
import pytest
from dmlcpu.runtime.array_objects import Rows

FLOAT, BYTE = np.dtype(np.float32), np.dtype(np.uint8)


class Subclass(np.ndarray):
    pass


def rows(told=()):
    return Rows([((2, 3), FLOAT, False), ((5,), BYTE, True)], told)


def readonly(x):
    x.setflags(write=False)
    return x


X, OUT = np.zeros((2, 3), np.float32), np.zeros(5, np.uint8)
OTHERS = {
    "a list": X.tolist(),
    "None": None,
    "an integer": 7,
    "a text": "x" * 200,
    "a scalar": np.float32(1),
    "a subclass": X.view(Subclass),
    "a masked array": np.ma.masked_array(X),
    "another type": X.astype(np.int32),
    "another width": X.astype(np.float64),
    "another byte order": X.astype(FLOAT.newbyteorder()),
    "another shape": X.reshape(3, 2),
    "fewer dimensions": X.reshape(-1),
    "more dimensions": X[np.newaxis],
    "no dimensions": np.zeros((), np.float32),
    "a shorter array": X[:1],
    "strided": np.zeros((2, 6), np.float32)[:, ::2],
    "in the order of Fortran": np.asfortranarray(X),
    "reversed": X[::-1],
    "broadcast": np.broadcast_to(np.float32(1), (2, 3)),
    "read-only": readonly(X.copy()),
    "misaligned": np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3),
}


@pytest.mark.parametrize("other", OTHERS)
def test_only_packed_arrays_of_the_type_and_shape_fit(other):
    told = np.zeros(2, np.int64)
    looked = rows([[told.ctypes.data], [told.ctypes.data + 8]])
    assert looked.fit((X, OUT))
    assert told.tolist() == [X.ctypes.data, OUT.ctypes.data]
    told[...] = 0
    assert not looked.fit((OTHERS[other], OUT))
    assert not looked.fit((X, OTHERS[other]))
    assert told.tolist() == [0, 0]
    assert looked.fit((X.copy(), np.concatenate([OUT, OUT])[5:]))  # views fit as well


def test_an_array_is_told_to_two_cells():
    told = np.zeros(3, np.int64)
    first = told.ctypes.data
    assert rows([[first, first + 16], []]).fit((X, OUT))
    assert told.tolist() == [X.ctypes.data, 0, X.ctypes.data]


@pytest.mark.parametrize("start", range(0, 40, 4))
def test_outputs_share_no_memory(start):
    room = np.zeros(64, np.uint8)
    x, out = room[8:32].view(np.float32).reshape(2, 3), room[start : start + 5]
    assert rows().fit((x, out)) is not np.shares_memory(x, out)
    assert Rows([((5,), BYTE, True), ((2, 3), FLOAT, False)]).fit((out, x)) is not np.shares_memory(x, out)
    assert Rows([((5,), BYTE, True), ((2, 3), FLOAT, True)]).fit((out, x)) is not np.shares_memory(x, out)
    assert Rows([((5,), BYTE, False), ((2, 3), FLOAT, False)]).fit((out, x))
