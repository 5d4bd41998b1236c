"""Products of small tiles of bytes, as LLVM operations: one intrinsic for each instruction set and number of rows.

Everything is 32-bit words of four bytes that follow one another along K: unsigned ones on the left, signed ones on the
right. A multiplier turns a word of the left, copied to all lanes of a vector, and a vector of words of the right into
sums of four products a lane. Sums wrap at 32 bits, so they are exact whenever the result fits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime import isa
from dmlcpu.runtime.intrinsics import address, emit_prefetch, splat
from dmlcpu.runtime.isa import Isa

NR = 32  # of a tile, and of a panel of the right operand
ROWS = 12  # of the tallest tile of a vector unit
KC = 256  # words of a row of the left operand, at most
# From one row to the next: more than a chunk by a cache line, as rows a power of two apart compete for the same cache
# sets; and constant, so that one register addresses all rows.
ROW_STEP = KC + 16

# How many groups ahead of their use words of b are asked for.
AHEAD = 64

_WORD = ir.IntType(32)
_HALF = ir.IntType(16)


class Microkernel(NamedTuple):
    """How an instruction set multiplies. A tile is worked on `height` rows and `vectors` vectors of columns at a time.

    These are chosen so that the sums, the right operand and one word of the left fit its vector registers.
    """

    isa: Isa
    lanes: int
    vectors: int
    height: int
    left: Callable[[Any, Any], tuple[Any, ...]]  # what is done once with each vector of copies of a word of the left
    right: Callable[[Any, Any], tuple[Any, ...]]  # and with each vector of the right
    multiply: Callable[..., Any]  # (builder, sums, left, right) -> sums

    @property
    def name(self) -> str:
        """The name of the instruction set, as it stands in the names of kernels."""
        return self.isa.name.lower()

    @property
    def block(self) -> tuple[int, int, int]:
        """Rows, columns and depth of what is in registers at a time."""
        return self.height, self.lanes * self.vectors, 4


def _vector(lanes: int) -> Any:
    return ir.VectorType(_WORD, lanes)


def _as_it_is(_builder: Any, words: Any) -> tuple[Any, ...]:
    return (words,)


def _dot_instruction(builder: Any, sums: Any, left: tuple[Any, ...], right: tuple[Any, ...]) -> Any:
    """Multiply and add in one instruction, vpdpbusd."""
    kind = sums.type
    name = f"llvm.x86.avx512.vpdpbusd.{32 * kind.count}"  # LLVM's name for both encodings, EVEX and VEX
    function = builder.module.declare_intrinsic(name, (), ir.FunctionType(kind, [kind] * 3))
    return builder.call(function, [sums, left[0], right[0]])


def _halves(builder: Any, words: Any) -> Any:
    return builder.bitcast(words, ir.VectorType(_HALF, 2 * words.type.count))


def _eight(kind: Any) -> Any:
    return ir.Constant(kind, [ir.Constant(_HALF, 8)] * kind.count)


def _even_and_odd_unsigned(builder: Any, words: Any) -> tuple[Any, ...]:
    """Widen the bytes to 16 bits: those of even number, and those of odd number."""
    halves = _halves(builder, words)
    low = ir.Constant(halves.type, [ir.Constant(_HALF, 255)] * halves.type.count)
    return builder.and_(halves, low), builder.lshr(halves, _eight(halves.type))


def _even_and_odd_signed(builder: Any, words: Any) -> tuple[Any, ...]:
    halves = _halves(builder, words)
    eight = _eight(halves.type)
    return builder.ashr(builder.shl(halves, eight), eight), builder.ashr(halves, eight)


def _pair_products(builder: Any, a: Any, b: Any) -> Any:
    """Return a0 b0 + a1 b1 of 16-bit pairs in 32 bits: LLVM makes it one instruction where there is one (pmaddwd)."""
    lanes = a.type.count // 2
    wide = ir.VectorType(_WORD, 2 * lanes)
    products = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    parts = [
        builder.shuffle_vector(
            products, products, ir.Constant(_vector(lanes), [ir.Constant(_WORD, 2 * i + odd) for i in range(lanes)])
        )
        for odd in (0, 1)
    ]
    return builder.add(*parts)


def _dot_widened(builder: Any, sums: Any, left: tuple[Any, ...], right: tuple[Any, ...]) -> Any:
    for a, b in zip(left, right, strict=True):
        sums = builder.add(sums, _pair_products(builder, a, b))
    return sums


# The generic one is AVX2's on vectors of 128 bits, which every processor has or LLVM imitates.
GENERIC = Microkernel(Isa.GENERIC, 4, 2, 4, _even_and_odd_unsigned, _even_and_odd_signed, _dot_widened)
AVX2 = Microkernel(Isa.AVX2, 8, 2, 4, _even_and_odd_unsigned, _even_and_odd_signed, _dot_widened)
AVXVNNI = Microkernel(Isa.AVXVNNI, 8, 2, 6, _as_it_is, _as_it_is, _dot_instruction)
AVX512VNNI = Microkernel(Isa.AVX512VNNI, 16, 2, 12, _as_it_is, _as_it_is, _dot_instruction)


def make_dot(rows: int, microkernel: Microkernel) -> Any:
    """Return an intrinsic that adds a product of so many rows to sums.

    dot(a, a_start, b, b_start, groups, cells, first, step): a: uint32, rows ROW_STEP apart, of `groups` words (at most
    KC); b: uint32 (groups, NR), on a cache line; cells: int32, on a cache line. What the products of each row
    are added to lies at cells[first], rows `step` apart, so 0 starts all rows with the same; the sums go to
    cells[: rows * NR]. Arrays are flat.
    """
    return make_tile_operation(
        microkernel.isa, lambda builder, *operands: emit_dot(builder, microkernel, rows, Operands(*operands))
    )


class Operands(NamedTuple):
    """What a product is emitted for: addresses of words, and numbers."""

    a: Any
    b: Any
    groups: Any
    cells: Any
    first: Any  # the address of what the sums start with
    step: Any


def make_tile_operation(needs: Isa, emit: Callable[..., None]) -> Any:
    """Return the intrinsic of make_dot's arguments that `emit` writes."""

    @intrinsic
    def dot(_context, a, a_start, b, b_start, groups, cells, first, step):
        isa.require(needs)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def place(array: int, index: Any) -> Any:
                return address(context, builder, signature, arguments, array, index)

            _, a_start, _, b_start, groups, _, first, step = arguments
            emit(builder, place(0, a_start), place(2, b_start), groups, place(5, step.type(0)), place(5, first), step)
            return context.get_dummy_value()

        index = types.intp
        return types.void(a, index, b, index, index, cells, index, index), generate

    return dot


