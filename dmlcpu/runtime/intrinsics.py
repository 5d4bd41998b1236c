"""Machine operations that Numba has no name for. Each works on every little-endian processor that LLVM knows."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

CACHE_LINE = 64  # bytes
_LEAST_LANES = 16  # LLVM unrolls shorter loops instead of making vectors of them
_POINTER = ir.IntType(8).as_pointer()
_INT = ir.IntType(32)
_LONG = ir.IntType(64)


def _lanes(context: Any, element: Any) -> int:
    nbytes: int = context.get_abi_sizeof(context.get_data_type(element))
    return max(CACHE_LINE // nbytes, _LEAST_LANES)


@intrinsic
def line_of(_context, array):  # type: ignore[no-untyped-def]
    """Return how many elements of an array are compared at a time, as a constant: loops up to it have known bounds.

    It is a cache line of them; for 64-bit elements two.
    """

    def generate(context: Any, _builder: Any, signature: Any, _arguments: Any) -> Any:
        return context.get_constant(types.intp, _lanes(context, signature.args[0].dtype))

    return types.intp(array), generate


def address(context: Any, builder: Any, signature: Any, arguments: Any, array: int, index: Any) -> Any:
    """Emit the address of the element `index` of an argument."""
    return builder.gep(context.make_array(signature.args[array])(context, builder, arguments[array]).data, [index])


def emit_prefetch(builder: Any, place: Any) -> None:
    """Emit a prefetch of the cache line at a place."""
    address = builder.bitcast(place, _POINTER)
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [_POINTER], ir.FunctionType(ir.VoidType(), [_POINTER, _INT, _INT, _INT])
    )
    read, keep, data_cache = 0, 3, 1
    builder.call(function, [address, _INT(read), _INT(keep), _INT(data_cache)])


def splat(builder: Any, value: Any, lanes: int) -> Any:
    """Emit a vector of one value."""
    first = builder.insert_element(ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT, lanes), [_INT(0)] * lanes))


@intrinsic
def prefetch(_context, array, index):  # type: ignore[no-untyped-def]
    """Prefetch the `line_of` elements from array[index] on; beyond the array it does no harm."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), _POINTER)
        element = signature.args[0].dtype
        nbytes = _lanes(context, element) * context.get_abi_sizeof(context.get_data_type(element))
        for offset in range(0, nbytes, CACHE_LINE):
            emit_prefetch(builder, builder.gep(address, [_INT(offset)]))
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


def _line(context: Any, builder: Any, array_type: Any, array: Any, index: Any, lanes: int) -> Any:
    """Return the address of the elements from array[index] on, as a vector, and its alignment."""
    word = context.get_data_type(array_type.dtype)
    data = context.make_array(array_type)(context, builder, array).data
    line = ir.VectorType(word, lanes)
    return builder.bitcast(builder.gep(data, [index]), line.as_pointer()), context.get_abi_sizeof(word)


def _as_bits(builder: Any, flags: Any) -> Any:
    """Return a vector of flags as an integer of 64 bits, the first flag as its lowest."""
    bits = builder.bitcast(flags, ir.IntType(flags.type.count))
    return bits if flags.type.count == 64 else builder.zext(bits, ir.IntType(64))


@intrinsic
def reach(_context, array, index, least):  # type: ignore[no-untyped-def]
    """Return a bit for each of the `line_of` elements from array[index] on: whether it is at least `least`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = _lanes(context, signature.args[0].dtype)
        address, align = _line(context, builder, signature.args[0], arguments[0], arguments[1], lanes)
        elements = builder.load(address, align=align)
        bound = splat(builder, arguments[2], lanes)
        return _as_bits(builder, builder.icmp_unsigned(">=", elements, bound))

    return types.uint64(array, types.intp, array.dtype), generate


@intrinsic
def exceed(_context, array, index, other, place):  # type: ignore[no-untyped-def]
    """Return a bit for each of the `line_of` elements from array[index] on: whether it exceeds the opposite of `other`.

    The opposite elements are those from other[place] on.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = _lanes(context, signature.args[0].dtype)
        address, align = _line(context, builder, signature.args[0], arguments[0], arguments[1], lanes)
        opposite, _ = _line(context, builder, signature.args[2], arguments[2], arguments[3], lanes)
        elements, others = builder.load(address, align=align), builder.load(opposite, align=align)
        return _as_bits(builder, builder.icmp_unsigned(">", elements, others))

    return types.uint64(array, types.intp, other, types.intp), generate


