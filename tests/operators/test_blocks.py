"""Calls of all operators in blocks: random ones, and a stop between two blocks."""

import math

import numpy as np
import pytest
from samples import assert_same_bits, modules_of_calls
from sources import Once, Watched, arguments_of, in_blocks

from dmlcpu.common.regions import Stopped
from dmlcpu.operators import OPERATORS

CALLS = modules_of_calls()
each_operator = pytest.mark.parametrize("operator", OPERATORS)


def a_little(operator, arguments):
    """Return the least memory that a call takes, and more if hundreds of blocks of one element would follow."""
    estimate = OPERATORS[operator].blocks.estimate(**arguments)
    tensors = [value for value in arguments.values() if isinstance(value, Watched)] + list(estimate.results.values())
    return estimate.least() + 4096 * (max(math.prod(each.shape) for each in tensors) // 500)


@each_operator
@pytest.mark.parametrize("memory", [0, 1 << 20], ids=["least memory", "small blocks"])
@pytest.mark.parametrize("seed", range(25))
def test_random_calls_have_the_bits_of_the_reference(operator, memory, seed, small_blocks):
    call = CALLS[operator].random_call(np.random.default_rng(seed + memory))
    arguments = arguments_of(call)
    memory = memory or a_little(operator, arguments)
    assert_same_bits(in_blocks(operator, arguments, memory), call.expected(), str(seed))


@each_operator
def test_it_stops_between_blocks(operator, small_blocks):
    blocks, (arguments, memory) = OPERATORS[operator].blocks, CALLS[operator].call_in_blocks()
    arguments = {**arguments, **{name: Watched(arguments[name]) for name in ("x", "a", "b") if name in arguments}}
    sinks = {name: Once(tensor) for name, tensor in blocks.estimate(**arguments).results.items()}
    first = next(iter(sinks.values()))
    with pytest.raises(Stopped):
        blocks.run(arguments, sinks, memory, lambda: bool(first.times.any()))
    assert 0 < first.times.sum() < first.times.size
