"""The kernels of argmax and argmin, which differ only in their keys."""

from dmlcpu.kernels.registry import Row

KERNELS = tuple(
    row
    for operator in ("argmax", "argmin")
    for row in (
        Row.of(operator, "find", "arg_reduce.scan.scan"),
        Row.of(operator, "find", "arg_reduce.columns.columns"),
        Row.of(operator, "merge", "arg_reduce.work.merge"),
    )
)
