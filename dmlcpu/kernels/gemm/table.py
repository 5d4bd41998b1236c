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
_ANY = (LAYOUT, ROWS)

# Products in a nanosecond on one thread, within a factor of 2: measured on Zen 4, but for AMX and ARM. Of ARM it is two
# instructions a cycle, of 16 products each, at 2.5 GHz.
RATES = {
    Isa.GENERIC: 45,
    Isa.AVX2: 90,
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
    def is_skinny(self) -> bool:
        """Whether it is for few rows: its work is cut by columns alone, and each task reads all rows of a."""
        return self.rhs_layouts == (ROWS,)

    def supports(self, problem: Problem, rhs_layout: str) -> bool:
        """Return whether the kernel can do this."""
        return rhs_layout in self.rhs_layouts and (not self.is_skinny or fits_few_rows(*problem[1:]))


def _vectors(operator: str, name: str, isa: Isa, microkernel: str, epilogue: Epilogue) -> Product:
    return Product(operator, "dot", name, isa, "product.make_product", microkernel, epilogue, MR, NR, _ANY)


def _tiles(operator: str, name: str, isa: Isa, microkernel: str, epilogue: Epilogue) -> Product:
    return Product(operator, "dot", name, isa, "tiles.make_amx_product", microkernel, epilogue, TALLEST, NR, _ANY)


def _skinny(operator: str, name: str, isa: Isa, microkernel: str, epilogue: Epilogue) -> Product:
    return Product(operator, "dot", name, isa, "skinny.make_skinny", microkernel, epilogue, MOST_ROWS, BLOCK, (ROWS,))


KERNELS = (
    Row("quantized_matmul", "pack", "pack", Isa.GENERIC, "gemm.pack"),
    _vectors("quantized_matmul", "dot_u8s8_4x8x4_generic", Isa.GENERIC, "generic.GENERIC", REQUANTIZE),
    _vectors("quantized_matmul", "dot_u8s8_4x16x4_avx2", Isa.AVX2, "x86.AVX2", REQUANTIZE),
    _vectors("quantized_matmul", "dot_u8s8_6x16x4_avxvnni", Isa.AVXVNNI, "x86.AVXVNNI", REQUANTIZE),
    _vectors("quantized_matmul", "dot_u8s8_12x32x4_avx512vnni", Isa.AVX512VNNI, "x86.AVX512VNNI", REQUANTIZE),
    _tiles("quantized_matmul", "dot_u8s8_32x32x64_amx", Isa.AMX, "x86.AVX512VNNI", REQUANTIZE),
    _vectors("quantized_matmul", "dot_u8s8_4x16x4_dotprod", Isa.DOTPROD, "arm64.DOTPROD", REQUANTIZE),
    _vectors("quantized_matmul", "dot_u8s8_6x16x4_i8mm", Isa.I8MM, "arm64.I8MM", REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_16x16_generic", Isa.GENERIC, "generic.GENERIC", REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_32x16_avx2", Isa.AVX2, "x86.AVX2", REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_32x16_avxvnni", Isa.AVXVNNI, "x86.AVXVNNI", REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_64x16_avx512vnni", Isa.AVX512VNNI, "x86.AVX512VNNI", REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_16x16_dotprod", Isa.DOTPROD, "arm64.DOTPROD", REQUANTIZE),
    _skinny("quantized_matmul", "skinny_u8s8_16x16_i8mm", Isa.I8MM, "arm64.I8MM", REQUANTIZE),
    _vectors("matmul_integer", "dot_u8s8_s32_4x8x4_generic", Isa.GENERIC, "generic.GENERIC", SUMS),
    _vectors("matmul_integer", "dot_u8s8_s32_4x16x4_avx2", Isa.AVX2, "x86.AVX2", SUMS),
    _vectors("matmul_integer", "dot_u8s8_s32_6x16x4_avxvnni", Isa.AVXVNNI, "x86.AVXVNNI", SUMS),
    _vectors("matmul_integer", "dot_u8s8_s32_12x32x4_avx512vnni", Isa.AVX512VNNI, "x86.AVX512VNNI", SUMS),
    _tiles("matmul_integer", "dot_u8s8_s32_32x32x64_amx", Isa.AMX, "x86.AVX512VNNI", SUMS),
    _vectors("matmul_integer", "dot_u8s8_s32_4x16x4_dotprod", Isa.DOTPROD, "arm64.DOTPROD", SUMS),
    _vectors("matmul_integer", "dot_u8s8_s32_6x16x4_i8mm", Isa.I8MM, "arm64.I8MM", SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_16x16_generic", Isa.GENERIC, "generic.GENERIC", SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_32x16_avx2", Isa.AVX2, "x86.AVX2", SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_32x16_avxvnni", Isa.AVXVNNI, "x86.AVXVNNI", SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_64x16_avx512vnni", Isa.AVX512VNNI, "x86.AVX512VNNI", SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_16x16_dotprod", Isa.DOTPROD, "arm64.DOTPROD", SUMS),
    _skinny("matmul_integer", "skinny_u8s8_s32_16x16_i8mm", Isa.I8MM, "arm64.I8MM", SUMS),
)
