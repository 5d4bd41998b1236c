"""The table of kernels: one line each. Dispatch, tests and benchmarks read it, and nothing else lists kernels."""

from collections.abc import Callable
from dataclasses import dataclass

from dmlcpu.kernels.gemm import pack, product, skinny
from dmlcpu.kernels.gemm.microkernels import amx, dot
from dmlcpu.kernels.scatter_nd import apply, owned, partition, validate
from dmlcpu.kernels.top_k import columns, lockstep, select_sort, split, sweep, tournament
from dmlcpu.runtime.isa import Isa, allowed
from dmlcpu.runtime.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Product:
    """What a kernel of a product works with."""

    mr: int  # rows of its tallest tile of accumulators
    nr: int  # columns of it
    rhs_layout: str  # what it reads the right-hand side as: the name of a packed layout, or "rows": as it is in memory
    is_skinny: bool = False  # for few rows: work is cut by columns alone, and each task reads all of the left-hand side


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel: where it is used, what it needs, and how large its workspace is.

    Kernels with the same operator and stage are alternatives that give the same bits; the operator's plan chooses.
    """

    operator: str
    stage: str
    name: str
    isa: Isa
    kernel: Kernel
    workspace: Callable[..., tuple[int, ...]] | None = None
    supports: Callable[..., bool] | None = None  # of alternatives with limits: what they can do
    product: Product | None = None


VECTORS = Product(mr=dot.ROWS, nr=dot.NR, rhs_layout=pack.LAYOUT)
TILES = Product(mr=amx.ROWS, nr=dot.NR, rhs_layout=pack.LAYOUT)
SKINNY = Product(mr=skinny.MOST_ROWS, nr=skinny.BLOCK, rhs_layout="rows", is_skinny=True)

# fmt: off
KERNELS = (
    Entry("top_k", "select", "lockstep", Isa.GENERIC, lockstep.lockstep,
          workspace=lockstep.scratch, supports=lockstep.takes),
    Entry("top_k", "select", "tournament", Isa.GENERIC, tournament.tournament,
          workspace=tournament.scratch, supports=tournament.takes),
    Entry("top_k", "select", "split", Isa.GENERIC, split.split, workspace=split.scratch, supports=split.takes),
    Entry("top_k", "merge", "merge", Isa.GENERIC, split.merge),
    Entry("top_k", "select", "sweep", Isa.GENERIC, sweep.sweep, workspace=sweep.scratch, supports=sweep.takes),
    Entry("top_k", "select", "columns", Isa.GENERIC, columns.columns,
          workspace=columns.scratch, supports=columns.takes),
    Entry("top_k", "select", "select_sort", Isa.GENERIC, select_sort.select_sort, workspace=select_sort.scratch),
    Entry("scatter_nd", "validate", "validate", Isa.GENERIC, validate.validate),
    Entry("scatter_nd", "copy", "copy", Isa.GENERIC, owned.copy),
    Entry("scatter_nd", "apply", "apply", Isa.GENERIC, apply.apply),
    Entry("scatter_nd", "partition", "partition", Isa.GENERIC, partition.partition),
    Entry("scatter_nd", "apply_buckets", "apply_buckets", Isa.GENERIC, partition.apply_buckets),
    Entry("quantized_matmul", "pack", "pack", Isa.GENERIC, pack.pack),
    Entry("quantized_matmul", "dot", "dot_u8s8_4x8x4_generic", Isa.GENERIC, product.generic, product=VECTORS),
    Entry("quantized_matmul", "dot", "dot_u8s8_4x16x4_avx2", Isa.AVX2, product.avx2, product=VECTORS),
    Entry("quantized_matmul", "dot", "dot_u8s8_6x16x4_avxvnni", Isa.AVXVNNI, product.avxvnni, product=VECTORS),
    Entry("quantized_matmul", "dot", "dot_u8s8_12x32x4_avx512vnni", Isa.AVX512VNNI, product.avx512vnni,
          product=VECTORS),
    Entry("quantized_matmul", "dot", "dot_u8s8_32x32x64_amx", Isa.AMX, product.amx, product=TILES),
    Entry("quantized_matmul", "dot", "skinny_u8s8_16x16_generic", Isa.GENERIC, skinny.generic,
          supports=skinny.supports, product=SKINNY),
    Entry("quantized_matmul", "dot", "skinny_u8s8_32x16_avx2", Isa.AVX2, skinny.avx2,
          supports=skinny.supports, product=SKINNY),
    Entry("quantized_matmul", "dot", "skinny_u8s8_32x16_avxvnni", Isa.AVXVNNI, skinny.avxvnni,
          supports=skinny.supports, product=SKINNY),
    Entry("quantized_matmul", "dot", "skinny_u8s8_64x16_avx512vnni", Isa.AVX512VNNI, skinny.avx512vnni,
          supports=skinny.supports, product=SKINNY),
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
