"""What is said of a desc that a feature level does not take; each operator's own tests have its table."""

import pytest
from desc_builders import OWNED, quantized_desc, tensor, top_k1_desc, top_k_desc
from feature_levels import quantized, scatter_nd, top_k

from dmlcpu import FeatureLevel, compile_operator
from dmlcpu.directml.base import check_support
from dmlcpu.errors import UnsupportedError

MESSAGES = [
    (
        top_k(top_k1_desc, 3, "FLOAT32", "UINT32"),
        "LEVEL_2_1",
        "DML_OPERATOR_TOP_K1: InputTensor.DimensionCount is 3; "
        "allowed: 4 at DML_FEATURE_LEVEL_2_1 (3 from DML_FEATURE_LEVEL_3_1 on)",
    ),
    (
        top_k(top_k1_desc, 4, "INT64", "UINT32"),
        "LEVEL_4_1",
        "DML_OPERATOR_TOP_K1: InputTensor.DataType is INT64; "
        "allowed: FLOAT32, FLOAT16, INT32, INT16, INT8, UINT32, UINT16, UINT8 "
        "at DML_FEATURE_LEVEL_4_1 (INT64 from DML_FEATURE_LEVEL_5_0 on)",
    ),
    (
        top_k(top_k_desc, 4, "INT8", "UINT32"),
        "LEVEL_2_0",
        "DML_OPERATOR_TOP_K: InputTensor.DataType is INT8; "
        "allowed: FLOAT32, FLOAT16 at DML_FEATURE_LEVEL_2_0 (INT8 from DML_FEATURE_LEVEL_2_1 on)",
    ),
    (
        top_k(top_k1_desc, 4, "FLOAT32", "INT64"),
        "LEVEL_6_4",
        "DML_OPERATOR_TOP_K1: OutputIndexTensor.DataType is INT64; "
        "allowed: UINT64, UINT32 at DML_FEATURE_LEVEL_6_4 (INT64 at no feature level)",
    ),
    (
        scatter_nd(4, "FLOAT32", "INT32"),
        "LEVEL_2_1",
        "DML_OPERATOR_SCATTER_ND: IndicesTensor.DataType is INT32; "
        "allowed: UINT32 at DML_FEATURE_LEVEL_2_1 (INT32 from DML_FEATURE_LEVEL_3_0 on)",
    ),
    (
        quantized(matrix_count=5),
        "LEVEL_6_4",
        "DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY: ATensor.DimensionCount is 5; "
        "allowed: 2 to 4 at DML_FEATURE_LEVEL_6_4 (5 at no feature level)",
    ),
    (
        quantized(b="INT4"),
        "LEVEL_6_4",
        "DML_OPERATOR_QUANTIZED_LINEAR_MATRIX_MULTIPLY: BTensor.DataType is INT4; "
        "allowed: INT8, UINT8 at DML_FEATURE_LEVEL_6_4 (INT4 at no feature level)",
    ),
]


@pytest.mark.parametrize(("desc", "level", "message"), MESSAGES)
def test_messages(desc, level, message):
    with pytest.raises(UnsupportedError) as caught:
        compile_operator(desc, feature_level=FeatureLevel[level])
    assert str(caught.value) == message


def test_absent_optional_tensors_and_flags_do_not_matter():
    desc = quantized_desc(b_tensor=tensor("INT8", 1, 2, 3, 4, flags=OWNED))
    check_support(desc, FeatureLevel.LEVEL_2_1)
