"""ONNX Runtime, for what these kernels leave of a model."""

import importlib
import re
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, shape_inference

from dmlcpu.interop.onnx.graphs import constants_of
from dmlcpu.runtime.threads import get_num_threads

_SMALL = 1024  # elements of a constant whose values may decide about shapes


def runtime() -> ModuleType | None:
    """Return the package onnxruntime if it is installed."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        return None


# Types that NumPy and ONNX Runtime exchange.
_EXCHANGED = {
    *(TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.STRING),
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
}


def session_of(package: ModuleType, model: onnx.ModelProto, *, is_alone: bool) -> Any:
    """Return a model in ONNX Runtime, or refuse inputs or outputs that this does not exchange with NumPy."""
    for each in (*model.graph.input, *model.graph.output):
        kind = each.type
        is_tensor = kind.HasField("tensor_type")
        if kind.HasField("optional_type") or (is_tensor and kind.tensor_type.elem_type not in _EXCHANGED):
            raise TypeError(f"ONNX Runtime does not exchange {each.name!r} with NumPy")
    options = package.SessionOptions()
    options.intra_op_num_threads = get_num_threads()
    if not is_alone:  # its threads would spin on the cores that the kernels need next
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return _session(package, model, options)


def _session(package: ModuleType, model: onnx.ModelProto, options: Any) -> Any:
    options.log_severity_level = 4  # fatal errors: others are raised, too
    return package.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def types_of(package: ModuleType, model: onnx.ModelProto, names: Iterable[str]) -> dict[str, onnx.TypeProto]:
    """Return the types of values, as ONNX's own inference finds them, or else ONNX Runtime's."""
    skeleton = _without_weights(model)
    graph = shape_inference.infer_shapes(skeleton).graph
    for each in graph.value_info:
        for dimension in each.type.tensor_type.shape.dim:
            if dimension.HasField("dim_value") and dimension.dim_value == 0:
                dimension.ClearField("dim_value")  # ONNX 1.23 finds 0 where it does not know (Attention)
    found = {
        each.name: each.type
        for each in (*graph.input, *graph.value_info, *graph.output)
        if each.type.WhichOneof("value") not in (None, "tensor_type") or each.type.tensor_type.elem_type
    }
    missing = set(names) - found.keys()
    return found | _asked(package, skeleton, missing) if missing else found


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which large constants are inputs: only their types and shapes count."""
    found = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph = model.graph
    found.graph.name = graph.name
    found.graph.node.extend(graph.node)
    found.graph.input.extend(graph.input)
    found.graph.output.extend(graph.output)
    for each in found.graph.output:  # ONNX Runtime warns of an output that has another shape, and runs the model
        if each.type.HasField("tensor_type"):
            each.type.tensor_type.ClearField("shape")
    for each in constants_of(graph).values():
        if np.prod(each.dims, dtype=np.int64) <= _SMALL:
            found.graph.initializer.append(each)
        else:
            found.graph.input.append(helper.make_tensor_value_info(each.name, each.data_type, each.dims))
    return found


def _asked(package: ModuleType, model: onnx.ModelProto, names: set[str]) -> dict[str, onnx.TypeProto]:
    """Return the types that ONNX Runtime gives values: it knows its own operators."""
    before = {each.name for each in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names - before))
    options = package.SessionOptions()
    options.graph_optimization_level = package.GraphOptimizationLevel.ORT_DISABLE_ALL
    outputs = _session(package, model, options).get_outputs()
    return {each.name: _type(each.type, each.shape) for each in outputs if each.name in names}


_ELEMENTS = {"float": "FLOAT", "double": "DOUBLE"}  # others are named as ONNX names them


def _type(text: str, shape: list[Any]) -> onnx.TypeProto:
    """Return the type that ONNX Runtime writes as "tensor(float)", for instance."""
    found = re.fullmatch(r"tensor\((\w+)\)", text)
    if found is None:
        raise NotImplementedError(f"a value of type {text}")
    element = TensorProto.DataType.Value(_ELEMENTS.get(found[1], found[1].upper()))
    return helper.make_tensor_type_proto(element, shape)
