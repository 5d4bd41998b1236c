"""The table of kernels: one line each. Dispatch, tests and benchmarks read it, and nothing else lists kernels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dmlcpu.kernels.top_k import insertion, radix_select
from dmlcpu.runtime.isa import Isa, allowed
from dmlcpu.runtime.jit import Kernel

WIDTHS = ("uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel: where it is used, what it needs, and what it is compiled for.

    Kernels with the same operator and stage are alternatives that give the same bits; the operator's plan chooses.
    """

    operator: str
    stage: str
    name: str
    isa: Isa
    types: tuple[str, ...]
    kernel: Kernel
    block: tuple[int, ...] = ()
    scratch: Callable[..., tuple[int, ...]] | None = None


# fmt: off
KERNELS = (
    #     operator  stage     name            ISA          types   kernel
    Entry("top_k",  "select", "insertion",    Isa.GENERIC, WIDTHS, insertion.insertion, scratch=insertion.scratch),
    Entry("top_k",  "select", "radix_select", Isa.GENERIC, WIDTHS, radix_select.radix_select,
          scratch=radix_select.scratch),
)
# fmt: on


def available(operator: str | None = None, stage: str | None = None) -> list[Entry]:
    """Return the kernels this machine can run and DMLCPU_ISA allows, the highest ISA first."""
    entries = [
        entry
        for entry in KERNELS
        if entry.isa <= allowed() and operator in (None, entry.operator) and stage in (None, entry.stage)
    ]
    return sorted(entries, key=lambda entry: -entry.isa)


def find(operator: str, stage: str, name: str | None = None) -> Entry:
    """Return the available kernel of that name, or without one the first."""
    for entry in available(operator, stage):
        if name in (None, entry.name):
            return entry
    raise LookupError(f"no kernel {name} for {operator} {stage} on this machine")


