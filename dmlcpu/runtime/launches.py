"""A launch: one kernel call as several threads see it, whose parts they take one after the other.

It lies on the stack of the thread that makes it: the number of the next part, how many there are, the address of its
step, the kernel's address and its arguments. The step is a function that does a part: the only code that depends on the
types of the arguments, so that little is compiled for each set of types.
"""

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dmlcpu.runtime.intrinsics import emitted
from dmlcpu.runtime.jit import PYTHON_ONLY, compile_lazily, device

_INT, _LONG = ir.IntType(32), ir.IntType(64)
_STEP_TYPE = ir.FunctionType(ir.VoidType(), [_LONG, _LONG])
_NEXT, _PARTS, _STEP, _ADDRESS, _ARGS = range(5)
_HEAD = ir.LiteralStructType([_LONG] * _ARGS)


def _launch_type(args: Any) -> Any:
    return ir.LiteralStructType([_LONG] * _ARGS + [args])


def _field(builder: Any, launch: Any, number: int) -> Any:
    return builder.gep(launch, [_INT(0), _INT(number)], inbounds=True)


def _head(builder: Any, launch: Any) -> Any:
    """Emit the pointer to the launch at an address, without its arguments."""
    return builder.inttoptr(launch, _HEAD.as_pointer())


def launch(address, parts, helpers, args, boxes, lead):
    """Launch the kernel at an address; lead: where the machine code of a function from `compile_lead` is."""
    ask(lead, (boxes, parts, helpers, make_launch(parts, step_of(args), address, args)))


@functools.cache
def compiled_launch() -> Any:
    """Return the compiled `launch`."""
    return compile_lazily(launch, **PYTHON_ONLY)


def compile_lead(lead: Callable[..., Any], options: dict[str, Any]) -> tuple[Any, int]:
    """Compile a function of (boxes, parts, helpers, launch) that does all parts of a launch, and returns a number.

    Return it, and where its machine code is.
    """
    compiled = compile_lazily(lead, no_cpython_wrapper=True, **options)
    compiled.compile((types.int64[::1], *[types.intp] * 3))
    (code,) = compiled.overloads.values()
    return compiled, code.library.get_pointer_to_function(code.fndesc.llvm_cfunc_wrapper_name)


@intrinsic
def ask(_context, address, args):
    """Call the compiled function of (*args) at an address, which returns an intp."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, args = arguments
        return _emit_call(builder, address, _LONG, cgutils.unpack_tuple(builder, args))

    return types.intp(types.intp, args), generate


@intrinsic
def step_of(_context, args):
    """Return the address of the function of (launch, part) that does a part of a launch with such arguments."""

    def generate(context: Any, builder: Any, signature: Any, _arguments: Any) -> Any:
        function = ir.Function(builder.module, _STEP_TYPE, builder.module.get_unique_name("dmlcpu_step"))
        function.linkage = "internal"
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        launch, part = function.args
        launch = inner.inttoptr(launch, _launch_type(context.get_value_type(signature.args[0])).as_pointer())
        parts, address, args = [inner.load(_field(inner, launch, number)) for number in (_PARTS, _ADDRESS, _ARGS)]
        nothing = context.get_value_type(types.none)
        _emit_call(inner, address, nothing, [part, parts, *cgutils.unpack_tuple(inner, args)])
        inner.ret_void()
        return builder.ptrtoint(function, _LONG)

    return types.intp(args), generate


def _emit_call(builder: Any, address: Any, result: Any, values: list[Any]) -> Any:
    """Emit the call of the compiled function at an address."""
    function = ir.FunctionType(result, [value.type for value in values])
    return builder.call(builder.inttoptr(address, function.as_pointer()), values)


@emitted
def make_launch(builder, parts, step, address, args: Any) -> types.intp:
    """Return the address of a launch, which lasts as long as the function that calls this."""
    launch = cgutils.alloca_once(builder, _launch_type(args.type))
    _write(builder, launch, parts, step, address, args)
    return builder.ptrtoint(launch, _LONG)


@emitted
def keep_launch(builder, launch, step, address, args: Any):
    """Write a launch of one part to an address, where it lasts as long as that memory."""
    _write(builder, builder.inttoptr(launch, _launch_type(args.type).as_pointer()), _LONG(1), step, address, args)


def _write(builder: Any, launch: Any, *values: Any) -> None:
    for number, value in enumerate((_LONG(0), *values)):
        builder.store(value, _field(builder, launch, number))


@emitted
def take_part(builder, launch) -> types.intp:
    """Return the number of the launch's next part, each once; from the number of parts on, none is left."""
    return builder.atomic_rmw("add", _field(builder, _head(builder, launch), _NEXT), _LONG(1), "seq_cst")


@emitted
def parts_of(builder, launch) -> types.intp:
    """Return how many parts a launch has."""
    return builder.load(_field(builder, _head(builder, launch), _PARTS))


@emitted
def do_part(builder, launch, part):
    """Do a part of a launch."""
    step = builder.load(_field(builder, _head(builder, launch), _STEP))
    builder.call(builder.inttoptr(step, _STEP_TYPE.as_pointer()), [launch, part])


@device
def do_parts(launch):
    """Take parts of a launch, and do them, until none is left."""
    parts, part = parts_of(launch), take_part(launch)
    while part < parts:
        do_part(launch, part)
        part = take_part(launch)


@emitted
def set_zero(builder, address):
    """Set the int64 at an address to 0."""
    builder.store(_LONG(0), builder.inttoptr(address, _LONG.as_pointer()))
