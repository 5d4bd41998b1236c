"""Kernels for programs that use other libraries: a module for each library, which needs the extra of its name.

The modules load on first use, each with its library.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dmlcpu.common.imports import unknown

if TYPE_CHECKING:
    from dmlcpu.interop import dask as dask, numba as numba, onnx as onnx, torch as torch

__all__ = ["dask", "numba", "onnx", "torch"]

if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise unknown("dmlcpu.interop", name, __all__)
        try:
            return importlib.import_module(f"dmlcpu.interop.{name}")
        except ImportError as error:
            # hasattr and tools that list attributes expect this error only. An import statement raises the ImportError.
            raise AttributeError(f"module 'dmlcpu.interop' has no attribute {name!r} here: {error}") from error


def __dir__() -> list[str]:
    return __all__
