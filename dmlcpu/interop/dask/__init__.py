"""The functions on Dask arrays: lazy, chunked in any way, with the functions' results to the bit."""

from dmlcpu.common.imports import install_command

try:
    import dask.array  # noqa: F401
except ImportError as error:
    raise ImportError(f"dmlcpu.interop.dask needs the package dask: {install_command('dask')}") from error

from dmlcpu.interop.dask.lazy_quantized_matmul import quantized_matmul
from dmlcpu.interop.dask.lazy_scatter_nd import scatter_nd
from dmlcpu.interop.dask.lazy_top_k import top_k

__all__ = ["quantized_matmul", "scatter_nd", "top_k"]
