"""The functions on Dask arrays: lazy, chunked in any way, with the functions' results to the bit."""

try:
    import dask.array  # noqa: F401
except ImportError as error:
    raise ImportError("dmlcpu.interop.dask needs the package dask: pip install 'dmlcpu[dask]'") from error

from dmlcpu.interop.dask.lazy_quantized_matmul import quantized_matmul
from dmlcpu.interop.dask.lazy_scatter_nd import scatter_nd
from dmlcpu.interop.dask.lazy_top_k import top_k

__all__ = ["quantized_matmul", "scatter_nd", "top_k"]
