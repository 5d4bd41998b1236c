import numpy as np
from numba import njit

from dmlcpu.kernels.brief import make_brief, section
from dmlcpu.kernels.gemm import work as product_brief


def test_sections_come_out_as_they_went_in():
    sections = [7, -1], [], np.arange(6).reshape(2, 3), [2**62]
    brief = make_brief(*sections)
    assert brief.dtype == np.int64
    assert [section.py_func(brief, i).tolist() for i in range(4)] == [[7, -1], [], [0, 1, 2, 3, 4, 5], [2**62]]


@njit
def unpack_product(brief):
    return product_brief.unpack(brief)


def test_what_quantized_matmul_is_told():
    numbers = product_brief.Numbers(*range(100, 100 + len(product_brief.Numbers._fields)))
    brief = product_brief.make_brief(numbers, np.arange(20).reshape(10, 2))
    assert unpack_product(brief) == numbers
