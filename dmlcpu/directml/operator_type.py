"""DirectML's numbers of the operators. It imports nothing, so that the table of operators may read it."""

from enum import IntEnum


class OperatorType(IntEnum):
    """DML_OPERATOR_TYPE: the operators this package has."""

    TOP_K = 71
    SCATTER_ND = 109
    TOP_K1 = 112
    MATRIX_MULTIPLY_INTEGER = 117
    QUANTIZED_LINEAR_MATRIX_MULTIPLY = 118
