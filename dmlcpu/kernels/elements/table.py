"""The kernels of scatter_elements and gather_elements."""

from dmlcpu.kernels.registry import Row

KERNELS = (
    Row.of("scatter_elements", "validate", "elements.validate.validate"),
    Row.of("scatter_elements", "repeats", "elements.repeats.repeats"),
    Row.of("scatter_elements", "copy", "scatter_nd.owned.copy"),
    Row.of("scatter_elements", "scatter", "elements.scatter.scatter_lines"),
    Row.of("gather_elements", "validate", "elements.validate.validate"),
    Row.of("gather_elements", "gather", "elements.gather.gather_lines"),
)
