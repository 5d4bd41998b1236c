"""How compiled callers call the kernels, by an address that each process looks up once; and their memory on the stack.

Numba usually compiles a callee into its caller, and would optimize the kernels again for every caller: two seconds
each, and eight for a caller with a parallel loop. Instead, a caller has a cell for the kernel's address, and fetches it
from Python while the cell is empty. So a caller that Numba loads from disk calls the kernels of the installed dmlcpu,
compiled for the present processor.
"""

import functools
from collections import namedtuple
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime.intrinsics import flat_array
from dmlcpu.runtime.records import CACHE_LINE, CELL

_CELL = ir.IntType(8 * CELL)
# The only share. Numba would compile a kernel that is called with 0 and 1 once more, for these literals' types.
PART, PARTS = np.int64(0), np.int64(1)
VERSION = 1  # of the signatures below: callers on disk still use the old ones, so each change needs a new version

_addresses: dict[str, tuple[int, Any]] = {}


def _offer(key: str) -> tuple[Callable[[], Any], Any]:
    """Return the maker of the kernel that a key names, a function that returns an int64, and its argument types.

    It is called only when a caller is compiled: it may query the processor's instruction sets, and a query for AMX is a
    request to the system.
    """
    version, *names = key.split(" ")
    if version != str(VERSION):
        raise RuntimeError(f"dmlcpu has no {key!r} for a function compiled earlier: clear Numba's cache of it")
    module, name, word = names
    home = import_module(f"dmlcpu.interop.numba.{module}")
    return home.OFFERS[name], home.signature(types.Array(getattr(types, word), 1, "C"))


def address_of_kernel(key: str) -> int:
    """Return the address of the machine code that a key names."""
    # No lock: Numba holds its own while it compiles a caller. A caller from disk does not hold it, and several threads
    # may come here at once: all get the code that is kept first.
    known = _addresses.get(key)
    if known is None:
        make, signature = _offer(key)
        compiled = make()
        compiled.compile(signature)
        result = compiled.overloads[signature]
        assert result.signature.return_type == types.int64
        code = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)
        known = _addresses.setdefault(key, (code, result))  # the result keeps the code alive
    return known[0]


@functools.cache
def caller_of(module: str, name: str, word: np.dtype[Any]) -> Any:
    """Return an intrinsic that calls an offered function for words of a type, with a tuple of arguments."""
    key = f"{VERSION} {module} {name} {word.name}"
    _, kinds = _offer(key)

    @intrinsic
    def call(_context, arguments):
        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            address_of_kernel(key)  # compiles the kernel now, and not within a parallel loop
            function = context.call_conv.get_function_type(types.int64, kinds).as_pointer()
            pointer = builder.inttoptr(_emit_address(context, builder, key), function)
            members = cgutils.unpack_tuple(builder, values[0])
            status, result = context.call_conv.call_function(builder, pointer, types.int64, kinds, members)
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return result

        if tuple(arguments) != kinds:
            raise TypeError(f"{key} takes {kinds}, not {tuple(arguments)}")
        return types.int64(arguments), generate

    return call


def _emit_address(context: Any, builder: Any, key: str) -> Any:
    """Emit the address of a kernel: from a cell of the caller's module, or from Python while the cell is empty."""
    cell = cgutils.add_global_variable(builder.module, _CELL, f".dmlcpu.{key}")
    cell.initializer, cell.linkage = ir.Constant(_CELL, 0), "internal"
    known = builder.load_atomic(cell, "monotonic", align=8)
    before = builder.block
    with cgutils.if_unlikely(builder, builder.icmp_unsigned("==", known, known.type(0))):
        python = context.get_python_api(builder)
        lock = python.gil_ensure()
        function = python.unserialize(python.serialize_object(address_of_kernel))
        name = python.unserialize(python.serialize_object(key))
        number = python.call_function_objargs(function, (name,))
        python.decref(function)
        python.decref(name)
        with cgutils.if_unlikely(builder, cgutils.is_null(builder, number)):
            python.gil_release(lock)
            context.call_conv.return_exc(builder)
        asked = python.long_as_longlong(number)
        python.decref(number)
        python.gil_release(lock)
        builder.store_atomic(asked, cell, "monotonic", align=8)
        after = builder.block
    address = builder.phi(_CELL)
    address.add_incoming(known, before)
    address.add_incoming(asked, after)
    return address


def stack_of(cells: int) -> Any:
    """Make an intrinsic that allocates `cells` int64, uninitialized, on the stack of its caller.

    They start at a cache line. The caller is never inlined, so its memory is freed when it returns, even in a loop.
    """

    @intrinsic
    def on_stack(_context):
        def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
            builder.function.attributes.add("noinline")
            with builder.goto_entry_block():  # Numba's own `alloca_once` would fill it with zeros
                memory = builder.alloca(ir.ArrayType(_CELL, cells))
            memory.align = CACHE_LINE
            return flat_array(context, builder, result, memory, context.get_constant(types.intp, cells))

        result = types.Array(types.int64, 1, "C")
        return result(), generate

    return on_stack


def tuple_of(dtype):
    """Return a tuple class with the fields of a record, for `write_record`."""
    return namedtuple("Fields", dtype.names)


@intrinsic
def write_record(_context, cells, dtype, fields):
    """Write all fields of a record to the first of some cells; a nested record is a tuple, and a table a short one."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        start = context.make_array(cells)(context, builder, arguments[0]).data
        _emit_writes(context, builder, start, dtype.dtype, fields, arguments[2])
        return context.get_dummy_value()

    return types.void(cells, dtype, fields), generate


def _emit_writes(context: Any, builder: Any, start: Any, target: Any, given: Any, value: Any) -> None:
    """Emit code that writes a value, or all members of a tuple, to the cells from `start` on; given: its type."""
    if not isinstance(given, types.BaseTuple):
        builder.store(context.cast(builder, value, given, types.int64), start)
        return
    places = [(number, target) for number in range(len(given))]  # of a table
    if isinstance(target, types.Record):
        places = [(target.offset(name) // CELL, field) for name, field in target.members]
        if len(given) != len(places) or getattr(given, "fields", (*target.fields,)) != (*target.fields,):
            raise TypeError(f"a record takes {', '.join(target.fields)}, not {given}")
    for (cell, field), own, part in zip(places, given, cgutils.unpack_tuple(builder, value), strict=True):
        _emit_writes(context, builder, builder.gep(start, [_CELL(cell)]), field, own, part)
