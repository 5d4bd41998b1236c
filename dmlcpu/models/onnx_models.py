"""ONNX models as dispatchables, and their dispatches."""

import contextlib
import importlib
import logging
import math
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.faults import listed
from dmlcpu.common.imports import MissingExtraError, install_command
from dmlcpu.common.regions import Tensor
from dmlcpu.directml.enums import TensorDataType
from dmlcpu.errors import DmlError
from dmlcpu.models.dispatchables import Binding, Buffers, check_size, load_binding, overlaps, sources
from dmlcpu.models.faults import Faults, Refused, json_path
from dmlcpu.models.resources import DATA_TYPES, Buffer, Files

_log = logging.getLogger("dmlcpu")

_FREE = 1  # DxDispatch's size of an input's free dimension


class OnnxDispatchable(NamedTuple):
    """A prepared ONNX model."""

    name: str
    prepared: Any  # dmlcpu.interop.onnx.BackendRep
    seconds: float  # of its preparation


@dataclass(frozen=True, slots=True)
class OnnxBinding(Binding):
    """A tensor in a buffer."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None  # None: the buffer is deferred and becomes the model's result

    def view(self, memory: Array) -> Array:
        """Return the tensor's elements in a buffer's memory; bool as bytes."""
        word = np.dtype(np.uint8) if self.dtype == np.bool_ else self.dtype
        assert self.shape is not None
        return memory[self.offset : self.offset + self.nbytes].view(word).reshape(self.shape)


class OnnxDispatch(NamedTuple):
    """Run an ONNX model."""

    dispatchable: str
    prepared: Any  # dmlcpu.interop.onnx.BackendRep
    inputs: dict[str, OnnxBinding]
    outputs: dict[str, OnnxBinding]
    zeros: dict[str, Tensor]  # unbound inputs

    @property
    def written(self) -> list[str]:
        """The resources that the outputs are bound to."""
        return [place.resource for place in self.outputs.values()]

    def run(self, memory: dict[str, Array]) -> None:
        """Run the model once on the buffers' memory; nothing is written unless all results fit."""
        inputs = {name: np.zeros(*tensor) for name, tensor in self.zeros.items()}
        for name, place in self.inputs.items():
            array = place.view(memory[place.resource])
            inputs[name] = array != 0 if place.dtype == np.bool_ else array
        try:
            results = dict(zip(self.prepared.outputs, self.prepared.run(inputs), strict=True))
        except MemoryError:
            raise
        except Exception as error:  # ONNX Runtime's errors have no common class
            reason = ", ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])
            raise ValueError(f"'{self.dispatchable}' failed: {reason}") from error
        results = {name: np.asarray(results[name]) for name in self.outputs}
        for name, place in self.outputs.items():
            result, here = results[name], f"{name} of '{self.dispatchable}'"
            if result.dtype != place.dtype:
                raise ValueError(f"{here} is of {result.dtype}, though the model says {place.dtype}")
            if place.shape is not None and result.shape != place.shape:
                raise ValueError(f"{here} has the shape {list(result.shape)}; it is bound with {list(place.shape)}")
        for name, place in self.outputs.items():
            if place.shape is None:
                copy = np.array(results[name], order="C")
                memory[place.resource] = copy.view(np.uint8) if copy.dtype == np.bool_ else copy
            else:
                place.view(memory[place.resource])[...] = results[name]


def load_onnx_dispatchable(name: str, entry: dict[str, Any], files: Files, faults: Faults) -> OnnxDispatchable:
    """Return the ONNX model that an entry of `dispatchables` names, or refuse it."""
    source = entry["sourcePath"]
    found = files.find(source, faults.at("sourcePath"))
    try:
        onnx, ours = map(importlib.import_module, ("onnx", "dmlcpu.interop.onnx"))
    except ImportError:
        message = f"a dispatchable of type onnx needs the package onnx: {install_command('cli,onnx')}"
        raise MissingExtraError(message) from None
    start = time.perf_counter()
    try:
        proto = onnx.load(found, load_external_data=False)
        files.found += sorted(found.parent / place for place in _places_outside(proto))
        onnx.load_external_data_for_model(proto, str(found.parent))
        _fix_sizes(proto, entry, faults.path)
        prepared = ours.prepare(proto)
    except MemoryError:
        raise
    except Exception as error:  # Protobuf and ONNX's tools raise errors of many classes
        reason = f"{error.field} is {error.found}" if isinstance(error, DmlError) else " ".join(str(error).split())
        allowed = "an ONNX model of known operators"
        faults.at("sourcePath").refuse(f"{source!r}, which cannot be run: {reason}", allowed)
    return OnnxDispatchable(name, prepared, time.perf_counter() - start)


def _places_outside(message: Any) -> set[str]:
    """Return the files, relative to the model's, that hold elements of tensors in a message of an ONNX model."""
    places: set[str] = set()
    for field, value in message.ListFields():
        if field.name == "external_data":
            places.update(entry.value for entry in value if entry.key == "location")
        elif field.message_type is not None:
            places.update(*map(_places_outside, [value] if hasattr(value, "ListFields") else value))
    return places


