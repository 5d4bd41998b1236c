"""A launch: one kernel call as several threads see it, whose parts they take one after the other.

It lies on the stack of the thread that makes it: the number of the next part, how many there are, the kernel's address
and its arguments. Its entry is a function for all kernels with arguments of these types.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime.intrinsics import emitted

_INT, _LONG = ir.IntType(32), ir.IntType(64)
_ENTRY = ir.FunctionType(ir.VoidType(), [_LONG])
_NEXT, _PARTS, _ADDRESS, _ARGS = range(4)


def _launch_type(args: Any) -> Any:
    return ir.LiteralStructType([_LONG, _LONG, _LONG, args])


def _field(builder: Any, launch: Any, number: int) -> Any:
    return builder.gep(launch, [_INT(0), _INT(number)], inbounds=True)


def _take(builder: Any, launch: Any) -> Any:
    return builder.atomic_rmw("add", _field(builder, launch, _NEXT), _LONG(1), "seq_cst")


def _emit_call(context: Any, builder: Any, address: Any, part: Any, parts: Any, args: Any, args_type: Any) -> None:
    """Emit the call of the compiled function of (part, parts, *args) at an address; it counts no references to arrays.

    Threads that count the references to one array take the count's cache line from one another: a tenth of the time.
    The caller holds references to all arrays until the call is over.
    """
    values = [part, parts]
    for number, kind in enumerate(args_type):
        value = builder.extract_value(args, number)
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            value = array._getvalue()
        values.append(value)
    function = ir.FunctionType(context.get_value_type(types.none), [value.type for value in values])
    builder.call(builder.inttoptr(address, function.as_pointer()), values)


@intrinsic
def call(_context, address, part, parts, args):
    """Call the compiled function of (part, parts, *args) at an address; it returns nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, part, parts, args = arguments
        _emit_call(context, builder, address, part, parts, args, signature.args[3])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, args), generate


@intrinsic
def ask(_context, address, args):
    """Call the compiled function of (*args) at an address, which returns an intp; it counts no references either."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, args = arguments
        values = [builder.extract_value(args, number) for number in range(len(signature.args[1]))]
        function = ir.FunctionType(_LONG, [value.type for value in values])
        return builder.call(builder.inttoptr(address, function.as_pointer()), values)

    return types.intp(types.intp, args), generate


@emitted
def make_launch(builder, address, parts, args: Any) -> types.intp:
    """Return the address of a launch, which lasts as long as the function that calls this."""
    launch = cgutils.alloca_once(builder, _launch_type(args.type))
    for number, value in ((_NEXT, _LONG(0)), (_PARTS, parts), (_ADDRESS, address), (_ARGS, args)):
        builder.store(value, _field(builder, launch, number))
    return builder.ptrtoint(launch, _LONG)


@emitted
def keep_launch(builder, launch, address, args: Any):
    """Write a launch of one part to an address, where it lasts as long as that memory."""
    launch = builder.inttoptr(launch, _launch_type(args.type).as_pointer())
    for number, value in ((_NEXT, _LONG(0)), (_PARTS, _LONG(1)), (_ADDRESS, address), (_ARGS, args)):
        builder.store(value, _field(builder, launch, number))


@emitted
def restart(builder, launch, counter):
    """Let a kept launch begin with part 0 again, and set the int64 at the address `counter` to 0."""
    for address in (launch, counter):  # a launch begins with _NEXT
        builder.store(_LONG(0), builder.inttoptr(address, _LONG.as_pointer()))


@emitted
def take_part(builder, launch, args: Any) -> types.intp:
    """Return the number of the launch's next part, each once; from the number of parts on, none is left."""
    return _take(builder, builder.inttoptr(launch, _launch_type(args.type).as_pointer()))


@intrinsic
def entry_of(_context, args):
    """Return the address of the function that takes parts of a launch with such arguments until none is left."""

    def generate(context: Any, builder: Any, signature: Any, _arguments: Any) -> Any:
        function = ir.Function(builder.module, _ENTRY, builder.module.get_unique_name("dmlcpu_entry"))
        function.linkage = "internal"
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        launch = inner.inttoptr(function.args[0], _launch_type(context.get_value_type(signature.args[0])).as_pointer())
        parts, address, args = [inner.load(_field(inner, launch, number)) for number in (_PARTS, _ADDRESS, _ARGS)]
        next_part, work, done = [function.append_basic_block(name) for name in ("next", "work", "done")]
        inner.branch(next_part)
        inner.position_at_end(next_part)
        part = _take(inner, launch)
        inner.cbranch(inner.icmp_signed("<", part, parts), work, done)
        inner.position_at_end(work)
        _emit_call(context, inner, address, part, parts, args, signature.args[0])
        inner.branch(next_part)
        inner.position_at_end(done)
        inner.ret_void()
        return builder.ptrtoint(function, _LONG)

    return types.intp(args), generate


@emitted
def enter(builder, entry, launch):
    """Call a launch's entry."""
    builder.call(builder.inttoptr(entry, _ENTRY.as_pointer()), [launch])
