"""Products of bytes at the speed of the instruction: nothing is loaded, and no result waits for another.

A kernel has as many accumulators as the block of its microkernel, which fit the registers and hide the latency.
"""

import functools
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dmlcpu.kernels.gemm.microkernels.amx import TILE_WORDS, configure_tiles, multiply_tiles, release_tiles
from dmlcpu.kernels.gemm.microkernels.microkernel import NR, TALLEST, Microkernel
from dmlcpu.kernels.gemm.microkernels.vectors import WORD, constant, vector
from dmlcpu.runtime import isa
from dmlcpu.runtime.intrinsics import emitted, short_loop
from dmlcpu.runtime.kernel import Kernel, kernel
from dmlcpu.runtime.records import LINE_CELLS
from dmlcpu.runtime.variants import variant

# The letters of vector registers in LLVM's inline assembly.
_REGISTERS = {"x86_64": "x", "aarch64": "w"}
_LHS, _RHS = 0x05030201, 0x04FD02FF  # no pair of bytes saturates
_AMX_PRODUCTS = TALLEST * NR * 4 * TILE_WORDS  # in an iteration


def can_measure() -> bool:
    """Return whether there is a kernel for this architecture."""
    return not isa.target_features().isdisjoint(_REGISTERS)


def multiply(part, parts, turns, done):
    """Multiply for some iterations; write the number of products to the part's line of `done`."""
    done[LINE_CELLS * part + 1] = spin(turns)  # type: ignore[name-defined] # noqa: F821
    done[LINE_CELLS * part] = turns * PRODUCTS  # type: ignore[name-defined] # noqa: F821


def make_multiply(name: str, microkernel: Microkernel) -> Kernel:
    """Return the kernel for the instruction of a microkernel."""
    unit = microkernel.unit
    accumulators = unit.rows * unit.vectors
    return variant(multiply, name, spin=_make_spin(microkernel, accumulators), PRODUCTS=unit.width * accumulators)


def _make_spin(microkernel: Microkernel, accumulators: int) -> Any:
    words = vector(WORD, microkernel.unit.lanes)

    @emitted
    def spin(builder, turns) -> types.int64:
        """Multiply once into each accumulator, for some iterations; return a lane of the sum of all accumulators."""
        isa.require(microkernel.unit.isa)
        lhs, rhs = _unknown(builder, constant(words, _LHS)), _unknown(builder, constant(words, _RHS))
        lhs, rhs = microkernel.prepare_lhs(builder, lhs), microkernel.prepare_rhs(builder, rhs)
        places = [cgutils.alloca_once_value(builder, each) for each in lhs]
        totals = [cgutils.alloca_once_value(builder, constant(words, 0)) for _ in range(accumulators)]
        with short_loop(builder, turns):
            for total in totals:
                for place in places:
                    builder.store(_unknown(builder, builder.load(place)), place)
                operands = tuple(builder.load(place) for place in places)
                builder.store(microkernel.multiply(builder, builder.load(total), operands, rhs), total)
        sums = functools.reduce(builder.add, [builder.load(total) for total in totals])
        return builder.sext(builder.extract_element(sums, WORD(0)), ir.IntType(64))

    return spin


def _unknown(builder: Any, value: Any) -> Any:
    """Emit nothing, but hide from LLVM that a vector is the same: it would multiply equal vectors only once."""
    registers = next(letter for name, letter in _REGISTERS.items() if name in isa.target_features())
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", f"={registers},0", [value], side_effect=True)


@kernel
def multiply_amx(part, parts, turns, done):
    """Do what `multiply` does with AMX's tile registers and tiles of zeros."""
    configure_tiles()
    multiply_tiles(turns)
    release_tiles()
    done[LINE_CELLS * part] = turns * _AMX_PRODUCTS
