"""Products with a right operand as it lies in memory: rows are read in their own order and interleaved in registers.

Four rows of bytes become vectors of words, as `dots` multiplies them, by two rounds of interleaving within 16 bytes,
the way every vector unit does it. That leaves the columns in an order of their own, which `unfold` undoes in the end.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.kernels.gemm.microkernels.dot import ROW_STEP, Microkernel, load
from dmlcpu.runtime import isa
from dmlcpu.runtime.intrinsics import address, emit_prefetch, splat

BLOCK = 64  # columns at a time
DEPTH = 16  # rows of the right operand at a time
_BYTE, _HALF, _WORD = ir.IntType(8), ir.IntType(16), ir.IntType(32)


def _shuffle(builder: Any, one: Any, other: Any, places: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_WORD, len(places)), [_WORD(place) for place in places])
    return builder.shuffle_vector(one, other, mask)


def _interleave(builder: Any, one: Any, other: Any) -> tuple[Any, Any]:
    """Take elements of two vectors in turn, within each 16 bytes: those of the first eight, and of the last."""
    count, width = one.type.count, 128 // one.type.element.width
    low, high = (
        [source + first + i for first in range(half, count, width) for i in range(width // 2) for source in (0, count)]
        for half in (0, width // 2)
    )
    return _shuffle(builder, one, other, low), _shuffle(builder, one, other, high)


def _words_of(builder: Any, rows: list[Any]) -> list[Any]:
    """Return four vectors of words, each of a byte of each of the four rows."""
    count = rows[0].type.count
    pairs = [_interleave(builder, rows[i], rows[i + 1]) for i in (0, 2)]
    words: list[Any] = []
    for first, second in zip(*pairs, strict=True):
        halves = [builder.bitcast(x, ir.VectorType(_HALF, count // 2)) for x in (first, second)]
        words += _interleave(builder, *halves)
    return [builder.bitcast(x, ir.VectorType(_WORD, count // 4)) for x in words]


def make_add_products(microkernel: Microkernel) -> Any:
    """Return an intrinsic that adds the products of some left rows and up to DEPTH rows of the right to sums.

    add(b, place, step, depth, blocks, flip, a, first, rows, cells, sums, sums_step): b: bytes, `depth` rows, `step`
    apart, of which BLOCK * blocks columns from b[place] on are read; flip is what makes them signed, by exclusive or;
    a: uint32, `rows` rows, ROW_STEP apart, of DEPTH / 4 words from a[first] on, zero where b has no more rows; cells:
    int32, where the sums lie from cells[sums] on, rows sums_step apart, folded. Arrays are flat.
    """
    lanes = microkernel.lanes
    # Words that stay in registers: of all rows where there are 32 registers, else of four.
    at_once = DEPTH if lanes == 16 else 4

    @intrinsic
    def add(_context, b, place, step, depth, blocks, flip, a, first, rows, cells, sums, sums_step):
        isa.require(microkernel.isa)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, place, step, depth, blocks, flip, _, first, rows, _, sums, sums_step = arguments
            number = step.type
            b_bytes = address(context, builder, signature, arguments, 0, place)
            a_words = address(context, builder, signature, arguments, 6, first)
            totals = address(context, builder, signature, arguments, 9, sums)
            flips = splat(builder, builder.trunc(flip, _BYTE), 4 * lanes)
            last = builder.sub(depth, number(1))
            b_rows = []
            for i in range(DEPTH):
                is_there = builder.icmp_signed("<", number(i), depth)
                row = builder.select(is_there, number(i), last)  # what is not there is multiplied by zero
                b_rows.append(builder.gep(b_bytes, [builder.mul(row, step)]))
            ahead = builder.mul(number(DEPTH), step)
            with cgutils.for_range(builder, blocks, intp=number) as loop:
                column = builder.mul(loop.index, number(BLOCK))
                for row in b_rows:
                    emit_prefetch(builder, builder.gep(row, [builder.add(column, ahead)]))
                for inner in range(0, BLOCK, 4 * lanes):
                    at = builder.add(column, number(inner))
                    for top in range(0, DEPTH, at_once):
                        there = [
                            load(builder, builder.gep(row, [at]), 4 * lanes, 1) for row in b_rows[top : top + at_once]
                        ]
                        signed = [builder.xor(x, flips) for x in there]
                        right = [
                            [microkernel.right(builder, word) for word in _words_of(builder, signed[i : i + 4])]
                            for i in range(0, at_once, 4)
                        ]
                        with cgutils.for_range(builder, rows, intp=number) as row_loop:
                            line = builder.gep(totals, [builder.add(builder.mul(row_loop.index, sums_step), at)])
                            own = builder.gep(a_words, [builder.mul(row_loop.index, number(ROW_STEP))])
                            places = [builder.gep(line, [number(v * lanes)]) for v in range(4)]
                            vectors = [load(builder, there, lanes, 4) for there in places]
                            for group, words in enumerate(right):
                                word = builder.load(builder.gep(own, [number(top // 4 + group)]))
                                left = microkernel.left(builder, splat(builder, word, lanes))
                                vectors = [
                                    microkernel.multiply(builder, total, left, word)
                                    for total, word in zip(vectors, words, strict=True)
                                ]
                            for there, total in zip(places, vectors, strict=True):
                                builder.store(total, builder.bitcast(there, total.type.as_pointer()), align=4)
            return context.get_dummy_value()

        index = types.intp
        return types.void(b, index, index, index, index, index, a, index, index, cells, index, index), generate

    return add


def make_unfold(microkernel: Microkernel) -> Any:
    """Return an intrinsic that puts the sums of BLOCK columns, int32 from cells[first] on, in order."""
    lanes = microkernel.lanes
    # Vector v has of each 16 columns those from 4 * v on.
    places = [v * lanes + 4 * part + i for part in range(lanes // 4) for v in range(4) for i in range(4)]

    @intrinsic
    def unfold(_context, cells, first):
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            for inner in range(0, BLOCK, 4 * lanes):
                index = builder.add(arguments[1], arguments[1].type(inner))
                place = address(context, builder, signature, arguments, 0, index)
                folded = load(builder, place, 4 * lanes, 4)
                columns = _shuffle(builder, folded, folded, places)
                builder.store(columns, builder.bitcast(place, columns.type.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(cells, types.intp), generate

    return unfold
