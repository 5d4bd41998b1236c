"""How Numba compiles helpers: for kernels, which link them, and without machine code of their own.

Numba would make machine code of each helper by itself, which never runs: a seventh of the time of a first call.
"""

from collections.abc import Callable
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Linked(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM code of a helper."""

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """Where Numba puts the environment of machine code: here, as there is none."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Ignore the environment: only code that works with Python objects needs it."""


class HelperCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, but for the library in which the code of a helper is."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        """Compile a helper."""
        self.state.library = _Linked(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)
