"""The three operators as functions on arrays, with NumPy's habits."""

from dmlcpu.operators.packing import PackedMatrix, pack_b
from dmlcpu.operators.quantized_matmul import quantized_matmul
from dmlcpu.operators.scatter_nd import scatter_nd
from dmlcpu.operators.top_k import TopK, top_k
from dmlcpu.runtime.threadpools import join_threadpoolctl

__all__ = ["PackedMatrix", "TopK", "pack_b", "quantized_matmul", "scatter_nd", "top_k"]

join_threadpoolctl()