@intrinsic
def greatest_line(_context, array, first, step, end, target, place):  # type: ignore[no-untyped-def]
    """Write the greatest of the lines from array[first], array[first + step], ... on to the one from target[place] on.

    A line is `line_of` elements; the last begins before array[end], and the first is always read.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def load(index: Any) -> Any:
            address, align = _line(context, builder, signature.args[0], arguments[0], index, lanes)
            return builder.load(address, align=align)

        lanes = _lanes(context, signature.args[0].dtype)
        _, first, step, end, target, place = arguments
        greatest = cgutils.alloca_once_value(builder, load(first))
        with cgutils.for_range_slice(builder, builder.add(first, step), end, step, inc=True) as (index, _):
            line, before = load(index), builder.load(greatest)
            builder.store(builder.select(builder.icmp_unsigned(">", line, before), line, before), greatest)
        address, align = _line(context, builder, signature.args[4], target, place, lanes)
        builder.store(builder.load(greatest), address, align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, types.intp, target, types.intp), generate


def _make_insert(comparison: str) -> Any:
    @intrinsic
    def insert(_context, keys, new, position, best, positions, first, step, count):  # type: ignore[no-untyped-def]
        """Insert the `line_of` keys from keys[new] on, all of one position, into as many sorted lists of `count` keys.

        The lists are best[first], best[first + step], ..., and beside each key in `positions` its position. A key takes
        the place of the first that it reaches (`insert`) or exceeds (`insert_after_equals`), and that one the next
        place, to the end. What is moved on stays in registers.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def line(array: int, index: Any) -> Any:  # of keys, or as many positions
                return _line(context, builder, signature.args[array], arguments[array], index, lanes)

            lanes = _lanes(context, signature.args[0].dtype)
            address, align = line(0, arguments[1])
            newcomer = builder.load(address, align=align)
            moving = cgutils.alloca_once_value(builder, newcomer)
            place = context.cast(builder, arguments[2], types.intp, signature.args[4].dtype)
            moving_at = cgutils.alloca_once_value(builder, splat(builder, place, lanes))
            with cgutils.for_range(builder, arguments[7], intp=arguments[7].type) as loop:
                index = builder.add(arguments[5], builder.mul(loop.index, arguments[6]))
                (address, align), (address_at, align_at) = line(3, index), line(4, index)
                new, new_at = builder.load(moving), builder.load(moving_at)
                held, held_at = builder.load(address, align=align), builder.load(address_at, align=align_at)
                wins = builder.icmp_unsigned(comparison, newcomer, held)  # then also against all that follow
                builder.store(builder.select(wins, new, held), address, align=align)
                builder.store(builder.select(wins, new_at, held_at), address_at, align=align_at)
                builder.store(builder.select(wins, held, new), moving)
                builder.store(builder.select(wins, held_at, new_at), moving_at)
            return context.get_dummy_value()

        arguments = (keys, types.intp, types.intp, best, positions, types.intp, types.intp, types.intp)
        return types.void(*arguments), generate

    return insert


insert, insert_after_equals = _make_insert(">="), _make_insert(">")


