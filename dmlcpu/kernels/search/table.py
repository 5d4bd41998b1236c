"""The kernels of search."""

from dmlcpu.kernels.registry import Row
from dmlcpu.runtime.isa import Isa

KERNELS = (
    Row("search", "quantize", "quantize_rows", Isa.GENERIC, "search.quantize_rows"),
    Row("search", "squares", "byte_squares", Isa.GENERIC, "search.byte_squares"),
    Row("search", "pairs", "pair_sums", Isa.GENERIC, "search.pair_sums"),
)
