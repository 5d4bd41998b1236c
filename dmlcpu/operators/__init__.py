"""The three operators as functions on arrays, with NumPy's habits."""

from dmlcpu.operators.top_k import TopK, top_k

__all__ = ["TopK", "top_k"]