@intrinsic
def as_words(_context, cells, start, like):  # type: ignore[no-untyped-def]
    """Return cells[start:] as elements of the type that `like` is or has, in the same memory.

    cells: contiguous, and alive as long as the result; Numba's own `view` compiles for half a second.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        data_type = context.get_data_type(result.dtype)
        nbytes = context.get_abi_sizeof(data_type)
        a_cell = context.get_constant(types.intp, context.get_abi_sizeof(source.data.type.pointee) // nbytes)
        words = context.make_array(result)(context, builder)
        populate_array(
            words,
            data=builder.bitcast(builder.gep(source.data, [arguments[1]]), data_type.as_pointer()),
            shape=[builder.mul(builder.sub(source.nitems, arguments[1]), a_cell)],
            strides=[context.get_constant(types.intp, nbytes)],
            itemsize=context.get_constant(types.intp, nbytes),
            meminfo=None,
        )
        return words._getvalue()

    result = types.Array(getattr(like, "dtype", like), 1, "C")
    return result(cells, types.intp, like), generate


@intrinsic
def either(_context, condition, one, first, other):  # type: ignore[no-untyped-def]
    """Return one[first:] if a condition holds, else other, as a flat array; both are of one type.

    They are alive as long as the result. Numba has no variable that is one of two arrays of different shapes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        condition, _, first, _ = arguments
        mine, others = (context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (1, 3))
        data_type = context.get_data_type(result.dtype).as_pointer()
        places = [builder.bitcast(place, data_type) for place in (builder.gep(mine.data, [first]), others.data)]
        nbytes = context.get_constant(types.intp, context.get_abi_sizeof(data_type.pointee))
        chosen = context.make_array(result)(context, builder)
        populate_array(
            chosen,
            data=builder.select(condition, *places),
            shape=[builder.select(condition, builder.sub(mine.nitems, first), others.nitems)],
            strides=[nbytes],
            itemsize=nbytes,
            meminfo=None,
        )
        return chosen._getvalue()

    result = types.Array(other.dtype, 1, "C")
    return result(types.boolean, one, types.intp, other), generate


@intrinsic
def copy_range(_context, source, target, first, last):  # type: ignore[no-untyped-def]
    """Copy source[first:last] to the same place in another array of that type, with which it shares no memory.

    This is the system's own memcpy. It writes what no cache will hold without reading it first, but knows only of its
    own part; see `stream`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, (_, _, first, last) = signature.args, arguments
        nbytes = context.get_abi_sizeof(context.get_data_type(kinds[0].dtype))
        here, there = [
            builder.gep(context.make_array(kinds[i])(context, builder, arguments[i]).data, [first]) for i in (0, 1)
        ]
        length = builder.mul(builder.sub(last, first), first.type(nbytes))
        cgutils.raw_memcpy(builder, there, here, length, 1)
        return context.get_dummy_value()

    return types.void(source, target, types.intp, types.intp), generate


@intrinsic
def stream(_context, source, first, target, place, count):  # type: ignore[no-untyped-def]
    """Copy `count` elements from source[first:] to target[place:], both of one type, past the caches.

    In target those are whole lines, which start cache lines. They do not come before what this thread does afterwards
    in the eyes of others, unless there is a `fence` between.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        element = context.get_data_type(signature.args[0].dtype)
        nbytes = context.get_abi_sizeof(element)
        line = ir.VectorType(element, CACHE_LINE // nbytes)

        def line_at(array: int, begin: Any, index: Any) -> Any:
            place = address(context, builder, signature, arguments, array, builder.add(begin, index))
            return builder.bitcast(place, line.as_pointer())

        _, first, _, place, count = arguments
        once = builder.module.add_metadata([_INT(1)])
        with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(line.count), inc=True) as (index, _):
            elements = builder.load(line_at(0, first, index), align=nbytes)
            builder.store(elements, line_at(2, place, index), align=CACHE_LINE).set_metadata("nontemporal", once)
        return context.get_dummy_value()

    index = types.intp
    return types.void(source, index, target, index, index), generate


@intrinsic
def fence(_context):  # type: ignore[no-untyped-def]
    """Let other threads see all that this one wrote before they see what it writes next."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def load_word(_context, array, index):  # type: ignore[no-untyped-def]
    """Return the four bytes from array[index] on as one uint32, the first as its lowest; they need no alignment."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), _INT.as_pointer()), align=1)

    return types.uint32(array, types.intp), generate


@intrinsic
def fetch_add(_context, cells, index):  # type: ignore[no-untyped-def]
    """Return cells[index] and add 1 to it, atomically. cells: int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        return builder.atomic_rmw("add", place, ir.Constant(place.type.pointee, 1), "monotonic")

    return types.int64(cells, types.intp), generate


@intrinsic
def lowest_bit(_context, bits):  # type: ignore[no-untyped-def]
    """Return the number of the lowest bit that is set; there must be one."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.intp(types.uint64), generate


@intrinsic
def count_bits(_context, bits):  # type: ignore[no-untyped-def]
    """Return how many bits are set."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.intp(types.uint64), generate
