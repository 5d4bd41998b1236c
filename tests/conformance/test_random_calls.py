"""A few of the calls of `random_calls.py`."""

import functools

import pytest
from random_calls import check_call
from samples import random_example

from dmlcpu.operators import OPERATORS

BLOCK = 125


@pytest.mark.parametrize("first", range(1_000_000, 1_000_000 + 8 * BLOCK, BLOCK))
def test_random_calls_equal_the_reference(first):
    operators = {check_call(seed) for seed in range(first, first + BLOCK)}
    assert operators == set(OPERATORS)


@pytest.mark.parametrize("name", OPERATORS)
def test_examples_in_other_layouts_equal_the_reference(name):
    """This covers operators without random calls of their own."""
    example = functools.partial(random_example, operator=name)
    assert {check_call(seed, [example]) for seed in range(50)} == {name}
