"""The contenders: each is a function that takes a case and returns a call without arguments, which is what is timed.

A call allocates its outputs, as a user's would; "dmlcpu out" writes to the same ones each time. Inputs are made, and
turned into what a contender takes, beforehand. A contender that is not installed, or that cannot do a case, raises
NotImplementedError; asv leaves the cell empty then.
"""

import contextlib
import functools

import numpy as np

import dmlcpu

from . import THREADS
from .common import AtCase, MatmulIntegerCase, QuantizedMatmulCase, ScatterNDCase, TopKCase
from .conditions import ready
from .packages import package
from .torch_peers import (
    OVERRIDDEN,
    switched,
    torch_matmul_integer,
    torch_quantized_matmul,
    torch_scatter_nd,
    torch_top_k,
)

ONE_THREAD = "dmlcpu 1 thread"
WITH_THREADS = ("dmlcpu", "onnxruntime", "torch")  # a crowd


@functools.lru_cache(maxsize=8)  # asv sets up anew before each sample; the data need not be made anew
def build(case, implementation):
    """Return the call that carries out a case. It has been made once, as the first one may compile."""
    call = BUILDERS[type(case)][implementation](case)
    with settings_of(implementation):
        call()
    return call


def crowd_around(case, implementation):
    """Return the calls of the other libraries that have threads and can do the case."""
    calls = []
    for name in WITH_THREADS:
        if name != implementation.split()[0]:
            with contextlib.suppress(NotImplementedError):
                calls.append(build(case, name))
    if not calls:
        raise NotImplementedError("no other library with threads can do the case")
    return calls


@contextlib.contextmanager
def settings_of(implementation):
    """Hold dmlcpu to one thread, or let PyTorch run on it, for as long as the context lasts, if that is meant."""
    before = dmlcpu.get_num_threads()
    if implementation == ONE_THREAD:
        dmlcpu.set_num_threads(1)
    try:
        with switched() if implementation == OVERRIDDEN else contextlib.nullcontext():
            yield
    finally:
        dmlcpu.set_num_threads(before)


# dmlcpu


def dmlcpu_top_k(case):
    x = case.inputs()
    return lambda: dmlcpu.top_k(x, case.k, axis=case.axis)


def dmlcpu_top_k_out(case):
    x = case.inputs()
    out = dmlcpu.top_k(x, case.k, axis=case.axis)
    out = tuple(np.empty_like(array) for array in out)
    return lambda: dmlcpu.top_k(x, case.k, axis=case.axis, out=out)


def dmlcpu_scatter_nd(case):
    x, indices, updates = case.inputs()
    out = x if case.in_place else None
    return lambda: dmlcpu.scatter_nd(x, indices, updates, reduction=case.reduction, out=out)


def dmlcpu_scatter_nd_out(case):
    if case.in_place:
        raise NotImplementedError("in place, out is x")
    x, indices, updates = case.inputs()
    out = np.empty_like(x)
    return lambda: dmlcpu.scatter_nd(x, indices, updates, reduction=case.reduction, out=out)


def dmlcpu_quantized_matmul(case, out=None):
    arguments = case.inputs()
    if case.constant_b:
        arguments = arguments._replace(b=dmlcpu.pack_b(arguments.b))
    return lambda: dmlcpu.quantized_matmul(*arguments, out=out)


def dmlcpu_quantized_matmul_out(case):
    return dmlcpu_quantized_matmul(case, np.empty((*case.batch, case.m, case.n), case.types[2]))


def dmlcpu_matmul_integer(case, out=None):
    arguments = case.inputs()
    if case.constant_b:
        arguments = arguments._replace(b=dmlcpu.pack_b(arguments.b))
    return lambda: dmlcpu.matmul_integer(*arguments, out=out)


def dmlcpu_matmul_integer_out(case):
    return dmlcpu_matmul_integer(case, np.empty((case.m, case.n), np.int32))


# NumPy


