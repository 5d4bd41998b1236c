"""A part of what `random_calls.py` does at length."""

import pytest
from random_calls import check_call

BLOCK = 250


@pytest.mark.parametrize("first", range(1_000_000, 1_000_000 + 8 * BLOCK, BLOCK))
def test_random_calls_equal_the_reference(first):
    operators = {check_call(seed) for seed in range(first, first + BLOCK)}
    assert operators == {"top_k", "scatter_nd", "quantized_matmul"}
