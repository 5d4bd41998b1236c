"""The kernels of products of bytes, for all operators of that family."""

from dataclasses import dataclass
from typing import Any

from dmlcpu.kernels.gemm.cut import MOST_DOT_ROWS, MOST_ROWS, fits_dots, fits_few_rows
from dmlcpu.kernels.gemm.epilogue import REQUANTIZE, SUMS, TO_FLOAT, Epilogue
from dmlcpu.kernels.gemm.microkernels.microkernel import MR, NR, TALLEST
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK
from dmlcpu.kernels.gemm.pack import LAYOUT
from dmlcpu.kernels.gemm.work import Problem
from dmlcpu.kernels.registry import Row, load
from dmlcpu.runtime.isa import Isa

ROWS = "rows"  # the layout of a right-hand side as it is in memory
COLUMNS = "columns"  # the same, if its columns are contiguous

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
    epilogue: Epilogue | str  # text, if its module imports another operator's kernels
    mr: int  # rows of its tallest tile of accumulators
    nr: int  # columns of it
    rhs_layouts: tuple[str, ...]  # of the right-hand sides it takes: packed ones, ROWS or COLUMNS

    @property
    def kernel(self) -> Any:
        """The kernel, which is made when it is first asked for."""
        if self not in _made:
            microkernel = load(f"gemm.microkernels.{self.microkernel}")
            using = load(f"gemm.{self.epilogue}") if isinstance(self.epilogue, str) else self.epilogue
            _made.setdefault(self, load(f"gemm.{self.home}")(microkernel, using))
        return _made[self]

    @property
    def wraps(self) -> bool:
        """Whether an int32 y gets sums modulo 2**32."""
        return isinstance(self.epilogue, Epilogue) and self.epilogue.wraps

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
        return LAYOUT not in self.rhs_layouts

    @property
    def reads_columns(self) -> bool:
        """Whether it is for contiguous columns."""
        return self.rhs_layouts == (COLUMNS,)

    def supports(self, problem: Problem, rhs_layout: str) -> bool:
        """Return whether the kernel can do this."""
        if rhs_layout not in self.rhs_layouts:
            return False
        if self.reads_columns:
            return fits_dots(problem.rows, problem.depth)
        return not self.is_skinny or fits_few_rows(*problem[1:])


SELECT = "candidates.SELECT"
OPERATORS: tuple[tuple[str, Epilogue | str], ...] = (
    ("quantized_matmul", REQUANTIZE),
    ("matmul_integer", SUMS),
    ("matmul_integer_to_float", TO_FLOAT),
    ("matmul_top_k", SELECT),
)
# The function that makes a kernel, its tallest tile, and the right-hand sides that it takes.
_VECTORS = "product.make_product", MR, NR, (LAYOUT, ROWS, COLUMNS)
_FORMS = "forms.make_formed_product", MR, NR, (LAYOUT, ROWS, COLUMNS)
_TILES = "tiles.make_amx_product", TALLEST, NR, (LAYOUT, ROWS, COLUMNS)
_SKINNY = "skinny.make_skinny", MOST_ROWS, BLOCK, (ROWS,)


def _rows(how: tuple[str, int, int, tuple[str, ...]], microkernel: str, *names: str) -> list[Product]:
    """Return the rows of the operators for kernels of these names, in the order of OPERATORS."""
    home, mr, nr, rhs_layouts = how
    isa = Isa[names[0].rpartition("_")[2].upper()]
    return [
        Product(operator, "dot", name, isa, home, microkernel, using, mr, nr, rhs_layouts)
        for (operator, using), name in zip(OPERATORS, names, strict=True)
    ]


def _dots(microkernel: str, name: str) -> list[Product]:
    """Return the row of a kernel for few rows and contiguous columns: vectors that are searched."""
    isa, home = Isa[name.rpartition("_")[2].upper()], "dots.make_dots_product"
    return [Product("matmul_top_k", "dot", name, isa, home, microkernel, SELECT, MOST_DOT_ROWS, NR, (COLUMNS,))]


