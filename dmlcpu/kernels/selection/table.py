"""The kernels of selection: products with a separate epilogue, and the kernel that merges the lists of the shares."""

from dmlcpu.kernels.gemm.table import Output, kernels_of
from dmlcpu.kernels.registry import Row

OUTPUTS = (Output("matmul_top_k", "_top", "selection.candidates.SELECT"),)
KERNELS = (
    Row.of("matmul_top_k", "mark", "selection.marks.mark"),
    Row.of("matmul_top_k", "finish", "selection.finish.finish"),
    *kernels_of(OUTPUTS, reads_columns=True),
)
