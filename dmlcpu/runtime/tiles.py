"""Products by the tile registers of AMX: eight of 16 rows of 64 bytes, which belong to a thread once it asks for them.

Four hold the sums of 32 rows and 32 columns, two the left rows, two the panel: each load serves two products.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime import isa
from dmlcpu.runtime.dots import AHEAD, AVX512VNNI, COLUMNS, ROW_STEP, address, emit_dot
from dmlcpu.runtime.intrinsics import request_line

ROWS = 32  # of the tallest tile of a product
TILE_ROWS, TILE_WORDS = 16, 16  # of a register
_SUMS, _LEFT, _RIGHT = 0, 4, 6  # the first register of each kind
_BYTE, _LONG, _NOTHING = ir.IntType(8), ir.IntType(64), ir.VoidType()
_POINTER = _BYTE.as_pointer()
# Palette 1, then bytes a row of each register (16 bits each) from byte 16 on, and rows of each from byte 48 on.
_SHAPES = [1] + [0] * 15 + [4 * TILE_WORDS, 0] * 8 + [0] * 16 + [TILE_ROWS] * 8 + [0] * 8


def _call(builder: Any, name: str, *arguments: Any) -> None:
    kind = ir.FunctionType(_NOTHING, [argument.type for argument in arguments])
    builder.call(builder.module.declare_intrinsic(f"llvm.x86.{name}", (), kind), arguments)


@intrinsic
def configure_tiles(_context):  # type: ignore[no-untyped-def]
    """Take the tile registers, all of their full size, for this thread; they are zero then."""
    isa.require(isa.Isa.AMX)

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        shapes = cgutils.alloca_once_value(builder, cgutils.create_constant_array(_BYTE, _SHAPES))
        _call(builder, "ldtilecfg", builder.bitcast(shapes, _POINTER))
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def release_tiles(_context):  # type: ignore[no-untyped-def]
    """Give the tile registers back, so that the system need not keep them for this thread."""
    isa.require(isa.Isa.AMX)

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        _call(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


def make_tile_dot(rows: int) -> Any:
    """Return what dots.make_dot does, for 16 or 32 rows and a thread with tile registers.

    Registers take 16 words along K; those that are left over go to the vector unit.
    """

    @intrinsic
    def dot(_context, a, a_start, b, b_start, groups, tile):  # type: ignore[no-untyped-def]
        isa.require(isa.Isa.AMX)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, a_start, _, b_start, groups, _ = arguments
            number = groups.type
            a_words = address(context, builder, signature, arguments, 0, a_start)
            b_words = address(context, builder, signature, arguments, 2, b_start)
            cells = address(context, builder, signature, arguments, 5, number(0))

            def move(name: str, register: int, first: Any, row_bytes: int) -> None:
                place = builder.bitcast(first, _POINTER)
                _call(builder, name, _BYTE(register), place, _LONG(row_bytes))

            def each_sum() -> Any:
                for half in range(rows // TILE_ROWS):
                    for side in range(2):
                        place = builder.gep(cells, [number(half * TILE_ROWS * COLUMNS + side * TILE_WORDS)])
                        yield _SUMS + 2 * half + side, half, side, place

            for register, _, _, place in each_sum():
                move("tileloadd64", register, place, 4 * COLUMNS)
            steps = builder.sdiv(groups, number(TILE_WORDS))
            with cgutils.for_range(builder, steps, intp=number) as loop:
                first = builder.mul(loop.index, number(TILE_WORDS))
                panel = builder.gep(b_words, [builder.mul(first, number(COLUMNS))])
                for place in range(0, TILE_WORDS * COLUMNS, 16):
                    request_line(builder, builder.gep(panel, [number(AHEAD * COLUMNS + place)]))
                for half in range(rows // TILE_ROWS):
                    left = builder.gep(a_words, [builder.add(first, number(half * TILE_ROWS * ROW_STEP))])
                    move("tileloadd64", _LEFT + half, left, 4 * ROW_STEP)
                    for side in range(2):
                        if half == 0:
                            right = builder.gep(panel, [number(side * TILE_WORDS)])
                            move("tileloadd64", _RIGHT + side, right, 4 * COLUMNS)
                        registers = (_SUMS + 2 * half + side, _LEFT + half, _RIGHT + side)
                        _call(builder, "tdpbusd", *map(_BYTE, registers))
            for register, _, _, place in each_sum():
                move("tilestored64", register, place, 4 * COLUMNS)

            done = builder.mul(steps, number(TILE_WORDS))
            with builder.if_then(builder.icmp_signed("<", done, groups)):
                a_rest = builder.gep(a_words, [done])
                b_rest = builder.gep(b_words, [builder.mul(done, number(COLUMNS))])
                emit_dot(builder, AVX512VNNI, rows, a_rest, b_rest, builder.sub(groups, done), cells)
            return context.get_dummy_value()

        return types.void(a, types.intp, b, types.intp, types.intp, tile), generate

    return dot
