"""The kernels of scatter_nd."""

from dmlcpu.kernels.registry import Row
from dmlcpu.runtime.isa import Isa

KERNELS = (
    Row("scatter_nd", "validate", "validate", Isa.GENERIC, "scatter_nd.validate"),
    Row("scatter_nd", "copy", "copy", Isa.GENERIC, "scatter_nd.owned"),
    Row("scatter_nd", "apply", "apply", Isa.GENERIC, "scatter_nd.apply"),
    Row("scatter_nd", "apply", "apply_selected", Isa.AVX512VNNI, "scatter_nd.select"),
    Row("scatter_nd", "partition", "partition", Isa.GENERIC, "scatter_nd.partition"),
    Row("scatter_nd", "apply_buckets", "apply_buckets", Isa.GENERIC, "scatter_nd.partition"),
)
