"""The kernels of scatter_elements and gather_elements."""

from dmlcpu.kernels.registry import Row
from dmlcpu.runtime.isa import Isa

KERNELS = (
    Row.of("scatter_elements", "validate", "elements.validate.validate"),
    Row.of("scatter_elements", "repeats", "elements.repeats.repeats"),
    Row.of("scatter_elements", "copy", "scatter_nd.owned.copy"),
    Row.of("scatter_elements", "scatter", "elements.scatter.scatter_lines"),
    # Rows that repeat one index are left to scatter_nd's kernels; its plan chooses among these.
    Row.of("scatter_elements", "rows", "scatter_nd.apply.apply"),
    Row.of("scatter_elements", "rows", "scatter_nd.select.apply_selected", Isa.AVX512VNNI),
    Row.of("scatter_elements", "rows", "scatter_nd.buckets.apply_buckets"),
    Row.of("gather_elements", "validate", "elements.validate.validate"),
    Row.of("gather_elements", "gather", "elements.gather.gather_lines"),
)
