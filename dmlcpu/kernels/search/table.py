"""The kernels of search."""

from dmlcpu.kernels.registry import Row

KERNELS = (
    Row.of("search", "quantize", "search.quantize_rows.quantize_rows"),
    Row.of("search", "squares", "search.quantize_rows.byte_squares"),
    Row.of("search", "pairs", "search.pair_sums.pair_sums"),
    Row.of("search", "encode", "search.encode.encode"),
    Row.of("search", "refine", "search.refine.refine"),
    Row.of("search", "scan", "search.scan.scan"),
)
