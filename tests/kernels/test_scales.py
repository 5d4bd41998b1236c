import numpy as np
import pytest

from dmlcpu.kernels.scales import are_positive, check_scales


@pytest.mark.parametrize("length", [1, 2, 7, 16, 33, 1000])
def test_one_bad_scale_anywhere_is_found(length):
    scales = np.full(length, np.finfo(np.float32).tiny, np.float32)
    scales[::2] = np.finfo(np.float32).max
    assert are_positive(scales) is True
    for bad in (0.0, -0.0, -1.0, np.inf, -np.inf, np.nan):
        for place in {0, length // 2, length - 1}:
            mine = scales.copy()
            mine[place] = bad
            assert are_positive(mine) is False


@pytest.mark.parametrize("place", range(3))
def test_the_kernel_looks_at_each_array(place):
    found = np.full(1, 7)
    scales = [np.full(length, 0.5, np.float32) for length in (1, 33, 5)]
    check_scales(1, *scales, found)
    assert found[0] == 1
    scales[place][-1] = np.nan
    check_scales(1, *scales, found)
    assert found[0] == 0
