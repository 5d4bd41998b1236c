"""`dmlcpu.top_k`, `scatter_nd` and `quantized_matmul` in functions that users compile with Numba.

Numba finds this module by the entry point ``numba_extensions`` when it first compiles or loads a function, perhaps a
kernel of this package. So a function's module is imported only when a caller uses the function.
"""

from importlib import import_module
from types import FunctionType
from typing import Any

_MODULES = {f"dmlcpu.operators.{name}.function.{name}": name for name in ("top_k", "scatter_nd", "quantized_matmul")}


def _init() -> None:
    """Let Numba ask `_typeof` for the types of functions; nothing is compiled."""
    from dmlcpu.runtime.compilation import can_compile

    if can_compile():  # helpers made while compilation is off cannot be called from compiled code
        from numba.extending import typeof_impl

        typeof_impl.register(FunctionType)(_typeof)


def _typeof(function: Any, context: Any) -> Any:
    """Import the module of one of the functions; then answer as Numba does for any function."""
    from numba.core.registry import cpu_target
    from numba.extending import typeof_impl

    module = _MODULES.get(f"{function.__module__}.{function.__qualname__}")
    if module is not None:
        import_module(f"{__name__}.{module}")
        cpu_target.typing_context.refresh()
    return typeof_impl.dispatch(object)(function, context)