def _fix_sizes(proto: Any, entry: dict[str, Any], path: tuple[str | int, ...]) -> None:
    """Set free dimensions of inputs and outputs to the file's sizes, by name or denotation."""
    values = [*proto.graph.input, *proto.graph.output]
    dimensions = [each for value in values for each in value.type.tensor_type.shape.dim]
    overrides = {"freeDimensionNameOverrides": "dim_param", "freeDimensionDenotationOverrides": "denotation"}
    for member, attribute in overrides.items():
        for name, size in entry.get(member, {}).items():
            mine = [each for each in dimensions if getattr(each, attribute) == name]
            if not mine:
                _log.warning("%s is unknown and ignored: no input or output has it", json_path((*path, member, name)))
            for each in mine:
                each.dim_value = int(size)


def load_onnx_dispatch(
    dispatchable: OnnxDispatchable, given: dict[str, Any], buffers: Buffers, faults: Faults
) -> OnnxDispatch:
    """Return a dispatch with its bindings, or refuse bindings that are missing, unknown or do not fit."""
    prepared = dispatchable.prepared
    tensors = {**prepared.outputs, **prepared.inputs}
    places: dict[str, OnnxBinding] = {}
    for name, source, here in sources(given, (), faults):  # ONNX models have no arrays of tensors
        buffer, offset = load_binding(source, buffers, here)
        if name not in tensors:
            here.add("unknown", f"the tensors {listed(tensors)}")
        elif _data_type(tensors[name]) is None:
            here.add("a resource", f"nothing: {name} is no tensor of a type that DirectML has")
        elif buffer is not None:
            with contextlib.suppress(Refused):
                shape = _shape_of(name, source, buffer, dispatchable, here)
                places[name] = _place(name, tensors[name], shape, buffer, offset, here)
    inputs = {name: place for name, place in places.items() if name in prepared.inputs}
    outputs = {name: place for name, place in places.items() if name not in prepared.inputs}
    zeros: dict[str, Tensor] = {}  # DxDispatch does not define the values of unbound inputs
    for name in [each for each in prepared.inputs if each not in given and each not in prepared.defaults]:
        tensor = prepared.inputs[name]
        known = None if _data_type(tensor) is None else _known(tensor, _FREE)
        if known is None:
            faults.at(name).add("missing", "the name of a resource")
        else:
            _log.warning("%s is missing; zeros are used", json_path((*faults.path, name)))
            zeros[name] = Tensor(known, tensor.dtype)
    for name, other in overlaps(inputs, outputs):
        faults.at(name).add(f"{outputs[name].resource!r}, which overlaps {other}", "its own memory")
    if len(places) < len(given):
        raise Refused
    return OnnxDispatch(dispatchable.name, prepared, inputs, outputs, zeros)


def _data_type(tensor: Any) -> TensorDataType | None:
    """Return DirectML's type of a tensor's elements, if it has one."""
    if tensor is None:
        return None
    return DATA_TYPES.get("UINT8" if tensor.dtype == np.bool_ else str(tensor.dtype).upper())


def _shape_of(name: str, source: Any, buffer: Buffer, model: OnnxDispatchable, faults: Faults) -> tuple[int, ...]:
    """Return the shape of a bound tensor: the binding's or the model's; None if it is deferred."""
    is_input = name in model.prepared.inputs
    tensor = (model.prepared.inputs if is_input else model.prepared.outputs)[name]
    details = source if isinstance(source, dict) else {}
    if buffer.deferred:
        if is_input:
            faults.refuse(f"{buffer.name!r}, which is deferred", "a resource that has values")
        for field in ("shape", "elementOffset"):
            if details.get(field):
                faults.at(field).refuse(str(details[field]), f"nothing: {buffer.name!r} is deferred")
        return ()
    if chosen := details.get("shape"):  # DxDispatch treats an empty list as missing
        if not tensor.fits(chosen):
            faults.at("shape").refuse(str(chosen), f"{tensor} ({name} of {model.name!r})")
        return tuple(map(int, chosen))
    shape = _known(tensor, _FREE if is_input else None)
    if shape is None:
        allowed = f"a binding with a shape{'' if is_input else ', or a deferred resource'}"
        faults.refuse(repr(buffer.name), f"{allowed}: of {name} the model says {tensor}")
    return shape


def _known(tensor: Any, free: int | None) -> tuple[int, ...] | None:
    """Return a tensor's shape, with `free` for free dimensions; None if a size is still unknown."""
    if tensor.shape is None:
        return None
    sizes = tuple(size if isinstance(size, int) else free for size in tensor.shape)
    return None if None in sizes else sizes  # type: ignore[return-value]


def _place(name: str, tensor: Any, shape: tuple[int, ...], buffer: Buffer, offset: int, faults: Faults) -> OnnxBinding:
    """Return a tensor's region of a buffer, or refuse a type or a size that does not fit."""
    dtype, data_type, mine = tensor.dtype, _data_type(tensor), buffer.data_type
    assert data_type is not None
    # Integers of one size are interchangeable, and bytes of several types fit any type.
    are_integers = mine.bits == data_type.bits and mine.dtype.kind in "iu" and data_type.dtype.kind in "iu"
    if mine not in (data_type, TensorDataType.UNKNOWN) and not are_integers:
        of = "" if dtype != np.bool_ else ", for bool"
        faults.refuse(f"{buffer.name!r} of {mine.name}", f"{data_type.name} (the type of {name}{of})")
    nbytes = math.prod(shape) * dtype.itemsize
    place = OnnxBinding(buffer.name, offset, nbytes, dtype, None if buffer.deferred else shape)
    if not buffer.deferred and not check_size(place, buffer, f"{data_type.name} of shape {list(shape)}", faults):
        raise Refused
    return place
