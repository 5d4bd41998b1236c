"""A call of each operator to bind, and layouts of its arrays."""

import numpy as np
import pytest
from samples import misaligned, strided, swapped

from dmlcpu.operators import OPERATORS


def top_k():
    return [np.array([3, 1, 2, 9, 7], np.float32), 2], {}


def scatter_nd():
    return [np.arange(6.0), np.array([[1], [4]]), np.array([7.0, 8.0])], {"reduction": "add"}


def scatter_elements():
    x, indices = np.array([[0.0, 1, 2], [3, 4, 5], [6, 7, 8]]), np.array([[0, 0, 1], [1, 0, 0]])
    return [x, indices, np.array([[7.0, 8.0, 9.0], [1.0, 2.0, 3.0]])], {"axis": 0, "reduction": "add"}


def gather_elements():
    return [np.array([[0.0, 1, 2], [3, 4, 5], [6, 7, 8]]), np.array([[0, 0, 1], [1, 0, 0]])], {"axis": 0}


def quantized_matmul():
    a, b = np.array([[10, 20], [30, 40]], np.uint8), np.array([[1, -1], [2, -2]], np.int8)
    scale = np.array([0.5, 0.25], np.float32)
    return [a, np.array(0.5, np.float32), np.array([3], np.uint8), b, scale, None, np.float32(2), 9], {}


def matmul_integer():
    a, b = np.array([[10, 20], [30, 40]], np.uint8), np.array([[1, -1], [2, -2]], np.int8)
    return [a, np.array([3, 4], np.uint8), b, np.array([1, -1], np.int8)], {}


def matmul_top_k():
    a, b = np.array([[10, 20], [30, 40]], np.uint8), np.array([[1, -1, 3], [2, -2, 1]], np.int8)
    return [a, b, 2], {"a_zero_point": np.array([3, 4], np.uint8), "b_scale": np.array([1, 0.5, 2], np.float32)}


def matmul_integer_to_float():
    a, b = np.array([[10, 20], [30, 40]], np.uint8), np.array([[1, -1], [2, -2]], np.int8)
    scale, bias = np.array([0.5, -0.25], np.float32), np.array([1, -1], np.float32)
    return [a, np.array(0.5, np.float32), np.array([3, 4], np.uint8), b, scale, None, bias], {}


def dynamic_quantize_matmul():
    x, b = np.array([[10, 20], [-3, 4]], np.float32), np.array([[1, -1], [2, -2]], np.int8)
    scale, bias = np.array([0.5, -0.25], np.float32), np.array([1, -1], np.float32)
    return [x, b, scale, np.array([3, 4], np.int8), bias], {"per_row": True}


def quantize_linear():
    x, scale = np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.array([0.5, 2], np.float32)
    return [x, scale, np.array([1, 2], np.int8)], {"axis": 0}


def dequantize_linear():
    x, scale = np.array([[1, 2, 3], [4, 5, 6]], np.uint8), np.array([0.5, 2], np.float32)
    return [x, scale, np.array([1, 2], np.uint8)], {"axis": 0}


def dynamic_quantize_linear():
    return [np.array([0, 2, -3, -2.5, 1.34, 0.5], np.float32)], {}


def sort():
    return [np.array([3, 1, 2, 9, 7], np.float32)], {"descending": True}


def argsort():
    return [np.array([3, 1, 2, 9, 7], np.float32)], {}


def sort_with_indices():
    return [np.array([[3, 1, 2], [9, 7, 8]], np.float32)], {"axis": 0}


def argmax():
    return [np.array([[3, 1, 2, 9, 7], [4, 4, 0, 1, 2]], np.float32)], {"axis": 1}


def argmin():
    return [np.array([[3, 1, 2, 9, 7], [4, 4, 0, 1, 2]], np.float32)], {"select_last": True}


FUNCTIONS = (
    top_k,
    scatter_nd,
    scatter_elements,
    gather_elements,
    quantized_matmul,
    matmul_integer,
    matmul_integer_to_float,
    dynamic_quantize_matmul,
    matmul_top_k,
    quantize_linear,
    dequantize_linear,
    dynamic_quantize_linear,
    sort,
    argsort,
    sort_with_indices,
    argmax,
    argmin,
)
CALLS = {call.__name__: call for call in FUNCTIONS}
LAYOUTS = {
    "packed": np.copy,
    "strided": strided,
    "misaligned": misaligned,
    "byte-swapped": swapped,
    "F": np.asfortranarray,
}
SEVERAL_KERNELS = (
    "matmul_top_k",
    "dynamic_quantize_linear",
    "dynamic_quantize_matmul",
    "scatter_elements",
    "gather_elements",
)  # which no kept call has
each_operator = pytest.mark.parametrize("operator", CALLS)
each_kept_operator = pytest.mark.parametrize("operator", [name for name in CALLS if name not in SEVERAL_KERNELS])


def function(operator):
    return OPERATORS[operator].function
