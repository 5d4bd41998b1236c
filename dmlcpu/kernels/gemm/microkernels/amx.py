"""Products by the tile registers of AMX: eight of 16 rows of 64 bytes, which belong to a thread once it asks for them.

Four hold the sums of 32 rows and 32 columns, two the left rows, two the panel: each load serves two products.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.kernels.gemm.microkernels.dot import (
    AHEAD,
    AVX512VNNI,
    NR,
    ROW_STEP,
    Operands,
    emit_dot,
    make_tile_operation,
)
from dmlcpu.runtime import isa
from dmlcpu.runtime.intrinsics import emit_prefetch

ROWS = 32  # of the tallest tile of a product
TILE_ROWS, TILE_WORDS = 16, 16  # of a register
_SUMS, _LEFT, _RIGHT = 0, 4, 6  # the first register of each kind
_BYTE, _NOTHING = ir.IntType(8), ir.VoidType()
_POINTER = _BYTE.as_pointer()
# Palette 1, then bytes a row of each register (16 bits each) from byte 16 on, and rows of each from byte 48 on.
_SHAPES = [1] + [0] * 15 + [4 * TILE_WORDS, 0] * 8 + [0] * 16 + [TILE_ROWS] * 8 + [0] * 8


def _call(builder: Any, name: str, *arguments: Any) -> None:
    kind = ir.FunctionType(_NOTHING, [argument.type for argument in arguments])
    builder.call(builder.module.declare_intrinsic(f"llvm.x86.{name}", (), kind), arguments)


@intrinsic
def configure_tiles(_context):
    """Take the tile registers, all of their full size, for this thread; they are zero then."""
    isa.require(isa.Isa.AMX)

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        shapes = cgutils.alloca_once_value(builder, cgutils.create_constant_array(_BYTE, _SHAPES))
        _call(builder, "ldtilecfg", builder.bitcast(shapes, _POINTER))
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def release_tiles(_context):
    """Give the tile registers back, so that the system need not keep them for this thread."""
    isa.require(isa.Isa.AMX)

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        _call(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


def make_tile_dot(rows: int) -> Any:
    """Return what dot.make_dot does, for 16 or 32 rows and a thread with tile registers.

    Registers take 16 words along K; those that are left over go to the vector unit.
    """
    return make_tile_operation(isa.Isa.AMX, lambda builder, *operands: _emit_dot(builder, rows, Operands(*operands)))


def _emit_dot(builder: Any, rows: int, x: Operands) -> None:
    number = x.groups.type
    halves, sides = range(rows // TILE_ROWS), range(NR // TILE_WORDS)

    def move(name: str, register: int, first: Any, row_words: Any) -> None:
        step = builder.mul(row_words, number(4))
        _call(builder, name, _BYTE(register), builder.bitcast(first, _POINTER), step)

    def move_sums(name: str, first: Any, row_words: Any) -> None:
        for half in halves:
            rows_before = builder.mul(row_words, number(half * TILE_ROWS))
            for side in sides:
                place = builder.gep(first, [builder.add(rows_before, number(side * TILE_WORDS))])
                move(name, _SUMS + 2 * half + side, place, row_words)

    move_sums("tileloadd64", x.first, x.step)
    steps = builder.sdiv(x.groups, number(TILE_WORDS))
    with cgutils.for_range(builder, steps, intp=number) as loop:
        group = builder.mul(loop.index, number(TILE_WORDS))
        panel = builder.gep(x.b, [builder.mul(group, number(NR))])
        for place in range(0, TILE_WORDS * NR, 16):
            emit_prefetch(builder, builder.gep(panel, [number(AHEAD * NR + place)]))
        for half in halves:
            left = builder.gep(x.a, [builder.add(group, number(half * TILE_ROWS * ROW_STEP))])
            move("tileloadd64", _LEFT + half, left, number(ROW_STEP))
            for side in sides:
                if half == 0:
                    right = builder.gep(panel, [number(side * TILE_WORDS)])
                    move("tileloadd64", _RIGHT + side, right, number(NR))
                registers = (_SUMS + 2 * half + side, _LEFT + half, _RIGHT + side)
                _call(builder, "tdpbusd", *map(_BYTE, registers))
    move_sums("tilestored64", x.cells, number(NR))

    done = builder.mul(steps, number(TILE_WORDS))
    with builder.if_then(builder.icmp_signed("<", done, x.groups)):
        a_rest = builder.gep(x.a, [done])
        b_rest = builder.gep(x.b, [builder.mul(done, number(NR))])
        rest = Operands(a_rest, b_rest, builder.sub(x.groups, done), x.cells, x.cells, number(NR))
        emit_dot(builder, AVX512VNNI, rows, rest)
