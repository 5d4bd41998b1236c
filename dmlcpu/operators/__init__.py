"""The three operators as functions on arrays, with NumPy's habits."""

from dmlcpu.operators.packing import PackedMatrix, pack_b
from dmlcpu.operators.quantized_matmul import quantized_matmul
from dmlcpu.operators.scatter_nd import scatter_nd
from dmlcpu.operators.top_k import TopK, top_k

__all__ = ["PackedMatrix", "TopK", "pack_b", "quantized_matmul", "scatter_nd", "top_k"]
