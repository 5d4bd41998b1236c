"""The table of kernels: one line each. Dispatch, tests and benchmarks read it, and nothing else lists kernels."""

from collections.abc import Callable
from dataclasses import dataclass

from dmlcpu.kernels.gemm import pack, skinny
from dmlcpu.kernels.gemm.epilogue import INT32, REQUANTIZE
from dmlcpu.kernels.gemm.microkernels import amx, generic, x86
from dmlcpu.kernels.gemm.microkernels.microkernel import MR, NR
from dmlcpu.kernels.gemm.product import make_amx_product, make_product
from dmlcpu.kernels.gemm.skinny import make_skinny
from dmlcpu.kernels.scatter_nd import apply, buckets, resolve
from dmlcpu.kernels.top_k import lockstep, select_sort, split, strided_insert, strided_tournament, tournament
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


VECTORS = Product(mr=MR, nr=NR, rhs_layout=pack.LAYOUT)
TILES = Product(mr=amx.MR, nr=NR, rhs_layout=pack.LAYOUT)
SKINNY = Product(mr=skinny.MOST_ROWS, nr=skinny.BLOCK, rhs_layout="rows", is_skinny=True)

# fmt: off
KERNELS = (
    Entry("top_k", "select", "lockstep", Isa.GENERIC, lockstep.lockstep,
          workspace=lockstep.workspace, supports=lockstep.supports),
    Entry("top_k", "select", "tournament", Isa.GENERIC, tournament.tournament,
          workspace=tournament.workspace, supports=tournament.supports),
    Entry("top_k", "select", "split", Isa.GENERIC, split.split,
          workspace=tournament.workspace, supports=tournament.supports),
    Entry("top_k", "merge", "merge", Isa.GENERIC, split.merge),
    Entry("top_k", "select", "strided_insert", Isa.GENERIC, strided_insert.strided_insert,
          workspace=strided_insert.workspace, supports=strided_insert.supports),
    Entry("top_k", "select", "strided_tournament", Isa.GENERIC, strided_tournament.strided_tournament,
          workspace=strided_tournament.workspace, supports=strided_tournament.supports),
    Entry("top_k", "select", "select_sort", Isa.GENERIC, select_sort.select_sort, workspace=select_sort.workspace),
    Entry("scatter_nd", "survey", "survey", Isa.GENERIC, resolve.survey),
    Entry("scatter_nd", "copy", "copy", Isa.GENERIC, apply.copy),
    Entry("scatter_nd", "apply", "apply", Isa.GENERIC, apply.apply),
    Entry("scatter_nd", "partition", "partition", Isa.GENERIC, buckets.partition),
    Entry("scatter_nd", "drain", "drain", Isa.GENERIC, buckets.drain),
    Entry("quantized_matmul", "pack", "pack", Isa.GENERIC, pack.pack),
    Entry("quantized_matmul", "dot", "dot_u8s8_4x8x4_generic", Isa.GENERIC,
          make_product(generic.GENERIC, REQUANTIZE), product=VECTORS),
    Entry("quantized_matmul", "dot", "dot_u8s8_4x16x4_avx2", Isa.AVX2,
          make_product(x86.AVX2, REQUANTIZE), product=VECTORS),
    Entry("quantized_matmul", "dot", "dot_u8s8_6x16x4_avxvnni", Isa.AVXVNNI,
          make_product(x86.AVXVNNI, REQUANTIZE), product=VECTORS),
    Entry("quantized_matmul", "dot", "dot_u8s8_12x32x4_avx512vnni", Isa.AVX512VNNI,
          make_product(x86.AVX512VNNI, REQUANTIZE), product=VECTORS),
    Entry("quantized_matmul", "dot", "dot_u8s8_32x32x64_amx", Isa.AMX, make_amx_product(REQUANTIZE), product=TILES),
    Entry("quantized_matmul", "dot", "skinny_u8s8_16x16_generic", Isa.GENERIC,
          make_skinny(generic.GENERIC, REQUANTIZE), supports=skinny.supports, product=SKINNY),
    Entry("quantized_matmul", "dot", "skinny_u8s8_32x16_avx2", Isa.AVX2,
          make_skinny(x86.AVX2, REQUANTIZE), supports=skinny.supports, product=SKINNY),
    Entry("quantized_matmul", "dot", "skinny_u8s8_32x16_avxvnni", Isa.AVXVNNI,
          make_skinny(x86.AVXVNNI, REQUANTIZE), supports=skinny.supports, product=SKINNY),
    Entry("quantized_matmul", "dot", "skinny_u8s8_64x16_avx512vnni", Isa.AVX512VNNI,
          make_skinny(x86.AVX512VNNI, REQUANTIZE), supports=skinny.supports, product=SKINNY),
    Entry("matmul_integer", "dot", "dot_u8s8_s32_4x8x4_generic", Isa.GENERIC,
          make_product(generic.GENERIC, INT32), product=VECTORS),
    Entry("matmul_integer", "dot", "dot_u8s8_s32_4x16x4_avx2", Isa.AVX2,
          make_product(x86.AVX2, INT32), product=VECTORS),
    Entry("matmul_integer", "dot", "dot_u8s8_s32_6x16x4_avxvnni", Isa.AVXVNNI,
          make_product(x86.AVXVNNI, INT32), product=VECTORS),
    Entry("matmul_integer", "dot", "dot_u8s8_s32_12x32x4_avx512vnni", Isa.AVX512VNNI,
          make_product(x86.AVX512VNNI, INT32), product=VECTORS),
    Entry("matmul_integer", "dot", "dot_u8s8_s32_32x32x64_amx", Isa.AMX, make_amx_product(INT32), product=TILES),
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
