"""A program of a user, with which type checkers find no fault; assert_type says what they have to know."""

from dataclasses import replace
from typing import Any, assert_type

import dask.array as da
import numpy as np
from numpy.typing import NDArray

import dmlcpu
import dmlcpu.interop.dask
from dmlcpu.search import FloatIndex, Int8Index, knn, semantic_search

Floats = NDArray[np.float32]
Positions = NDArray[np.int64]

x = np.zeros((4, 8), np.float32)
a, b = np.zeros((4, 8), np.uint8), np.zeros((8, 2), np.int8)
weights = dmlcpu.pack_b(b)


def winners(scores: Floats) -> dmlcpu.TopK[Floats, Positions]:
    return dmlcpu.top_k(scores, 2, mode="smallest", nan="last")


def untyped_winners(scores: list[float]) -> dmlcpu.TopK:
    return dmlcpu.top_k(scores, 2)


values, indices = winners(x)
assert_type(values, Floats)
assert_type(indices, Positions)
assert_type(dmlcpu.top_k(x, [1, 2, 3, 4], index_dtype=np.int32).indices, NDArray[np.int32])
assert_type(dmlcpu.top_k([1, 2], 1).values, NDArray[Any])
assert_type(untyped_winners([1.0, 2.0]).values, NDArray[Any])

assert_type(dmlcpu.scatter_nd(x, [[0]], np.ones((1, 8), np.float32), reduction="add", mode="drop"), Floats)
assert_type(dmlcpu.scatter_elements(x, [[0]], np.ones((1, 1), np.float32), axis=0, reduction="add"), Floats)
assert_type(dmlcpu.gather_elements(x, [[0]], axis=0, mode="clip"), Floats)
dmlcpu.add_at(x, ([0, 1], [1, 1]), 1.0)

assert_type(dmlcpu.matmul_integer(a, None, weights, None), NDArray[np.int32])
assert_type(dmlcpu.matmul_integer(a, 1, b, None, out_dtype=np.int64), NDArray[np.int64])
assert_type(dmlcpu.matmul_integer_to_float(a, 0.5, None, b, [0.5, 1.0], None), Floats)
halves = np.ones(2, np.float16)
assert_type(dmlcpu.matmul_integer_to_float(a, halves[:1], None, b, halves, None), NDArray[np.float16])
assert_type(dmlcpu.dynamic_quantize_matmul(x, weights, 0.5), Floats)
assert_type(dmlcpu.dynamic_quantize_matmul(x, b, 0.5, per_row=True, out_dtype=np.float16), NDArray[np.float16])
assert_type(dmlcpu.quantized_matmul(a, 1.0, None, b, 1.0, None, 1.0, 5), NDArray[np.uint8])
assert_type(dmlcpu.quantized_matmul(a, 1.0, None, b, 1.0, None, 1.0, None, out_dtype=np.int8), NDArray[np.int8])
assert_type(dmlcpu.matmul_top_k(a, weights, 1).values, NDArray[np.int32])
assert_type(dmlcpu.matmul_top_k(a, weights, 1, b_scale=0.5).values, Floats)
assert_type(dmlcpu.matmul_top_k(a, weights, 1, a_scale=0.5, mode="smallest").indices, Positions)

assert_type(dmlcpu.quantize_linear(x, 0.5), NDArray[np.uint8])
assert_type(dmlcpu.quantize_linear(x, 0.5, np.int8(3)), NDArray[np.int8])
assert_type(dmlcpu.quantize_linear(x, 0.5, out_dtype=np.int16), NDArray[np.int16])
assert_type(dmlcpu.dequantize_linear(a, 0.5, 128), Floats)
assert_type(dmlcpu.dequantize_linear(a, halves[:1]), NDArray[np.float16])
y, scale, zero_point = dmlcpu.dynamic_quantize_linear(x)
assert_type(y, NDArray[np.uint8])
assert_type(scale, Floats)
assert_type(dmlcpu.dynamic_quantize_linear(x, axis=-1).y, NDArray[np.uint8])
assert_type(dmlcpu.dynamic_quantize_linear(x, out_dtype=np.int8).zero_point, NDArray[np.int8])

desc = dmlcpu.TopKOperatorDesc(
    input_tensor=dmlcpu.TensorDesc(dmlcpu.TensorDataType.FLOAT32, sizes=[4, 8], strides=[8, 1]),
    output_value_tensor=dmlcpu.TensorDesc(dmlcpu.TensorDataType.FLOAT32, sizes=(4, 2), total_tensor_size_in_bytes=None),
    output_index_tensor=dmlcpu.TensorDesc.of(np.zeros((4, 2), np.uint32)),
    axis=1,
    k=2,
)
assert_type(desc.input_tensor.sizes, tuple[int, ...])
assert_type(desc.input_tensor.total_tensor_size_in_bytes, int)
select = dmlcpu.compile_operator(desc)
assert_type(select, dmlcpu.CompiledOperator[dmlcpu.TopK])
assert_type(select(input_tensor=x), dmlcpu.TopK)
assert_type(select(input_tensor=x).values, NDArray[Any])


def narrowed(described: dmlcpu.TopKOperatorDesc) -> dmlcpu.TopKOperatorDesc:
    fewer = replace(described.input_tensor, sizes=(1, 2))
    assert_type(fewer, dmlcpu.TensorDesc)
    return replace(described, input_tensor=fewer, axis=0)


def results(
    scatter: dmlcpu.ScatterNDOperatorDesc,
    product: dmlcpu.MatrixMultiplyIntegerOperatorDesc,
    quantize: dmlcpu.QuantizeOperatorDesc,
    dynamic: dmlcpu.DynamicQuantizeLinearOperatorDesc,
) -> None:
    assert_type(dmlcpu.compile_operator(scatter)(), NDArray[Any])
    assert_type(dmlcpu.compile_operator(product)(), NDArray[Any])
    assert_type(dmlcpu.compile_operator(quantize)(), NDArray[Any])
    assert_type(dmlcpu.compile_operator(dynamic)(), dmlcpu.DynamicQuantized)


def anything(operator: dmlcpu.CompiledOperator) -> Any:
    return operator(input_tensor=x)


anything(select)
assert_type(dmlcpu.compile_operator(dmlcpu.operator_desc_from_dict(desc.to_dict()))(input_tensor=x), Any)

index = Int8Index(x, "cosine", ids=[3, 1, 4, 5])
scores, found = index.search(x[0], 2)
knn(x, x, 2, metric="l2")
semantic_search(x, index, top_k=1, score_function="ip")
exact = FloatIndex(x, "l2")
scores, found = exact.search(x, 2, exclude=[[0], [1], [2], [3]])
scores, found, report = exact.search(x, 2, report=True)
assert_type(len(exact) + report.scored.size, int)

best = dmlcpu.bind(dmlcpu.top_k, x, 2)
best()


def lazily(chunks: da.Array) -> da.Array:
    selected = dmlcpu.interop.dask.top_k(chunks, 2, mode="largest")
    assert_type(selected.values, da.Array)
    assert_type(selected.indices, da.Array)
    return dmlcpu.interop.dask.scatter_nd(chunks, [[0]], [[1.0] * 8], reduction="max")


try:
    dmlcpu.top_k(x, 9)
except dmlcpu.DmlError as error:
    print(error.field, error.allowed)