KERNELS = (
    Row("quantized_matmul", "pack", "pack", Isa.GENERIC, "gemm.pack"),
    Row("matmul_top_k", "finish", "finish", Isa.GENERIC, "gemm.finish"),
    *_rows(
        _VECTORS,
        "generic.GENERIC",
        "dot_u8s8_4x8x4_generic",
        "dot_u8s8_s32_4x8x4_generic",
        "dot_u8s8_f32_4x8x4_generic",
        "dot_u8s8_top_4x8x4_generic",
    ),
    *_rows(
        _FORMS,
        "x86.AVX2",
        "dot_u8s8_4x16x4_avx2",
        "dot_u8s8_s32_4x16x4_avx2",
        "dot_u8s8_f32_4x16x4_avx2",
        "dot_u8s8_top_4x16x4_avx2",
    ),
    *_rows(
        _VECTORS,
        "x86.AVXVNNI",
        "dot_u8s8_6x16x4_avxvnni",
        "dot_u8s8_s32_6x16x4_avxvnni",
        "dot_u8s8_f32_6x16x4_avxvnni",
        "dot_u8s8_top_6x16x4_avxvnni",
    ),
    *_rows(
        _VECTORS,
        "x86.AVX512VNNI",
        "dot_u8s8_12x32x4_avx512vnni",
        "dot_u8s8_s32_12x32x4_avx512vnni",
        "dot_u8s8_f32_12x32x4_avx512vnni",
        "dot_u8s8_top_12x32x4_avx512vnni",
    ),
    *_rows(
        _TILES,
        "x86.AVX512VNNI",
        "dot_u8s8_32x32x64_amx",
        "dot_u8s8_s32_32x32x64_amx",
        "dot_u8s8_f32_32x32x64_amx",
        "dot_u8s8_top_32x32x64_amx",
    ),
    *_rows(
        _VECTORS,
        "arm64.DOTPROD",
        "dot_u8s8_4x16x4_dotprod",
        "dot_u8s8_s32_4x16x4_dotprod",
        "dot_u8s8_f32_4x16x4_dotprod",
        "dot_u8s8_top_4x16x4_dotprod",
    ),
    *_rows(
        _VECTORS,
        "arm64.I8MM",
        "dot_u8s8_6x16x4_i8mm",
        "dot_u8s8_s32_6x16x4_i8mm",
        "dot_u8s8_f32_6x16x4_i8mm",
        "dot_u8s8_top_6x16x4_i8mm",
    ),
    *_rows(
        _SKINNY,
        "generic.GENERIC",
        "skinny_u8s8_16x16_generic",
        "skinny_u8s8_s32_16x16_generic",
        "skinny_u8s8_f32_16x16_generic",
        "skinny_u8s8_top_16x16_generic",
    ),
    *_rows(
        _SKINNY,
        "x86.AVX2",
        "skinny_u8s8_32x16_avx2",
        "skinny_u8s8_s32_32x16_avx2",
        "skinny_u8s8_f32_32x16_avx2",
        "skinny_u8s8_top_32x16_avx2",
    ),
    *_rows(
        _SKINNY,
        "x86.AVXVNNI",
        "skinny_u8s8_32x16_avxvnni",
        "skinny_u8s8_s32_32x16_avxvnni",
        "skinny_u8s8_f32_32x16_avxvnni",
        "skinny_u8s8_top_32x16_avxvnni",
    ),
    *_rows(
        _SKINNY,
        "x86.AVX512VNNI",
        "skinny_u8s8_64x16_avx512vnni",
        "skinny_u8s8_s32_64x16_avx512vnni",
        "skinny_u8s8_f32_64x16_avx512vnni",
        "skinny_u8s8_top_64x16_avx512vnni",
    ),
    *_rows(
        _SKINNY,
        "arm64.DOTPROD",
        "skinny_u8s8_16x16_dotprod",
        "skinny_u8s8_s32_16x16_dotprod",
        "skinny_u8s8_f32_16x16_dotprod",
        "skinny_u8s8_top_16x16_dotprod",
    ),
    *_rows(
        _SKINNY,
        "arm64.I8MM",
        "skinny_u8s8_16x16_i8mm",
        "skinny_u8s8_s32_16x16_i8mm",
        "skinny_u8s8_f32_16x16_i8mm",
        "skinny_u8s8_top_16x16_i8mm",
    ),
    *_dots("generic.GENERIC", "columns_u8s8_top_16_generic"),
    *_dots("x86.AVX2_WIDENING", "columns_u8s8_top_32_avx2"),
    *_dots("x86.AVXVNNI", "columns_u8s8_top_32_avxvnni"),
    *_dots("x86.AVX512VNNI", "columns_u8s8_top_64_avx512vnni"),
    *_dots("arm64.DOTPROD", "columns_u8s8_top_16_dotprod"),
    *_dots("arm64.I8MM", "columns_u8s8_top_16_i8mm"),
)
