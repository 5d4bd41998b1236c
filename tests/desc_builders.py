"""Small valid descs that the descriptor tests start from; keyword arguments replace fields."""

import numpy as np

from dmlcpu import (
    AxisDirection,
    MatrixMultiplyIntegerOperatorDesc,
    MatrixMultiplyIntegerToFloatOperatorDesc,
    QuantizedLinearMatrixMultiplyOperatorDesc,
    ScatterNDOperatorDesc,
    TensorDataType,
    TensorDesc,
    TensorFlags,
    TopK,
    TopK1OperatorDesc,
    TopKOperatorDesc,
)

OWNED = TensorFlags.OWNED_BY_DML


def tensor(data_type, *sizes, **fields):
    return TensorDesc(TensorDataType[data_type], sizes=sizes, **fields)


def described(arrays):
    """Return packed tensors of the arrays' types and shapes."""
    return {name: tensor(array.dtype.name.upper(), *array.shape) for name, array in arrays.items()}


TOP_K = {
    "input_tensor": tensor("FLOAT32", 1, 1, 3, 4),
    "output_value_tensor": tensor("FLOAT32", 1, 1, 3, 2),
    "output_index_tensor": tensor("UINT32", 1, 1, 3, 2),
    "axis": 3,
    "k": 2,
}


def top_k_desc(**fields):
    return TopKOperatorDesc(**{**TOP_K, **fields})


def top_k1_desc(**fields):
    return TopK1OperatorDesc(**{**TOP_K, "axis_direction": AxisDirection.DECREASING, **fields})


ROWS = np.array([[[[0, 1, 10, 11], [3, 2, 9, 8], [4, 5, 6, 7]]]], np.float32)


def outputs():
    """Outputs for `top_k_desc`, with other numbers in them."""
    return np.full((1, 1, 3, 2), -7, np.float32), np.full((1, 1, 3, 2), 77, np.uint32)


def check_top_k(result):
    """Compare a result with the winners of ROWS."""
    assert isinstance(result, TopK)
    np.testing.assert_array_equal(result.values, [[[[11, 10], [9, 8], [7, 6]]]])
    np.testing.assert_array_equal(result.indices, [[[[3, 2], [2, 3], [3, 2]]]])


def scatter_desc(**fields):
    """The shapes of Microsoft's example."""
    defaults = {
        "input_tensor": tensor("INT32", 3, 4, 5, 6, 7),
        "indices_tensor": tensor("INT64", 1, 1, 1, 2, 3),
        "updates_tensor": tensor("INT32", 1, 1, 2, 6, 7),
        "output_tensor": tensor("INT32", 3, 4, 5, 6, 7),
        "input_dimension_count": 5,
        "indices_dimension_count": 3,
    }
    return ScatterNDOperatorDesc(**{**defaults, **fields})


def small_scatter_desc(**fields):
    """Microsoft's example of values, in legal form."""
    defaults = {
        "input_tensor": tensor("FLOAT32", 1, 8),
        "indices_tensor": tensor("INT32", 4, 1),
        "updates_tensor": tensor("FLOAT32", 1, 4),
        "output_tensor": tensor("FLOAT32", 1, 8),
        "input_dimension_count": 1,
        "indices_dimension_count": 2,
    }
    return ScatterNDOperatorDesc(**{**defaults, **fields})


def quantized_desc(**fields):
    """M = 2, K = 3, N = 4, two batches; a row, a column and a tensor of scales, no zero points."""
    defaults = {
        "a_tensor": tensor("UINT8", 1, 2, 2, 3),
        "a_scale_tensor": tensor("FLOAT32", 1, 1, 2, 1),
        "b_tensor": tensor("INT8", 1, 2, 3, 4),
        "b_scale_tensor": tensor("FLOAT32", 1, 1, 1, 4),
        "output_scale_tensor": tensor("FLOAT32", 1, 1, 1, 1),
        "output_tensor": tensor("INT8", 1, 2, 2, 4),
    }
    return QuantizedLinearMatrixMultiplyOperatorDesc(**{**defaults, **fields})


def integer_desc(**fields):
    """M = 2, K = 3, N = 4, two batches; no zero points."""
    defaults = {
        "a_tensor": tensor("UINT8", 1, 2, 2, 3),
        "b_tensor": tensor("INT8", 1, 2, 3, 4),
        "output_tensor": tensor("INT32", 1, 2, 2, 4),
    }
    return MatrixMultiplyIntegerOperatorDesc(**{**defaults, **fields})


def to_float_desc(**fields):
    """M = 2, K = 3, N = 4, two batches; a scale for each row and column, no zero points, no bias."""
    defaults = {
        "a_tensor": tensor("UINT8", 1, 2, 2, 3),
        "a_scale_tensor": tensor("FLOAT32", 1, 1, 2, 1),
        "b_tensor": tensor("INT8", 1, 2, 3, 4),
        "b_scale_tensor": tensor("FLOAT32", 1, 1, 1, 4),
        "output_tensor": tensor("FLOAT32", 1, 2, 2, 4),
    }
    return MatrixMultiplyIntegerToFloatOperatorDesc(**{**defaults, **fields})
