"""The product by the tile registers of AMX, which only processors with AMX import."""

from dmlcpu.kernels.gemm.epilogue import Epilogue
from dmlcpu.kernels.gemm.microkernels import amx
from dmlcpu.kernels.gemm.microkernels.microkernel import TALLEST, Microkernel, make_dot
from dmlcpu.kernels.gemm.product import product
from dmlcpu.runtime.kernel import Kernel
from dmlcpu.runtime.variants import variant


def make_amx_product(name: str, microkernel: Microkernel, using: Epilogue) -> Kernel:
    """Return the product by tile registers, with an epilogue; a microkernel for vectors multiplies remaining rows."""
    return variant(
        product,
        name,
        MR=TALLEST,
        HALF_MR=amx.TILE_ROWS,
        dot_mr=amx.make_tile_dot(TALLEST),
        dot_half=amx.make_tile_dot(amx.TILE_ROWS),
        dot_4=make_dot(4, microkernel),
        dot_1=make_dot(1, microkernel),
        begin=amx.configure_tiles,
        end=amx.release_tiles,
        **using._asdict(),
    )
