"""ONNX Runtime."""

import numpy as np

from . import THREADS
from .packages import package


def onnx_session(op, inputs, outputs, constants=(), domain="", **attributes):
    """Return the call of a session of one node.

    inputs: name -> array, or None for an input left out; outputs: name -> data type.
    """
    _, runtime = package("onnx"), package("onnxruntime")
    from onnx import helper, numpy_helper
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    def info(name, dtype, shape=None):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    given = {name: array for name, array in inputs.items() if array is not None}
    node = helper.make_node(
        op, [name if name in given else "" for name in inputs], list(outputs), domain=domain, **attributes
    )
    graph = helper.make_graph(
        [node],
        op,
        [info(name, array.dtype, array.shape) for name, array in given.items() if name not in constants],
        [info(name, dtype) for name, dtype in outputs.items()],
        [numpy_helper.from_array(given[name], name) for name in constants],
    )
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = THREADS
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except NoKernel as error:
        raise NotImplementedError(str(error)) from None
    feeds = {name: array for name, array in given.items() if name not in constants}
    return lambda: session.run(None, feeds)
