"""A few of the calls of `random_calls.py`."""

import functools

import numpy as np
import pytest
from conformance.by_numpy import CALLS, by_numpy
from random_calls import check_call, maker
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


@pytest.mark.parametrize("name", CALLS)
def test_some_calls_are_compared_with_numpy(name):
    assert any(by_numpy(maker(name)(np.random.default_rng(seed))) is not None for seed in range(20))
