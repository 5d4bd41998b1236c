"""The kernels that multiply do all their products, by the instruction of their microkernel."""

import re

import numba
import numpy as np
import pytest
from numba import njit

from dmlcpu.kernels import registry
from dmlcpu.kernels.measure.multiply import can_measure
from dmlcpu.runtime.isa import Isa
from dmlcpu.runtime.records import LINE_CELLS

if not can_measure():
    pytest.skip("there is no kernel for this architecture", allow_module_level=True)

# The instruction, and how many of them are in a turn: with fewer, LLVM has taken equal products for one.
INSTRUCTIONS = {
    Isa.GENERIC: ("v?pmaddwd|vpdpwssd|smlal2?|smull2?", 16),
    Isa.AVX2: ("vpmaddubsw", 8),
    Isa.AVXVNNI: ("vpdpbusd", 12),
    Isa.AVX512VNNI: ("vpdpbusd", 24),
    Isa.AMX: ("tdpbusd", 4),
    Isa.DOTPROD: ("sdot", 16),
    Isa.I8MM: ("usdot", 24),
}
ROWS = registry.available("measure", "multiply")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_part_counts_its_products(row):
    done = np.zeros(3 * LINE_CELLS, np.int64)
    row.kernel(3, 1, done)
    of_a_turn = done[::LINE_CELLS].tolist()
    assert of_a_turn == [of_a_turn[0]] * 3
    assert of_a_turn[0] > 0
    row.kernel(3, 7, done)
    assert done[::LINE_CELLS].tolist() == [7 * each for each in of_a_turn]


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.isa not in (Isa.AMX, Isa.DOTPROD)], ids=lambda row: row.name
)
def test_the_sum_is_that_of_all_products(row):
    """Of a lane: four products a turn in each accumulator, (1, 2, 3, 5) by (-1, 2, -3, 4)."""
    done = np.zeros(LINE_CELLS, np.int64)
    row.kernel(1, 5, done)
    _, accumulators = INSTRUCTIONS[row.isa]
    if row.isa is Isa.GENERIC:
        accumulators //= 2  # two instructions for each
    assert done[1] == 14 * 5 * accumulators


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_no_product_is_left_out(row):
    kernel = njit(row.kernel.function)  # compiled here: what the cache has cannot be looked at
    kernel.compile((numba.intp, numba.intp, numba.int64, numba.int64[::1]))
    (assembly,) = kernel.inspect_asm().values()
    instruction, count = INSTRUCTIONS[row.isa]
    assert count_of(instruction, assembly) >= count


def count_of(instruction, assembly):
    """Count an instruction in assembly; with AVX-VNNI, LLVM writes its encoding before it: `{vex} vpdpbusd`."""
    return len(re.findall(rf"^\s+(?:{{\w+}}\s+)?(?:{instruction})\b", assembly, re.MULTILINE))


def test_an_instruction_is_counted_with_and_without_its_encoding():
    assembly = "start:\n\t{vex}\tvpdpbusd\t%ymm0\n\tvpdpbusd\t%ymm1\n\t{vex}\tvpdpbusds\t%ymm2\n\t#vpdpbusd\n"
    assert count_of("vpdpbusd", assembly) == 2
