"""Operations on arrays that Numba lacks, and `emitted`, which makes such operations.

Each works on every little-endian processor that LLVM knows.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from llvmlite import ir
from llvmlite.ir.values import MDValue
from numba.core import cgutils, types
from numba.core.types.containers import BaseNamedTuple
from numba.extending import intrinsic

from dmlcpu.runtime.records import CACHE_LINE

_LEAST_LANES = 16  # LLVM unrolls shorter loops instead of making vectors of them
_AS_GIVEN = types.Array, BaseNamedTuple
_POINTER = ir.IntType(8).as_pointer()
_INT, _LONG = ir.IntType(32), ir.IntType(64)


class Elements:
    """An array argument of an intrinsic, while its code is emitted."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self._builder, self._array = builder, context.make_array(kind)(context, builder, value)
        self._dtype = kind.dtype
        self.element = context.get_data_type(kind.dtype)  # LLVM's type

    @property
    def nbytes(self) -> int:
        """The bytes of an element; to ask LLVM would compile a module."""
        return int(self._dtype.bitwidth) // 8

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self._dtype in types.real_domain

    @property
    def lanes(self) -> int:
        """The elements of a line, see `line_of`."""
        return max(CACHE_LINE // self.nbytes, _LEAST_LANES)

    def at(self, index: Any) -> Any:
        """Emit the address of an element; of an array of several dimensions, by its number in memory."""
        return self._builder.gep(self._array.data, [index])

    def load(self, index: Any, lanes: int) -> Any:
        """Emit the load of a vector of elements from `index` on."""
        return self._builder.load(self._vector_at(index, lanes), align=self.nbytes)

    def store(self, vector: Any, index: Any, align: int = 0) -> Any:
        """Emit the store of a vector from `index` on; align: in bytes, if it is more than that of an element."""
        return self._builder.store(vector, self._vector_at(index, vector.type.count), align=align or self.nbytes)

    def _vector_at(self, index: Any, lanes: int) -> Any:
        return self._builder.bitcast(self.at(index), ir.VectorType(self.element, lanes).as_pointer())


class Strided(NamedTuple):
    """Places of an array, `step` elements apart from array[first] on: kernels give them to intrinsics."""

    array: Any
    first: Any
    step: Any
    count: Any

    def place(self, builder: Any, number: Any) -> Any:
        """Emit the index of a place in the array."""
        return builder.add(self.first, builder.mul(number, self.step))

    def at(self, builder: Any, number: Any) -> Any:
        """Emit the address of a place."""
        return self.array.at(self.place(builder, number))


def _operand(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return an argument of an intrinsic as its code is given it."""
    if isinstance(kind, types.Array):
        return Elements(context, builder, kind, value)
    if isinstance(kind, BaseNamedTuple):
        fields = zip(kind, cgutils.unpack_tuple(builder, value), strict=True)
        return kind.instance_class(*[_operand(context, builder, *each) for each in fields])
    return value


def emitted(emit: Callable[..., Any]) -> Any:
    """Make an intrinsic of emit(builder, *arguments), which emits its code and returns the result, if it has one.

    Arrays come as `Elements`, numbers as LLVM's values, NamedTuples with such fields. A number is an intp unless its
    annotation is another type of Numba's; `Any` leaves its type as it is, and so does a NamedTuple. The annotation of
    the function is the type of the result.
    """
    kinds: dict[str, Any] = emit.__annotations__  # part of the digest of kernels, like `emit`: see jit.py
    result: Any = kinds.get("return", types.void)
    names = emit.__code__.co_varnames[1 : emit.__code__.co_argcount]

    @functools.wraps(emit)  # whose first parameter Numba leaves out, as it would `_context`
    def typing(_context: Any, *given: Any) -> Any:
        declared = [
            kind if isinstance(kind, _AS_GIVEN) or kinds.get(name) is Any else kinds.get(name, types.intp)
            for name, kind in zip(names, given, strict=True)
        ]
        return result(*declared), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        operands = zip(signature.args, arguments, strict=True)
        value = emit(builder, *[_operand(context, builder, *each) for each in operands])
        return context.get_dummy_value() if value is None else value

    return intrinsic(typing)


@emitted
def address_of(builder, array, index) -> types.int64:
    """Return the address of array[index]; of an array of several dimensions, of its element `index` in memory."""
    return builder.ptrtoint(array.at(index), _LONG)


def flat_array(context: Any, builder: Any, kind: Any, data: Any, length: Any) -> Any:
    """Emit a flat array over memory that something else keeps alive."""
    from numba.np.arrayobj import populate_array  # it takes a tenth of Numba's own import, and only a compiler needs it

    element = context.get_data_type(kind.dtype)
    nbytes = context.get_constant(types.intp, context.get_abi_sizeof(element))
    array = context.make_array(kind)(context, builder)
    data = builder.bitcast(data, element.as_pointer())
    populate_array(array, data=data, shape=[length], strides=[nbytes], itemsize=nbytes, meminfo=None)
    return array._getvalue()


def emit_prefetch(builder: Any, place: Any, level: int = 1) -> None:
    """Emit a prefetch of the cache line at a place into the cache of a level, 1 to 3, and larger ones."""
    address = builder.bitcast(place, _POINTER)
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [_POINTER], ir.FunctionType(ir.VoidType(), [_POINTER, _INT, _INT, _INT])
    )
    read, keep, data_cache = 0, 4 - level, 1
    builder.call(function, [address, _INT(read), _INT(keep), _INT(data_cache)])


def emit_prefetch_line(builder: Any, array: Elements, index: Any, level: int = 1) -> None:
    """Emit what `prefetch` does, into the cache of a level."""
    place = builder.bitcast(array.at(index), _POINTER)
    for offset in range(0, array.lanes * array.nbytes, CACHE_LINE):
        emit_prefetch(builder, builder.gep(place, [_INT(offset)]), level)


def emit_barrier(builder: Any) -> None:
    """Emit nothing, but keep LLVM from moving or joining loads and stores across it.

    LLVM makes a store of either the loaded vector or another one a masked store if no other store comes in between.
    With AVX2, a masked store takes about 40 cycles on Zen 3.
    """
    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)


def splat(builder: Any, value: Any, lanes: int) -> Any:
    """Emit a vector of one value."""
    first = builder.insert_element(ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT, lanes), [_INT(0)] * lanes))


@contextlib.contextmanager
def short_loop(builder: Any, count: Any) -> Iterator[Any]:
    """Emit a loop that LLVM neither unrolls nor vectorizes, and yield its index: for few turns or rare ones.

    More code for them takes longer to compile, and often to run.
    """
    module = builder.module
    no_unrolling = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
    no_vectors = module.add_metadata([ir.MetaDataString(module, "llvm.loop.vectorize.enable"), ir.IntType(1)(0)])
    with cgutils.for_range(builder, count, intp=count.type) as loop:
        yield loop.index
        body = builder.block
    name = MDValue(module, [], str(len(module.metadata)))
    name.operands = name, no_unrolling, no_vectors  # LLVM knows a loop by a node that refers to itself
    body.terminator.set_metadata("llvm.loop", name)


@emitted
def lowest_bit(builder, bits: types.uint64) -> types.intp:
    """Return the number of the lowest bit that is set; at least one must be."""
    return builder.cttz(bits, ir.IntType(1)(1))


@emitted
def line_of(_builder, array) -> types.intp:
    """Return how many elements fill a cache line (64 bits: two lines), as a constant: loops get fixed bounds."""
    return _LONG(array.lanes)


@emitted
def width_of(_builder, array) -> types.intp:
    """Return the bytes of an element, as a constant: LLVM drops the branches for others."""
    return _LONG(array.nbytes)


@emitted
def prefetch(builder, array, index):
    """Prefetch the `line_of` elements from array[index] on; beyond the array it does no harm."""
    emit_prefetch_line(builder, array, index)


@emitted
def prefetch_to_second(builder, array, index):
    """Prefetch as `prefetch` does, into the second cache."""
    emit_prefetch_line(builder, array, index, level=2)


@emitted
def prefetch_element(builder, array, index):
    """Prefetch the cache line where array[index] begins into the second cache; beyond the array it does no harm."""
    emit_prefetch(builder, array.at(index), level=2)


@emitted
def prefetch_rows(builder, rows):
    """Prefetch as `prefetch` does, from each place of a `Strided`."""
    with short_loop(builder, rows.count) as row:
        emit_prefetch_line(builder, rows.array, rows.place(builder, row))


@intrinsic
def as_words(_context, cells, start, like):
    """Return cells[start:] as elements of the type that `like` is or has, in the same memory.

    cells: contiguous, and alive as long as the result; Numba's own `view` compiles for half a second.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        nbytes = [context.get_abi_sizeof(context.get_data_type(kind.dtype)) for kind in (signature.args[0], result)]
        a_cell, a_word = [context.get_constant(types.intp, each) for each in nbytes]
        length = builder.udiv(builder.mul(builder.sub(source.nitems, arguments[1]), a_cell), a_word)
        return flat_array(context, builder, result, builder.gep(source.data, [arguments[1]]), length)

    result = types.Array(getattr(like, "dtype", like), 1, "C")
    return result(cells, types.intp, like), generate


@intrinsic
def either(_context, condition, one, first, other):
    """Return one[first:] if a condition holds, else other, as a flat array; both are of one type.

    They are alive as long as the result. Numba has no variable that is one of two arrays of different shapes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        condition, _, first, _ = arguments
        mine, others = (context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (1, 3))
        data = builder.select(condition, builder.gep(mine.data, [first]), others.data)
        length = builder.select(condition, builder.sub(mine.nitems, first), others.nitems)
        return flat_array(context, builder, result, data, length)

    result = types.Array(other.dtype, 1, "C")
    return result(types.boolean, one, types.intp, other), generate
