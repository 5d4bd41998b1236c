"""Constants of a model."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlcpu.interop.onnx.graphs import name_of

_TYPES = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}


def with_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which initializers take the place of Constant nodes and sparse initializers, outside branches.

    It is the same model if it has none.
    """
    constants = [node for node in model.graph.node if name_of(node) == "Constant"]
    if not constants and not model.graph.sparse_initializer:
        return model
    others = [node for node in model.graph.node if name_of(node) != "Constant"]
    found = onnx.ModelProto()
    found.CopyFrom(model)
    for field in ("node", "sparse_initializer"):
        found.graph.ClearField(field)
    found.graph.node.extend(others)
    found.graph.initializer.extend(_tensor(node.attribute[0], node.output[0]) for node in constants)
    found.graph.initializer.extend(_dense(each, each.values.name) for each in model.graph.sparse_initializer)
    return found


def constants_of(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the initializers that no input replaces, by their names."""
    given = {each.name for each in graph.input}
    return {each.name: each for each in graph.initializer if each.name not in given}


def _tensor(attribute: onnx.AttributeProto, name: str) -> onnx.TensorProto:
    """Return what a Constant node makes."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.SparseTensorProto):
        return _dense(value, name)
    if isinstance(value, onnx.TensorProto):
        found = onnx.TensorProto()
        found.CopyFrom(value)
        found.name = name
        return found
    return numpy_helper.from_array(np.array(value, _TYPES.get(attribute.name, object)), name)


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    shape = tuple(sparse.dims)
    array = np.zeros(shape, values.dtype)
    array[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, shape)] = values
    return numpy_helper.from_array(array, name)
