"""ONNX Runtime, for what these kernels leave of a model."""

import contextlib
import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from dmlcpu.interop.onnx.cut import Part, model_of
from dmlcpu.interop.onnx.graphs import constants_of, model_of_node
from dmlcpu.interop.onnx.loading import Source
from dmlcpu.runtime.threads import get_num_threads

_SMALL = 1024  # elements of a constant whose values may decide about shapes
NUMBERS = {helper.np_dtype_to_tensor_dtype(np.dtype(each)) for each in "?bBhHiIqQefd"}
_EXCHANGED = NUMBERS | {TensorProto.STRING}  # by NumPy and ONNX Runtime


def runtime() -> Any:
    """Return the package onnxruntime; None if it is not installed."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        return None


def session_of(given: bytes | str, options: Any = None, *, folder: str | None = None, exact: bool | None = None) -> Any:
    """Return a session of a model, or of a part (folder: of its external data); options: or their attributes."""
    package = runtime()
    if not isinstance(options, package.SessionOptions):
        attributes = {"intra_op_num_threads": get_num_threads(), "log_severity_level": 4, **(options or {})}
        options = package.SessionOptions()  # 4: fatal errors alone; others are raised, too
        for name, value in attributes.items():
            setattr(options, name, value)
        if folder is not None:  # spinning threads would hold the cores that the kernels need
            _configure(options, "session.intra_op.allow_spinning", "0")
    if exact is not None:  # uint8 by int8 is computed as uint8 by uint8, which no processor saturates
        _configure(options, "session.x64quantprecision", str(int(exact)))
    if folder:
        _configure(options, "session.model_external_initializers_file_folder_path", folder)
    return package.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def _configure(options: Any, key: str, value: str) -> None:
    """Add an entry to options, which several sessions may share: ONNX Runtime warns if they already have it."""
    with contextlib.suppress(Exception):  # there is none
        if options.get_session_config_entry(key) == value:
            return
    options.add_session_config_entry(key, value)


def attributes_of(options: Any) -> Any:
    """Return the attributes of SessionOptions that were set: what can be pickled of them."""
    if options is None or isinstance(options, dict):
        return options
    plain = type(options)()
    names = [name for name in dir(plain) if not name.startswith("_") and not callable(getattr(plain, name))]
    return {name: getattr(options, name) for name in names if getattr(options, name) != getattr(plain, name)}


def run_alone(node: onnx.NodeProto, inputs: Sequence[Any], opsets: Mapping[str, int]) -> tuple[Any, ...]:
    """Return the results of one node in ONNX Runtime, computed exactly."""
    feeds = {name: np.asarray(each) for name, each in zip(node.input, inputs, strict=False) if name}
    model = model_of_node(node, feeds, opsets).SerializeToString()
    return tuple(session_of(model, exact=True).run(None, feeds))


def types_of(model: onnx.ModelProto, source: Source) -> dict[str, onnx.TypeProto]:
    """Return the types of a graph's values, as ONNX Runtime finds them, without those that it does not exchange."""
    constants = constants_of(model.graph)
    types = {name: helper.make_tensor_type_proto(each.data_type, each.dims) for name, each in constants.items()}
    known = {each.name: each.type for each in model.graph.input} | types
    small = {name: each for name, each in constants.items() if math.prod(each.dims) <= _SMALL}
    made = {name for node in model.graph.node for name in node.output if name}
    inputs = [name for name in known if name not in small]  # of large constants only types and shapes count
    asked = model_of(Part(False, [*model.graph.node], inputs, sorted(made)), model, small, known)
    onnx.load_external_data_for_model(asked, source.folder)
    options = {"graph_optimization_level": runtime().GraphOptimizationLevel.ORT_DISABLE_ALL}
    session = session_of(asked.SerializeToString(), options)
    values = (*session.get_inputs(), *session.get_outputs())
    return {each.name: kind for each in values if (kind := _type(each.type, each.shape))} | types


def _type(text: str, shape: list[Any] | None) -> onnx.TypeProto | None:
    """Return the type that ONNX Runtime writes as "tensor(float)", for instance."""
    kind, _, inside = text.removesuffix(")").partition("(")
    key, _, last = inside.partition(",")
    if kind == "seq" and (element := _type(inside, None)):
        return helper.make_sequence_type_proto(element)
    if kind == "map" and (element := _type(last, None)):
        return helper.make_map_type_proto(TensorProto.DataType.Value(key.upper()), element)
    if kind != "tensor" or (number := TensorProto.DataType.Value(inside.upper())) not in _EXCHANGED:
        return None
    return helper.make_tensor_type_proto(number, shape or None)  # [] also stands for an unknown rank
