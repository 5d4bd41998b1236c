"""All kernels, by the operators' tables, which are imported when they are first read.

Kernels of one operator and stage are alternatives that give the same bits; the operator's plan chooses.
"""

import functools
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

from dmlcpu.runtime.isa import Isa, allowed
from dmlcpu.runtime.uninterrupted import uninterrupted

# The folder whose table has an operator's kernels; search and measure are not operators, but also have kernels.
FOLDERS = {
    "top_k": "top_k",
    "scatter_nd": "scatter_nd",
    "scatter_elements": "elements",
    "gather_elements": "elements",
    "quantized_matmul": "gemm",
    "matmul_integer": "gemm",
    "matmul_integer_to_float": "gemm",
    "matmul_top_k": "selection",
    "quantize_linear": "quantize_linear",
    "dequantize_linear": "quantize_linear",
    "dynamic_quantize_linear": "quantize_linear",
    "sort": "sort",
    "argsort": "sort",
    "sort_with_indices": "sort",
    "argmax": "arg_reduce",
    "argmin": "arg_reduce",
    "search": "search",
    "measure": "measure",
}

# An operator that consists of others has their kernels.
COMPOSED = {"dynamic_quantize_matmul": ("dynamic_quantize_linear", "matmul_integer_to_float")}


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel in a table. It is text, so that a kernel's module is imported when the kernel is first used."""

    operator: str
    stage: str
    name: str  # the kernel's own
    isa: Isa
    path: str  # of the kernel, or of the function that makes it; see `load`

    @classmethod
    def of(cls, operator: str, stage: str, path: str, isa: Isa = Isa.GENERIC, **others: Any) -> Self:
        """Return the row of a kernel that its module has under the kernel's name."""
        return cls(operator, stage, path.rpartition(".")[2], isa, path, **others)

    @property
    def kernel(self) -> Any:
        """The kernel."""
        return load(self.path)


_made: dict["Made", Any] = {}


@dataclass(frozen=True, slots=True)
class Made(Row):
    """A kernel that a function makes at its first use, of the name and the objects at some paths."""

    parts: tuple[str, ...]

    @property
    def kernel(self) -> Any:
        """The kernel."""
        if self not in _made:
            _made.setdefault(self, load(self.path)(self.name, *map(load, self.parts)))
        return _made[self]


def load(path: str) -> Any:
    """Return what a module of this folder has under a name, ``top_k.lockstep.supports`` for instance."""
    module, _, name = path.rpartition(".")
    return getattr(_module(module), name)


@functools.cache
def _module(name: str) -> Any:
    return uninterrupted(import_module, f"dmlcpu.kernels.{name}")


def rows(operator: str | None = None) -> list[Any]:
    """Return the kernels of an operator, or of all, whether or not this machine can run them."""
    names = FOLDERS.keys() if operator is None else COMPOSED.get(operator, (operator,))
    folders = dict.fromkeys(folder for name, folder in FOLDERS.items() if name in names)
    return [row for folder in folders for row in load(f"{folder}.table.KERNELS") if row.operator in names]


def available(operator: str | None = None, stage: str | None = None) -> list[Any]:
    """Return the kernels this machine can run and DMLCPU_ISA allows, the highest instruction set first."""
    able = [row for row in rows(operator) if row.isa in allowed() and stage in (None, row.stage)]
    return sorted(able, key=lambda row: -row.isa.rank)


def find(operator: str, stage: str, name: str | None = None) -> Any:
    """Return the available kernel of that name, or without a name the first."""
    for row in available(operator, stage):
        if name in (None, row.name):
            return row
    raise LookupError(f"no kernel {name or 'at all'} for {operator} {stage} on this machine")
