from dataclasses import replace

import numpy as np
from asv_files import load


def test_name_of_a_case_has_its_sizes():
    case = load("benchmarks.cases.quantized_matmul").QuantizedMatmulCase(2, 3, 4, per_row=True, constant_b=False)
    assert str(case) == "2x3x4 u8*s8 to u8 per row per column fresh B"


def test_most_results_are_between_the_limits_of_their_type():
    """A case whose results are all clipped would show nothing."""
    for case in load("benchmarks.cases.quantized_matmul").PARAMETERS.values():
        (y,) = replace(case, m=20, k=512, n=50).expected(1)
        limits = np.iinfo(y.dtype)
        assert ((y > limits.min) & (y < limits.max)).mean() > 0.5
