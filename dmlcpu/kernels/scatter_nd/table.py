"""The kernels of scatter_nd."""

from dmlcpu.kernels.registry import Row
from dmlcpu.runtime.isa import Isa

KERNELS = (
    Row.of("scatter_nd", "validate", "scatter_nd.validate.validate"),
    Row.of("scatter_nd", "copy", "scatter_nd.owned.copy"),
    Row.of("scatter_nd", "apply", "scatter_nd.apply.apply"),
    Row.of("scatter_nd", "apply", "scatter_nd.select.apply_selected", Isa.AVX512VNNI),
    Row.of("scatter_nd", "sample", "scatter_nd.cuts.sample"),
    Row.of("scatter_nd", "cut", "scatter_nd.cuts.cut"),
    Row.of("scatter_nd", "order", "scatter_nd.cuts.order"),
    Row.of("scatter_nd", "partition", "scatter_nd.partition.partition"),
    Row.of("scatter_nd", "apply_buckets", "scatter_nd.buckets.apply_buckets"),
    Row.of("scatter_nd", "apply_bucket_slices", "scatter_nd.buckets.apply_bucket_slices"),
)
