"""DirectML's operator numbers. It imports nothing, so that the table of operators can import it."""

from enum import IntEnum


class OperatorType(IntEnum):
    """DML_OPERATOR_TYPE: the operators this package has."""

    ELEMENT_WISE_QUANTIZE_LINEAR = 33
    ELEMENT_WISE_DEQUANTIZE_LINEAR = 34
    TOP_K = 71
    SCATTER = 94
    SCATTER_ELEMENTS = 94  # the newer name
    GATHER_ELEMENTS = 107
    SCATTER_ND = 109
    TOP_K1 = 112
    MATRIX_MULTIPLY_INTEGER = 117
    QUANTIZED_LINEAR_MATRIX_MULTIPLY = 118
    ARGMIN = 137
    ARGMAX = 138
    DYNAMIC_QUANTIZE_LINEAR = 148
    MATRIX_MULTIPLY_INTEGER_TO_FLOAT = 170
    QUANTIZE = 173
    DEQUANTIZE = 174
