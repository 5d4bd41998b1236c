"""Calls of all operators in blocks: random ones, and a stop between two blocks."""

import importlib

import numpy as np
import pytest
from samples import assert_same_bits
from sources import Once, Watched, arguments_of, in_blocks

from dmlcpu.common.regions import Stopped
from dmlcpu.operators import OPERATORS

_PRODUCT = {"a": np.zeros((500, 60), np.uint8), "b": np.zeros((60, 70), np.int8), "b_zero_point": 3, "a_zero_point": 5}
# Of each operator a call in many blocks, and memory for more than one block.
LARGE = {
    "top_k": ({"x": np.zeros((50, 400), np.float32), "k": 1}, 1 << 20),
    "scatter_nd": (
        {"x": np.zeros((50, 400), np.float32), "indices": [[1]], "updates": np.zeros((1, 400), np.float32)},
        1 << 16,
    ),
    "matmul_integer": (_PRODUCT, 1 << 22),
    "quantized_matmul": ({**_PRODUCT, "a_scale": 0.5, "b_scale": 0.25, "y_scale": 8.0, "y_zero_point": None}, 1 << 22),
}
each_operator = pytest.mark.parametrize("operator", OPERATORS)


@each_operator
@pytest.mark.parametrize("memory", [0, 1 << 20], ids=["least memory", "small blocks"])
@pytest.mark.parametrize("seed", range(40))
def test_random_calls_have_the_bits_of_the_reference(operator, memory, seed, small_blocks):
    random_call = importlib.import_module(f"operators.{operator}.calls").random_call
    call = random_call(np.random.default_rng(seed + memory))
    assert_same_bits(in_blocks(operator, arguments_of(call), memory), call.expected(), str(seed))


@each_operator
def test_it_stops_between_blocks(operator, small_blocks):
    blocks, (arguments, memory) = OPERATORS[operator].blocks, LARGE[operator]
    looks = iter([False, False, True])
    arguments = {**arguments, **{name: Watched(arguments[name]) for name in ("x", "a", "b") if name in arguments}}
    if operator == "scatter_nd":
        arguments["mode"] = "drop"  # indices are not looked at before
    sinks = {name: Once(tensor) for name, tensor in blocks.estimate(**arguments).results.items()}
    with pytest.raises(Stopped):
        blocks.run(arguments, sinks, memory, lambda: next(looks))
    first = next(iter(sinks.values()))
    assert 0 < first.times.sum() < first.times.size
