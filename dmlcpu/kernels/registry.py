"""The table of kernels: one line each. Dispatch, tests and benchmarks read it, and nothing else lists kernels."""

from collections.abc import Callable
from dataclasses import dataclass

from dmlcpu.kernels.quantized_matmul import direct, pack, product
from dmlcpu.kernels.scatter_nd import apply, buckets, resolve
from dmlcpu.kernels.top_k import columns, lockstep, select_sort, split, sweep, tournament
from dmlcpu.runtime import dots, tiles
from dmlcpu.runtime.isa import Isa, allowed
from dmlcpu.runtime.kernel import Kernel

WIDTHS = ("uint8", "uint16", "uint32", "uint64")
INDICES = ("uint32",)
BYTES = ("int8", "uint8")
NUMBERS = (*WIDTHS, "int8", "int16", "int32", "int64", "float32", "float64")


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
    scratch: Callable[..., tuple[int, ...]] | None = None
    takes: Callable[..., bool] | None = None  # of alternatives with limits: what they can do
    rows: int = 0  # of a product with packed operands: those of its tallest tile


# fmt: off
KERNELS = (
    Entry("top_k", "select", "lockstep", Isa.GENERIC, WIDTHS, lockstep.lockstep,
          scratch=lockstep.scratch, takes=lockstep.takes),
    Entry("top_k", "select", "tournament", Isa.GENERIC, WIDTHS, tournament.tournament,
          scratch=tournament.scratch, takes=tournament.takes),
    Entry("top_k", "select", "split", Isa.GENERIC, WIDTHS, split.split, scratch=split.scratch, takes=split.takes),
    Entry("top_k", "merge", "merge", Isa.GENERIC, WIDTHS, split.merge),
    Entry("top_k", "select", "sweep", Isa.GENERIC, WIDTHS, sweep.sweep, scratch=sweep.scratch, takes=sweep.takes),
    Entry("top_k", "select", "columns", Isa.GENERIC, WIDTHS, columns.columns,
          scratch=columns.scratch, takes=columns.takes),
    Entry("top_k", "select", "select_sort", Isa.GENERIC, WIDTHS, select_sort.select_sort, scratch=select_sort.scratch),
    Entry("scatter_nd", "survey", "survey", Isa.GENERIC, INDICES, resolve.survey),
    Entry("scatter_nd", "copy", "copy", Isa.GENERIC, NUMBERS, apply.copy),
    Entry("scatter_nd", "apply", "apply", Isa.GENERIC, NUMBERS, apply.apply),
    Entry("scatter_nd", "partition", "partition", Isa.GENERIC, NUMBERS, buckets.partition),
    Entry("scatter_nd", "drain", "drain", Isa.GENERIC, NUMBERS, buckets.drain),
    Entry("quantized_matmul", "pack", "pack", Isa.GENERIC, BYTES, pack.pack),
    Entry("quantized_matmul", "dot", "dot_u8s8_4x8x4_generic", Isa.GENERIC, BYTES, product.generic, rows=dots.ROWS),
    Entry("quantized_matmul", "dot", "dot_u8s8_4x16x4_avx2", Isa.AVX2, BYTES, product.avx2, rows=dots.ROWS),
    Entry("quantized_matmul", "dot", "dot_u8s8_6x16x4_avxvnni", Isa.AVXVNNI, BYTES, product.avxvnni,
          rows=dots.ROWS),
    Entry("quantized_matmul", "dot", "dot_u8s8_12x32x4_avx512vnni", Isa.AVX512VNNI, BYTES, product.avx512vnni,
          rows=dots.ROWS),
    Entry("quantized_matmul", "dot", "dot_u8s8_32x32x64_amx", Isa.AMX, BYTES, product.amx, rows=tiles.ROWS),
    Entry("quantized_matmul", "dot", "direct_u8s8_16x16_generic", Isa.GENERIC, BYTES, direct.generic,
          takes=direct.takes),
    Entry("quantized_matmul", "dot", "direct_u8s8_32x16_avx2", Isa.AVX2, BYTES, direct.avx2, takes=direct.takes),
    Entry("quantized_matmul", "dot", "direct_u8s8_32x16_avxvnni", Isa.AVXVNNI, BYTES, direct.avxvnni,
          takes=direct.takes),
    Entry("quantized_matmul", "dot", "direct_u8s8_64x16_avx512vnni", Isa.AVX512VNNI, BYTES, direct.avx512vnni,
          takes=direct.takes),
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
