import numpy as np
from asv_files import load


def test_name_of_a_case_has_its_sizes():
    case = load("benchmarks.cases.scatter_nd").ScatterNDCase((5, 6), 3, rows=2, reduction="add", in_place=True)
    assert str(case) == "3 of 6 on 2 rows into 5x6 add in place float32"


def test_each_update_has_a_place_of_its_own():
    case = load("benchmarks.cases.scatter_nd").ScatterNDCase((50, 60), 1_000, coordinates=2)
    x, indices, updates = case.inputs()
    assert (x.shape, indices.shape, updates.shape) == ((50, 60), (1_000, 2), (1_000,))
    assert len(np.unique(indices, axis=0)) == 1_000
