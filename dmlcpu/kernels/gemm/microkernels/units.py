"""The registers that instruction sets multiply with, and the part of a product that these hold.

These are only numbers. Kernel names follow from them, so a table of kernels needs no code of any instruction set.
"""

from typing import NamedTuple

from dmlcpu.runtime.isa import Isa
from dmlcpu.runtime.records import CACHE_LINE


class Unit(NamedTuple):
    """A vector unit, or the tile registers of AMX.

    Registers hold `rows` rows of `vectors` vectors of accumulators at a time, and with them the right-hand side and one
    word of the left.
    """

    isa: Isa
    registers: int
    lanes: int  # words of a register
    vectors: int
    rows: int
    depth: int = 4  # bytes that an instruction multiplies along K

    @property
    def name(self) -> str:
        """The name of the instruction set in names of kernels."""
        return self.isa.name.lower()

    @property
    def columns(self) -> int:
        """Columns that are in registers at a time."""
        return self.lanes * self.vectors

    @property
    def width(self) -> int:
        """Bytes of a register."""
        return 4 * self.lanes

    @property
    def half(self) -> int:
        """The rows of a tile of about half the height: eight, or fewer if blocks are then whole."""
        return 8 - 8 % min(self.rows, 8)

    @property
    def align(self) -> int:
        """The alignment of a vector of a panel or a tile, in bytes."""
        return min(CACHE_LINE, self.width)


GENERIC = Unit(Isa.GENERIC, registers=16, lanes=4, vectors=2, rows=4)
AVX2 = Unit(Isa.AVX2, registers=16, lanes=8, vectors=2, rows=4)
AVXVNNI = Unit(Isa.AVXVNNI, registers=16, lanes=8, vectors=2, rows=6)
AVX512VNNI = Unit(Isa.AVX512VNNI, registers=32, lanes=16, vectors=2, rows=12)
AMX = Unit(Isa.AMX, registers=8, lanes=16, vectors=2, rows=32, depth=64)
# Like XNNPACK's 4x16c4 and 6x16c4: accumulators, the right-hand side and one word of the left take 24 to 29 registers.
DOTPROD = Unit(Isa.DOTPROD, registers=32, lanes=4, vectors=4, rows=4)
I8MM = Unit(Isa.I8MM, registers=32, lanes=4, vectors=4, rows=6)