def numpy_top_k(case):
    x, k, axis = case.inputs(), case.k, case.axis
    behind = (slice(None),) * (x.ndim - 1 - axis % x.ndim)
    last = (..., slice(x.shape[axis] - k, None), *behind)
    best_first = (..., slice(None, None, -1), *behind)

    def call():
        indices = np.argpartition(x, x.shape[axis] - k, axis)[last]
        values = np.take_along_axis(x, indices, axis)
        order = np.argsort(values, axis)[best_first]
        return np.take_along_axis(values, order, axis), np.take_along_axis(indices, order, axis)

    return call


def numpy_scatter_nd(case):
    x, indices, updates = case.inputs()
    where = tuple(np.ascontiguousarray(indices.T))
    ufunc = {"none": None, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[case.reduction]

    def call():
        y = x if case.in_place else x.copy()
        if ufunc is None:
            y[where] = updates
        else:
            ufunc.at(y, where, updates)
        return y

    return call


def numpy_quantized_matmul(case):
    """Multiply in float32: NumPy's integer product is a plain loop. The last bit of y may differ."""
    a, a_scale, a_zero_point, b, b_scale, _, y_scale, y_zero_point = case.inputs()
    limits = np.iinfo(case.types[2])
    constant = b.astype(np.float32) if case.constant_b else None

    def call():
        weights = b.astype(np.float32) if constant is None else constant
        y = (a.astype(np.float32) - a_zero_point) @ weights
        y *= a_scale * b_scale / y_scale
        y = np.rint(y, out=y)
        y += y_zero_point
        return np.clip(y, limits.min, limits.max, out=y).astype(case.types[2])

    return call


def numpy_matmul_integer(case):
    """Multiply in float64, where the sums are exact: NumPy's integer product is a plain loop."""
    a, _, b, _ = case.inputs()
    constant = b.astype(np.float64) if case.constant_b else None
    return lambda: (a.astype(np.float64) @ (b.astype(np.float64) if constant is None else constant)).astype(np.int32)


# ONNX Runtime


def onnx_session(op, inputs, outputs, constants=(), **attributes):
    """Return a session of one node. inputs: name -> array or None for one left out; outputs: name -> data type."""
    onnx, runtime = package("onnx"), package("onnxruntime")
    from onnx import helper, numpy_helper
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    def info(name, dtype, shape=None):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    given = {name: array for name, array in inputs.items() if array is not None}
    node = helper.make_node(op, [name if name in given else "" for name in inputs], list(outputs), **attributes)
    graph = helper.make_graph(
        [node],
        op,
        [info(name, array.dtype, array.shape) for name, array in given.items() if name not in constants],
        [info(name, dtype) for name, dtype in outputs.items()],
        [numpy_helper.from_array(given[name], name) for name in constants],
    )
    model = helper.make_model(graph, opset_imports=[onnx.OperatorSetIdProto(version=21)], ir_version=10)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = THREADS
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except NoKernel as error:
        raise NotImplementedError(str(error)) from None
    feeds = {name: array for name, array in given.items() if name not in constants}
    return lambda: session.run(None, feeds)


def onnxruntime_top_k(case):
    if case.dtype == "bfloat16":
        raise NotImplementedError("TopK of this opset has no bfloat16")
    x = case.inputs()
    inputs = {"x": x, "k": np.array([case.k])}
    return onnx_session("TopK", inputs, {"values": x.dtype, "indices": np.int64}, ["k"], axis=case.axis)


def onnxruntime_scatter_nd(case):
    """In place there is no form of it: the copy is part of the call."""
    if case.index_type != "int64":
        raise NotImplementedError("onnxruntime takes int64")
    x, indices, updates = case.inputs()
    run = onnx_session(
        "ScatterND", {"x": x, "indices": indices, "updates": updates}, {"y": x.dtype}, reduction=case.reduction
    )
    return lambda: run()[0]


def onnxruntime_quantized_matmul(case):
    if case.per_row:
        raise NotImplementedError("onnxruntime takes one scale for a, and one for y")
    arguments = case.inputs()._asdict()
    arguments["b_zero_point"] = np.zeros(arguments["b_scale"].shape, case.types[1])
    inputs = {
        name: array if name in ("a", "b") else array.reshape(-1) if name.startswith("b_") else array.reshape(())
        for name, array in arguments.items()
    }
    constants = [name for name in inputs if name != "a" and (name != "b" or case.constant_b)]
    run = onnx_session("QLinearMatMul", inputs, {"y": case.types[2]}, constants)
    return lambda: run()[0]


def onnxruntime_matmul_integer(case):
    a, _, b, _ = case.inputs()
    run = onnx_session("MatMulInteger", {"a": a, "b": b}, {"y": np.int32}, ["b"] if case.constant_b else [])
    return lambda: run()[0]


# NumPy's ufunc.at, which the others do not have


def dmlcpu_at(case):
    x, indices, updates = case.inputs()
    function = {"add": dmlcpu.add_at, "max": dmlcpu.maximum_at, "none": dmlcpu.put_at}[case.reduction]

    def call():
        function(x, indices, updates)
        return x

    return call


def numpy_at(case):
    x, indices, updates = case.inputs()
    ufunc = {"add": np.add, "max": np.maximum, "none": None}[case.reduction]

    def call():
        if ufunc is None:
            x[indices] = updates
        else:
            ufunc.at(x, indices, updates)
        return x

    return call


def no_at(case):
    raise NotImplementedError("it has no ufunc.at")


def not_overridden(case):
    raise NotImplementedError("PyTorch's operator is its own")


BUILDERS = {
    TopKCase: {
        "dmlcpu": dmlcpu_top_k,
        ONE_THREAD: dmlcpu_top_k,
        "dmlcpu out": dmlcpu_top_k_out,
        "numpy": numpy_top_k,
        "onnxruntime": onnxruntime_top_k,
        "torch": torch_top_k,
        OVERRIDDEN: torch_top_k,
    },
    ScatterNDCase: {
        "dmlcpu": dmlcpu_scatter_nd,
        ONE_THREAD: dmlcpu_scatter_nd,
        "dmlcpu out": dmlcpu_scatter_nd_out,
        "numpy": numpy_scatter_nd,
        "onnxruntime": onnxruntime_scatter_nd,
        "torch": torch_scatter_nd,
        OVERRIDDEN: torch_scatter_nd,
    },
    AtCase: {
        "dmlcpu": dmlcpu_at,
        ONE_THREAD: dmlcpu_at,
        "dmlcpu out": no_at,
        "numpy": numpy_at,
        "onnxruntime": no_at,
        "torch": no_at,
        OVERRIDDEN: no_at,
    },
    QuantizedMatmulCase: {
        "dmlcpu": dmlcpu_quantized_matmul,
        ONE_THREAD: dmlcpu_quantized_matmul,
        "dmlcpu out": dmlcpu_quantized_matmul_out,
        "numpy": numpy_quantized_matmul,
        "onnxruntime": onnxruntime_quantized_matmul,
        "torch": torch_quantized_matmul,
        OVERRIDDEN: not_overridden,
    },
    MatmulIntegerCase: {
        "dmlcpu": dmlcpu_matmul_integer,
        ONE_THREAD: dmlcpu_matmul_integer,
        "dmlcpu out": dmlcpu_matmul_integer_out,
        "numpy": numpy_matmul_integer,
        "onnxruntime": onnxruntime_matmul_integer,
        "torch": torch_matmul_integer,
        OVERRIDDEN: torch_matmul_integer,
    },
}
IMPLEMENTATIONS = ["dmlcpu", "dmlcpu out", "numpy", "onnxruntime", "torch"]
CONTENDERS = ["dmlcpu", ONE_THREAD, "dmlcpu out", "numpy", "onnxruntime", "torch", OVERRIDDEN]


class Comparison:
    """What the benchmarks of one call share. Subclasses add `params`, `cases` and a method that asv measures."""

    param_names = ("implementation", "case")
    # asv runs `setup` before each sample, and `setup` rests and makes an untimed call: a sample is the one call that
    # follows, and asv needs no warm-up of its own.
    number = 1
    warmup_time = 0
    repeat = (3, 10, 5.0)

    def setup(self, implementation, case):
        self.call = ready(build(self.cases[case], implementation))
