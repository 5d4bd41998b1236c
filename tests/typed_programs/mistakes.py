"""Mistakes that type checkers have to find: each in a line of its own, which ends in a comment."""

import dask.array as da
import numpy as np
from numpy.typing import NDArray

import dmlcpu
import dmlcpu.interop.dask
from dmlcpu.search import Int8Index, knn, semantic_search

x = np.zeros((4, 8), np.float32)
a, b = np.zeros((4, 8), np.uint8), np.zeros((8, 2), np.int8)

dmlcpu.top_k(x, 2, mode="biggest")  # no such mode
dmlcpu.top_k(x, 2, nan="first")  # no such place
dmlcpu.top_k(x)  # k is missing
dmlcpu.top_k(x, 2, 0)  # the axis is named
dmlcpu.top_k(x, 2, descending=True)  # no such argument
dmlcpu.topk(x, 2)  # no such function
print(dmlcpu.top_k(x, 2).positions)  # no such field
integers: NDArray[np.int8] = dmlcpu.top_k(x, 2).values  # they are float32
positions: NDArray[np.int32] = dmlcpu.top_k(x, 2).indices  # they are int64
one, two, three = dmlcpu.top_k(x, 2)  # there are two
dmlcpu.scatter_nd(x, [[0]], x[:1], reduction="sum")  # it is called add
dmlcpu.scatter_nd(x, [[0]], x[:1], mode="wrap")  # no such mode
dmlcpu.matmul_integer(a, b)  # the zero points are missing
sums: NDArray[np.int64] = dmlcpu.matmul_integer(a, None, b, None)  # they are int32
dmlcpu.matmul_top_k(a, b, 1, mode="min")  # no such mode
bytes_: NDArray[np.int8] = dmlcpu.quantize_linear(x, 0.5)  # they are uint8
dmlcpu.set_num_threads("2")  # a number
dmlcpu.bind(dmlcpu.top_k(x, 2))  # the result of a call
tensor = dmlcpu.TensorDesc(dmlcpu.TensorDataType.FLOAT32, sizes=[4, 8])
dmlcpu.TensorDesc("FLOAT32", sizes=(4, 8))  # a member of TensorDataType
dmlcpu.TensorDesc(dmlcpu.TensorDataType.FLOAT32, sizes="4, 8")  # integers
dmlcpu.TensorDesc(dmlcpu.TensorDataType.FLOAT32, sizes=8)  # a sequence
dmlcpu.TensorDesc(dmlcpu.TensorDataType.FLOAT32, Sizes=(4, 8))  # as Python spells it
dmlcpu.TensorDesc.of(x, flags=1)  # a member of TensorFlags
dmlcpu.TopKOperatorDesc(input_tensor=tensor, output_value_tensor=tensor, output_index_tensor=tensor, axis=1)  # no k
best: dmlcpu.TopKOperatorDesc = dmlcpu.operator_desc_from_dict({})  # it may be another
knn(x, x, 2, metric="euclidean")  # it is called l2
Int8Index(x, metric="L2")  # in small letters
semantic_search(x, x, score_function="l2")  # not among these


def scattered(desc: dmlcpu.ScatterNDOperatorDesc) -> dmlcpu.TopK:
    return dmlcpu.compile_operator(desc)()  # an array


def lazily(chunks: da.Array) -> NDArray[np.float32]:
    dmlcpu.interop.dask.scatter_nd(chunks, [[0]], [[1.0] * 8], reduction="plus")  # it is called add
    return dmlcpu.interop.dask.top_k(chunks, 2).values  # not computed
