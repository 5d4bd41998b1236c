"""The kernels of products of bytes, for all operators of that family."""

from dataclasses import dataclass
from typing import Any

from dmlcpu.kernels.gemm.cut import MOST_ROWS, fits_few_rows
from dmlcpu.kernels.gemm.epilogue import REQUANTIZE, SUMS, Epilogue
from dmlcpu.kernels.gemm.microkernels.microkernel import MR, NR, TALLEST
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK
from dmlcpu.kernels.gemm.pack import LAYOUT
from dmlcpu.kernels.gemm.work import Problem
from dmlcpu.kernels.registry import Row, load
from dmlcpu.runtime.isa import Isa

ROWS = "rows"  # the layout of a right-hand side as it is in memory

# Products in a nanosecond on one thread, within a factor of 2: measured on Zen 4, but for AMX and ARM. Of ARM it is two
# instructions a cycle, of 16 products each, at 2.5 GHz.
RATES = {
    Isa.GENERIC: 45,
    Isa.AVX2: 105,
    Isa.AVXVNNI: 150,
    Isa.AVX512VNNI: 180,
    Isa.AMX: 1000,
    Isa.DOTPROD: 80,
    Isa.I8MM: 80,
}

_made: dict["Product", Any] = {}


@dataclass(frozen=True, slots=True)
class Product(Row):
    """A product: one of the loop nests, which `home` makes, with a microkernel and an epilogue."""

    microkernel: str  # of the vector unit: its module in microkernels/, and its name
    epilogue: Epilogue
    mr: int  # rows of its tallest tile of accumulators
    nr: int  # columns of it
    rhs_layouts: tuple[str, ...]  # of the right-hand sides it takes: packed ones, or ROWS

    @property
    def kernel(self) -> Any:
        """The kernel, which is made when it is first asked for."""
        if self not in _made:
            microkernel = load(f"gemm.microkernels.{self.microkernel}")
            _made.setdefault(self, load(f"gemm.{self.home}")(microkernel, self.epilogue))
        return _made[self]

    @property
    def rate(self) -> int:
        """Products in a nanosecond on one thread."""
        return RATES[self.isa]

    @property
    def has_forms(self) -> bool:
        """Whether it looks for pairs of bytes that saturate."""
        return self.home == "forms.make_formed_product"

    @property
    def is_skinny(self) -> bool:
        """Whether it is for few rows: its work is cut by columns alone, and each task reads all rows of a."""
        return self.rhs_layouts == (ROWS,)

    def supports(self, problem: Problem, rhs_layout: str) -> bool:
        """Return whether the kernel can do this."""
        return rhs_layout in self.rhs_layouts and (not self.is_skinny or fits_few_rows(*problem[1:]))


# The function that makes a kernel, its tallest tile, and the right-hand sides that it takes.
_VECTORS = "product.make_product", MR, NR, (LAYOUT, ROWS)
_FORMS = "forms.make_formed_product", MR, NR, (LAYOUT, ROWS)
_TILES = "tiles.make_amx_product", TALLEST, NR, (LAYOUT, ROWS)
_SKINNY = "skinny.make_skinny", MOST_ROWS, BLOCK, (ROWS,)


def _rows(how: tuple[str, int, int, tuple[str, ...]], microkernel: str, *names: str) -> list[Product]:
    """Return the rows of quantized_matmul and matmul_integer for kernels of these names, which end with their set."""
    operators = ("quantized_matmul", names[0], REQUANTIZE), ("matmul_integer", names[1], SUMS)
    home, mr, nr, rhs_layouts = how
    isa = Isa[names[0].rpartition("_")[2].upper()]
    return [
        Product(op, "dot", name, isa, home, microkernel, using, mr, nr, rhs_layouts) for op, name, using in operators
    ]


KERNELS = (
    Row("quantized_matmul", "pack", "pack", Isa.GENERIC, "gemm.pack"),
    *_rows(_VECTORS, "generic.GENERIC", "dot_u8s8_4x8x4_generic", "dot_u8s8_s32_4x8x4_generic"),
    *_rows(_FORMS, "x86.AVX2", "dot_u8s8_4x16x4_avx2", "dot_u8s8_s32_4x16x4_avx2"),
    *_rows(_VECTORS, "x86.AVXVNNI", "dot_u8s8_6x16x4_avxvnni", "dot_u8s8_s32_6x16x4_avxvnni"),
    *_rows(_VECTORS, "x86.AVX512VNNI", "dot_u8s8_12x32x4_avx512vnni", "dot_u8s8_s32_12x32x4_avx512vnni"),
    *_rows(_TILES, "x86.AVX512VNNI", "dot_u8s8_32x32x64_amx", "dot_u8s8_s32_32x32x64_amx"),
    *_rows(_VECTORS, "arm64.DOTPROD", "dot_u8s8_4x16x4_dotprod", "dot_u8s8_s32_4x16x4_dotprod"),
    *_rows(_VECTORS, "arm64.I8MM", "dot_u8s8_6x16x4_i8mm", "dot_u8s8_s32_6x16x4_i8mm"),
    *_rows(_SKINNY, "generic.GENERIC", "skinny_u8s8_16x16_generic", "skinny_u8s8_s32_16x16_generic"),
    *_rows(_SKINNY, "x86.AVX2", "skinny_u8s8_32x16_avx2", "skinny_u8s8_s32_32x16_avx2"),
    *_rows(_SKINNY, "x86.AVXVNNI", "skinny_u8s8_32x16_avxvnni", "skinny_u8s8_s32_32x16_avxvnni"),
    *_rows(_SKINNY, "x86.AVX512VNNI", "skinny_u8s8_64x16_avx512vnni", "skinny_u8s8_s32_64x16_avx512vnni"),
    *_rows(_SKINNY, "arm64.DOTPROD", "skinny_u8s8_16x16_dotprod", "skinny_u8s8_s32_16x16_dotprod"),
    *_rows(_SKINNY, "arm64.I8MM", "skinny_u8s8_16x16_i8mm", "skinny_u8s8_s32_16x16_i8mm"),
)
