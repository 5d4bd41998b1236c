"""A kernel call as several threads see it: a job, whose parts they take one after the other.

A job lies on the stack of the thread that makes it: the number of the next part, how many there are, the kernel's
address and its arguments. Its entry is a function for all kernels with arguments of these types.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_INT, _LONG = ir.IntType(32), ir.IntType(64)
_ENTRY = ir.FunctionType(ir.VoidType(), [_LONG])
_NEXT, _PARTS, _ADDRESS, _ARGS = range(4)


def _job_type(context: Any, args: Any) -> Any:
    return ir.LiteralStructType([_LONG, _LONG, _LONG, context.get_value_type(args)])


def _field(builder: Any, job: Any, number: int) -> Any:
    return builder.gep(job, [_INT(0), _INT(number)], inbounds=True)


def _take(builder: Any, job: Any) -> Any:
    return builder.atomic_rmw("add", _field(builder, job, _NEXT), _LONG(1), "seq_cst")


def _emit_call(context: Any, builder: Any, address: Any, part: Any, parts: Any, members: list[Any]) -> None:
    """Emit the call of the compiled function of (part, parts, *members) at an address."""
    values = [part, parts, *members]
    function = ir.FunctionType(context.get_value_type(types.none), [value.type for value in values])
    builder.call(builder.inttoptr(address, function.as_pointer()), values)


def _members(context: Any, builder: Any, args: Any, args_type: Any) -> list[Any]:
    """Return the arguments as a kernel may have them: of arrays it shall not count references.

    Threads that count the references to one array take the count's cache line from one another: a tenth of the time.
    The caller holds references to all arrays until the call is over.
    """
    members = []
    for number, member_type in enumerate(args_type):
        member = builder.extract_value(args, number)
        if isinstance(member_type, types.Array):
            array = context.make_array(member_type)(context, builder, member)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            member = array._getvalue()
        members.append(member)
    return members


@intrinsic
def call(_context, address, part, parts, args):  # type: ignore[no-untyped-def]
    """Call the compiled function of (part, parts, *args) at an address; it returns nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, part, parts, args = arguments
        _emit_call(context, builder, address, part, parts, _members(context, builder, args, signature.args[3]))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, args), generate


@intrinsic
def make_job(_context, address, parts, args):  # type: ignore[no-untyped-def]
    """Return the address of a job, which lasts as long as the function that calls this."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, parts, args = arguments
        job = cgutils.alloca_once(builder, _job_type(context, signature.args[2]))
        for number, value in ((_NEXT, _LONG(0)), (_PARTS, parts), (_ADDRESS, address), (_ARGS, args)):
            builder.store(value, _field(builder, job, number))
        return builder.ptrtoint(job, _LONG)

    return types.intp(types.intp, types.intp, args), generate


@intrinsic
def take_part(_context, job, args):  # type: ignore[no-untyped-def]
    """Return the number of the job's next part, which nobody else gets; from the number of parts on there is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _take(builder, builder.inttoptr(arguments[0], _job_type(context, signature.args[1]).as_pointer()))

    return types.intp(types.intp, args), generate


@intrinsic
def entry_of(_context, args):  # type: ignore[no-untyped-def]
    """Return the address of the function that takes parts of a job with such arguments until none is left."""

    def generate(context: Any, builder: Any, signature: Any, _arguments: Any) -> Any:
        function = ir.Function(builder.module, _ENTRY, builder.module.get_unique_name("dmlcpu_entry"))
        function.linkage = "internal"
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        job = inner.inttoptr(function.args[0], _job_type(context, signature.args[0]).as_pointer())
        parts, address, args = [inner.load(_field(inner, job, number)) for number in (_PARTS, _ADDRESS, _ARGS)]
        members = _members(context, inner, args, signature.args[0])
        next_part, work, done = [function.append_basic_block(name) for name in ("next", "work", "done")]
        inner.branch(next_part)
        inner.position_at_end(next_part)
        part = _take(inner, job)
        inner.cbranch(inner.icmp_signed("<", part, parts), work, done)
        inner.position_at_end(work)
        _emit_call(context, inner, address, part, parts, members)
        inner.branch(next_part)
        inner.position_at_end(done)
        inner.ret_void()
        return builder.ptrtoint(function, _LONG)

    return types.intp(args), generate


@intrinsic
def enter(_context, entry, job):  # type: ignore[no-untyped-def]
    """Call a job's entry."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        entry, job = arguments
        builder.call(builder.inttoptr(entry, _ENTRY.as_pointer()), [job])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate
