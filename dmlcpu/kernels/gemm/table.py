"""The kernels of products of bytes, for all operators of that family.

A kernel is a loop nest with an instruction set's microkernel and an operator's epilogue, which give it its name.
"""

from dataclasses import dataclass
from typing import NamedTuple

from dmlcpu.kernels.gemm.cut import MOST_DOT_ROWS, MOST_ROWS, fits_dots, fits_few_rows
from dmlcpu.kernels.gemm.microkernels import units
from dmlcpu.kernels.gemm.microkernels.microkernel import MR, NR, TALLEST
from dmlcpu.kernels.gemm.microkernels.skinny import BLOCK, DEPTH
from dmlcpu.kernels.gemm.pack import LAYOUT
from dmlcpu.kernels.gemm.work import Problem
from dmlcpu.kernels.registry import Made, Row

UNPACKED = "rows"  # the layout of a right-hand side as it is in memory
COLUMN_MAJOR = "columns"  # the same, if its columns are contiguous


class Nest(NamedTuple):
    """A loop nest."""

    path: str  # of the function that makes its kernels
    name: str  # of a kernel
    mr: int  # rows of its tallest tile of accumulators
    nr: int  # columns of a tile
    rhs_layouts: tuple[str, ...] = (LAYOUT, UNPACKED, COLUMN_MAJOR)  # that it accepts


class Output(NamedTuple):
    """An operator's results, made of exact sums."""

    operator: str
    suffix: str  # in names of kernels
    epilogue: str
    wraps: bool = False  # y may be int32 and get sums modulo 2**32, which int32 accumulators hold for any K


class Target(NamedTuple):
    """An instruction set that multiplies bytes."""

    unit: units.Unit
    nest: Nest  # of products of packed operands
    rate: int  # products in a nanosecond on one thread
    microkernel: str  # for vectors
    exact: str = ""  # for contiguous columns, if it is another one

    def product(self, nest: Nest, output: Output) -> "Product":
        """Return the row of a kernel."""
        name = nest.name.format(suffix=output.suffix, unit=self.unit, DEPTH=DEPTH)
        microkernel = (nest == DOTS and self.exact) or self.microkernel
        row = output.operator, "dot", name, self.unit.isa, nest.path, (microkernel, output.epilogue)
        return Product(*row, nest.mr, nest.nr, nest.rhs_layouts, self.rate, output.wraps)


@dataclass(frozen=True, slots=True)
class Product(Made):
    """A product; its parts are a microkernel and an epilogue."""

    mr: int
    nr: int
    rhs_layouts: tuple[str, ...]
    rate: int
    wraps: bool

    @property
    def has_forms(self) -> bool:
        """Whether it looks for pairs of bytes that saturate."""
        return self.path == FORMS.path

    @property
    def is_skinny(self) -> bool:
        """Whether it is for few rows: only columns are cut, and each task reads all rows of a."""
        return LAYOUT not in self.rhs_layouts

    @property
    def reads_columns(self) -> bool:
        """Whether it is for contiguous columns."""
        return self.path == DOTS.path

    def supports(self, problem: Problem, rhs_layout: str) -> bool:
        """Return whether the kernel can do a product."""
        if rhs_layout not in self.rhs_layouts:
            return False
        if self.reads_columns:
            return fits_dots(problem.rows, problem.depth)
        return not self.is_skinny or fits_few_rows(*problem[1:])


_DOT = "dot_u8s8{suffix}_{unit.rows}x{unit.columns}x{unit.depth}_{unit.name}"
_SKINNY = "skinny_u8s8{suffix}_{unit.width}x{DEPTH}_{unit.name}"
_COLUMNS = "columns_u8s8{suffix}_{unit.width}_{unit.name}"
VECTORS = Nest("gemm.product.make_product", _DOT, MR, NR)
FORMS = Nest("gemm.forms.make_formed_product", _DOT, MR, NR)
TILES = Nest("gemm.product.make_amx_product", _DOT, TALLEST, NR)
FEW_ROWS = Nest("gemm.skinny.make_skinny", _SKINNY, MOST_ROWS, BLOCK, (UNPACKED,))
DOTS = Nest("gemm.dots.make_dots_product", _COLUMNS, MOST_DOT_ROWS, NR, (COLUMN_MAJOR,))

OUTPUTS = (
    Output("quantized_matmul", "", "gemm.epilogue.REQUANTIZE"),
    Output("matmul_integer", "_s32", "gemm.epilogue.SUMS", wraps=True),
    Output("matmul_integer_to_float", "_f32", "gemm.epilogue.TO_FLOAT"),
)
# Rates hold within a factor of 2. They were measured on Zen 4, except those of AMX and ARM. ARM's assume two
# instructions a cycle, with 16 products each, at 2.5 GHz.
TARGETS = (
    Target(units.GENERIC, VECTORS, 45, "gemm.microkernels.generic.GENERIC"),
    Target(units.AVX2, FORMS, 105, "gemm.microkernels.x86.AVX2", "gemm.microkernels.x86.AVX2_WIDENING"),
    Target(units.AVXVNNI, VECTORS, 150, "gemm.microkernels.x86.AVXVNNI"),
    Target(units.AVX512VNNI, VECTORS, 180, "gemm.microkernels.x86.AVX512VNNI"),
    Target(units.AMX, TILES, 1000, "gemm.microkernels.x86.AVX512VNNI"),
    Target(units.DOTPROD, VECTORS, 80, "gemm.microkernels.arm64.DOTPROD"),
    Target(units.I8MM, VECTORS, 80, "gemm.microkernels.arm64.I8MM"),
)
_VECTOR_UNITS = [target for target in TARGETS if target.nest != TILES]


def kernels_of(outputs: tuple[Output, ...], reads_columns: bool = False) -> list[Product]:
    """Return the table's rows for outputs. reads_columns: include kernels for contiguous columns."""
    few = (FEW_ROWS, DOTS) if reads_columns else (FEW_ROWS,)
    return [
        *[target.product(target.nest, output) for target in TARGETS for output in outputs],
        *[target.product(nest, output) for nest in few for target in _VECTOR_UNITS for output in outputs],
    ]


KERNELS = (Row.of("quantized_matmul", "pack", "gemm.pack.pack"), *kernels_of(OUTPUTS))
