"""What is particular of sort: it may write to x itself."""

import numpy as np
import pytest
from samples import assert_same_bits

import dmlcpu
from dmlcpu import reference
from dmlcpu.errors import BindingError
from dmlcpu.runtime.threads import use_budget


@pytest.mark.parametrize("shape", [(300,), (20, 40), (3, 500), (400, 5), (1, 100_000)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_x_may_be_sorted_in_place(shape, dtype, thread_count):
    x = np.random.default_rng(1).integers(0, 99, shape).astype(dtype)
    for axis in range(x.ndim):
        for some in (x.copy(), np.asfortranarray(x), np.repeat(x, 2, axis=-1)[..., ::-2]):
            expected = reference.sort(some, axis)
            assert dmlcpu.sort(some, axis, out=some) is some
            assert_same_bits(some, expected)


def test_a_bound_sort_in_place_reads_x_again():
    x = np.array([3, 1, 2])
    run = dmlcpu.bind(dmlcpu.sort, x, out=x)
    run()
    assert x.tolist() == [1, 2, 3]
    x[:] = 9, 8, 7
    run()
    assert x.tolist() == [7, 8, 9]


def test_a_part_of_x_is_refused():
    x = np.array([3, 1, 2, 0])
    with pytest.raises(BindingError, match=r"^sort: out is sharing memory with x \(it may be x itself, but not a part"):
        dmlcpu.sort(x[:3], out=x[1:])
    with pytest.raises(BindingError, match=r"^sort: out"):
        dmlcpu.sort(x, out=x[::-1])
    assert x.tolist() == [3, 1, 2, 0]


def test_values_alone_are_sorted_by_keys_of_each_width():
    rng = np.random.default_rng(2)
    with use_budget(1):
        for dtype in ("int8", "uint16", "float16", "float32"):
            x = rng.integers(-99, 99, 5000).astype(dtype)
            assert_same_bits(dmlcpu.sort(x), np.sort(x))
            assert_same_bits(dmlcpu.sort(x, descending=True), np.sort(x)[::-1].copy())
