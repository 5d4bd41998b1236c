"""What the tests of compiled callers share."""

import contextlib

import pytest
from numba import njit
from numba.core.errors import TypingError
from numba.core.runtime import _nrt_python, rtsys

import dmlcpu
from dmlcpu.interop import numba as ours

ours._init()  # what Numba does by itself, if it finds the entry point of an installed package


@njit
def largest(x, k):
    return dmlcpu.top_k(x, k)


@njit
def into(x, k, values, indices):
    return dmlcpu.top_k(x, k, out=(values, indices))


def error_of(function, *args, **kwargs):
    with pytest.raises(dmlcpu.DmlError) as caught:
        function(*args, **kwargs)
    return type(caught.value), str(caught.value), caught.value.args


@contextlib.contextmanager
def no_allocations(arrays):
    """Hold that compiled code allocates nothing but the header that Numba makes of each array it is called with."""
    _nrt_python.memsys_enable_stats()
    try:
        before = rtsys.get_allocation_stats()
        yield
        after = rtsys.get_allocation_stats()
    finally:
        _nrt_python.memsys_disable_stats()
    assert (after.alloc, after.mi_alloc) == (before.alloc + arrays, before.mi_alloc + arrays)


def refusal_of(function, *args):
    with pytest.raises(TypingError) as caught:
        function(*args)
    return str(caught.value)
