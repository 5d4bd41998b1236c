"""Products of bytes by the tile registers of AMX."""

from dmlcpu.kernels.gemm.microkernels.amx import TILE_WORDS, configure_tiles, multiply_tiles, release_tiles
from dmlcpu.kernels.gemm.microkernels.microkernel import NR, TALLEST
from dmlcpu.runtime.kernel import kernel
from dmlcpu.runtime.records import LINE_CELLS

PRODUCTS = TALLEST * NR * 4 * TILE_WORDS  # of a turn


@kernel
def multiply_amx(part, parts, turns, done):
    """Multiply tiles of zeros for some turns; write how many products that were to the line of `done` of the part."""
    configure_tiles()
    multiply_tiles(turns)
    release_tiles()
    done[LINE_CELLS * part] = turns * PRODUCTS