def emit_dot(builder: Any, microkernel: Microkernel, rows: int, x: Operands) -> None:
    """Emit what make_dot describes."""
    number, lanes, vectors = x.groups.type, microkernel.lanes, microkernel.vectors
    align = min(64, 4 * lanes)
    for first in range(0, rows, microkernel.height):
        for column in range(0, NR, lanes * vectors):
            keys = [(row, v) for row in range(first, min(rows, first + microkernel.height)) for v in range(vectors)]
            sums = {}
            for row, v in keys:
                place = builder.add(builder.mul(number(row), x.step), number(column + v * lanes))
                start = load(builder, builder.gep(x.first, [place]), lanes, align)
                sums[row, v] = cgutils.alloca_once_value(builder, start)
            _add_products(builder, microkernel, x.a, builder.gep(x.b, [number(column)]), x.groups, sums)
            for row, v in keys:
                place = builder.gep(x.cells, [number(row * NR + column + v * lanes)])
                target = builder.bitcast(place, _vector(lanes).as_pointer())
                builder.store(builder.load(sums[row, v]), target, align=align)


def _add_products(
    builder: Any, microkernel: Microkernel, a: Any, b: Any, groups: Any, sums: dict[tuple[int, int], Any]
) -> None:
    """Emit the loop over groups of four. sums: allocated vectors by (row, vector)."""
    number, lanes = groups.type, microkernel.lanes
    with cgutils.for_range(builder, groups, intp=number) as loop:
        line = builder.gep(b, [builder.mul(loop.index, number(NR))])
        words = builder.gep(a, [loop.index])
        for place in range(0, 4 * NR, 64):
            emit_prefetch(builder, builder.gep(line, [number(AHEAD * NR + place // 4)]))
        right = [
            microkernel.right(builder, load(builder, builder.gep(line, [number(v * lanes)]), lanes, min(64, 4 * lanes)))
            for v in range(microkernel.vectors)
        ]
        for row in sorted({row for row, _ in sums}):
            copies = splat(builder, builder.load(builder.gep(words, [number(row * ROW_STEP)])), lanes)
            left = microkernel.left(builder, copies)
            for v in range(microkernel.vectors):
                place = sums[row, v]
                builder.store(microkernel.multiply(builder, builder.load(place), left, right[v]), place)


def load(builder: Any, place: Any, lanes: int, align: int) -> Any:
    """Emit the load of a vector of elements from a place on."""
    kind = ir.VectorType(place.type.pointee, lanes)
    return builder.load(builder.bitcast(place, kind.as_pointer()), align=align)
