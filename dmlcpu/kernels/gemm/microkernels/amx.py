"""Microkernels of AMX's tile registers: eight registers of 16 rows of 64 bytes, which each thread configures.

Four registers hold the accumulators of 32 rows and 32 columns, two the left-hand side, and two the panel. So each load
serves two products.
"""

import functools
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from dmlcpu.kernels.gemm.microkernels import microkernel as vectors
from dmlcpu.kernels.gemm.microkernels.microkernel import NR, PREFETCH, ROW_STEP, TALLEST, Operands, make_tile_operation
from dmlcpu.kernels.gemm.microkernels.vectors import BYTE, call
from dmlcpu.kernels.gemm.microkernels.x86 import AVX512VNNI
from dmlcpu.runtime import isa
from dmlcpu.runtime.intrinsics import emit_prefetch, emitted, short_loop
from dmlcpu.runtime.records import CACHE_LINE

TILE_ROWS, TILE_WORDS = 16, 16  # of a register
_ACC, _LHS, _RHS = 0, 4, 6  # the first register of each kind
_POINTER = BYTE.as_pointer()
# Palette 1; from byte 16 on, the bytes in a row of each register (16 bits each); from byte 48 on, the rows of each.
_SHAPES = [1] + [0] * 15 + [4 * TILE_WORDS, 0] * 8 + [0] * 16 + [TILE_ROWS] * 8 + [0] * 8
_SIDES = range(NR // TILE_WORDS)


def _call(builder: Any, name: str, *arguments: Any) -> None:
    call(builder, f"llvm.x86.{name}", ir.VoidType(), list(arguments))


@emitted
def configure_tiles(builder):
    """Configure all tile registers of this thread at full size; this zeroes them."""
    isa.require(isa.Isa.AMX)
    shapes = cgutils.alloca_once_value(builder, cgutils.create_constant_array(BYTE, _SHAPES))
    _call(builder, "ldtilecfg", builder.bitcast(shapes, _POINTER))


@emitted
def release_tiles(builder):
    """Release the tile registers, so that the system need not save them for this thread."""
    isa.require(isa.Isa.AMX)
    _call(builder, "tilerelease")


@emitted
def multiply_tiles(builder, turns):
    """For some iterations, multiply the tiles in the registers once into each accumulator."""
    isa.require(isa.Isa.AMX)
    with short_loop(builder, turns):
        for half in range(TALLEST // TILE_ROWS):
            for side in _SIDES:
                _multiply(builder, half, side)


def make_tile_dot(rows: int) -> Any:
    """Return a dot like `make_dot`'s, by tiles for 16 or 32 rows; the vector unit multiplies the last words of K."""
    return make_tile_operation(isa.Isa.AMX, functools.partial(_emit_dot, rows=rows))


def _emit_dot(builder: Any, x: Operands, rows: int) -> None:
    number = x.groups.type
    _move_acc(builder, "tileloadd64", rows, x.c_in, x.step)
    steps = builder.sdiv(x.groups, number(TILE_WORDS))
    with cgutils.for_range(builder, steps, intp=number) as loop:
        _emit_step(builder, rows, x, builder.mul(loop.index, number(TILE_WORDS)))
    _move_acc(builder, "tilestored64", rows, x.acc, number(NR))

    done = builder.mul(steps, number(TILE_WORDS))
    with builder.if_then(builder.icmp_signed("<", done, x.groups)):
        a_rest = builder.gep(x.a, [done])
        b_rest = builder.gep(x.b, [builder.mul(done, number(NR))])
        rest = Operands(a_rest, b_rest, builder.sub(x.groups, done), c_in=x.acc, step=number(NR), acc=x.acc)
        vectors.emit_dot(builder, rest, AVX512VNNI, rows)


def _emit_step(builder: Any, rows: int, x: Operands, group: Any) -> None:
    """Emit the products of 16 words along K."""
    number = group.type
    panel = builder.gep(x.b, [builder.mul(group, number(NR))])
    for place in range(0, TILE_WORDS * NR, CACHE_LINE // 4):
        emit_prefetch(builder, builder.gep(panel, [number(PREFETCH * NR + place)]))
    for half in range(rows // TILE_ROWS):
        lhs = builder.gep(x.a, [builder.add(group, number(half * TILE_ROWS * ROW_STEP))])
        _move(builder, "tileloadd64", _LHS + half, lhs, number(ROW_STEP))
        for side in _SIDES:
            if half == 0:
                rhs = builder.gep(panel, [number(side * TILE_WORDS)])
                _move(builder, "tileloadd64", _RHS + side, rhs, number(NR))
            _multiply(builder, half, side)


def _multiply(builder: Any, half: int, side: int) -> None:
    _call(builder, "tdpbusd", *map(BYTE, (_acc_register(half, side), _LHS + half, _RHS + side)))


def _acc_register(half: int, side: int) -> int:
    return _ACC + len(_SIDES) * half + side


def _move_acc(builder: Any, name: str, rows: int, first: Any, step: Any) -> None:
    """Load or store the accumulators. step: words between rows in memory."""
    for half in range(rows // TILE_ROWS):
        rows_before = builder.mul(step, step.type(half * TILE_ROWS))
        for side in _SIDES:
            place = builder.gep(first, [builder.add(rows_before, step.type(side * TILE_WORDS))])
            _move(builder, name, _acc_register(half, side), place, step)


def _move(builder: Any, name: str, register: int, first: Any, step: Any) -> None:
    step_bytes = builder.mul(step, step.type(4))
    _call(builder, name, BYTE(register), builder.bitcast(first, _POINTER), step_bytes)
