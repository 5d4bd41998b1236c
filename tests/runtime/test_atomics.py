"""Operations on words that several threads use, as one thread sees them; test_pool.py has several."""

import numpy as np
from jitted import jitted

from dmlcpu.runtime import atomics


def test_each_operation_returns_what_the_cell_was():
    cells = np.array([3, 8])
    assert jitted(atomics.load)(cells, 1) == 8
    assert jitted(atomics.fetch_add)(cells, 1) == 8
    assert jitted(atomics.exchange)(cells, 1, 20) == 9
    compare_exchange = jitted(atomics.compare_exchange)
    assert compare_exchange(cells, 1, 9, 30) == 20
    assert cells.tolist() == [3, 20]
    assert compare_exchange(cells, 1, 20, 30) == 20
    assert cells.tolist() == [3, 30]
