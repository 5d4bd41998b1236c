"""The operators in plain NumPy: slow, obvious, and the oracle for every test.

The functions have the signatures and results of the functions of the same names in `dmlcpu`, which call them if
compilation is switched off (NUMBA_DISABLE_JIT). The code shares nothing with the kernels and assumes valid arguments.
"""

from dmlcpu.reference.gathers import gather_elements
from dmlcpu.reference.products import (
    MatmulTopK,
    dynamic_quantize_matmul,
    matmul_integer,
    matmul_integer_to_float,
    matmul_top_k,
    quantized_matmul,
)
from dmlcpu.reference.quantizers import DynamicQuantized, dequantize_linear, dynamic_quantize_linear, quantize_linear
from dmlcpu.reference.reductions import argmax, argmin
from dmlcpu.reference.scatters import scatter_elements, scatter_nd
from dmlcpu.reference.searches import exact_knn, knn
from dmlcpu.reference.sorts import Sorted, TopK, argsort, sort, sort_with_indices, top_k

__all__ = [
    "DynamicQuantized",
    "MatmulTopK",
    "Sorted",
    "TopK",
    "argmax",
    "argmin",
    "argsort",
    "dequantize_linear",
    "dynamic_quantize_linear",
    "dynamic_quantize_matmul",
    "exact_knn",
    "gather_elements",
    "knn",
    "matmul_integer",
    "matmul_integer_to_float",
    "matmul_top_k",
    "quantize_linear",
    "quantized_matmul",
    "scatter_elements",
    "scatter_nd",
    "sort",
    "sort_with_indices",
    "top_k",
]
