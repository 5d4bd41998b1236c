"""ONNX Runtime, for what these kernels leave of a model."""

import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
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


def session_of(
    package: ModuleType, given: bytes | str, options: Any = None, *, folder: str | None = None, exact: bool = False
) -> Any:
    """Return a session of a whole model, or of a part. options: SessionOptions, their attributes, or None.

    folder: of a part's external data. A part's threads do not spin: they would hold the cores that the kernels need.
    exact: uint8 by int8 is computed as uint8 by uint8, which no processor saturates.
    """
    if not isinstance(options, package.SessionOptions):
        attributes = {"intra_op_num_threads": get_num_threads(), "log_severity_level": 4, **(options or {})}
        options = package.SessionOptions()  # 4: fatal errors alone; others are raised, too
        for name, value in attributes.items():
            setattr(options, name, value)
        if folder is not None:
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    if folder:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return package.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def attributes_of(options: Any) -> Any:
    """Return the attributes of SessionOptions that were set: what can be pickled of them."""
    if options is None or isinstance(options, dict):
        return options
    plain = type(options)()
    names = [name for name in dir(plain) if not name.startswith("_") and not callable(getattr(plain, name))]
    return {name: getattr(options, name) for name in names if getattr(options, name) != getattr(plain, name)}


def check_exchange(model: onnx.ModelProto) -> None:
    """Refuse a part whose inputs or outputs NumPy and ONNX Runtime do not exchange."""
    for each in (*model.graph.input, *model.graph.output):
        kind = each.type
        is_tensor = kind.HasField("tensor_type")
        if kind.HasField("optional_type") or (is_tensor and kind.tensor_type.elem_type not in _EXCHANGED):
            raise TypeError(f"ONNX Runtime does not exchange {each.name!r} with NumPy")


def run_alone(node: onnx.NodeProto, inputs: Sequence[Any], opsets: Mapping[str, int]) -> tuple[Any, ...] | None:
    """Return the results of one node in ONNX Runtime; None if it is not installed."""
    package = runtime()
    if package is None:
        return None
    feeds = {name: np.asarray(each) for name, each in zip(node.input, inputs, strict=False) if name}
    kinds = {name: helper.np_dtype_to_tensor_dtype(each.dtype) for name, each in feeds.items()}
    given = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    graph = helper.make_graph([node], node.op_type, given, [onnx.ValueInfoProto(name=name) for name in node.output])
    imports = [helper.make_opsetid(*each) for each in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=helper.find_min_ir_version_for(imports, True))
    return tuple(session_of(package, model.SerializeToString()).run(None, feeds))


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
    options.log_severity_level = 4  # as above
    outputs = session_of(package, model.SerializeToString(), options).get_outputs()
    return {each.name: _type(each.type, each.shape) for each in outputs if each.name in names}


_ELEMENTS = {"float": "FLOAT", "double": "DOUBLE"}  # others are named as ONNX names them


def _type(text: str, shape: list[Any]) -> onnx.TypeProto:
    """Return the type that ONNX Runtime writes as "tensor(float)", for instance."""
    found = re.fullmatch(r"tensor\((\w+)\)", text)
    if found is None:
        raise NotImplementedError(f"a value of type {text}")
    element = TensorProto.DataType.Value(_ELEMENTS.get(found[1], found[1].upper()))
    return helper.make_tensor_type_proto(element, shape)
