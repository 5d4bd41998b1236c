"""A model's commands, which run in order."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dmlcpu.common.faults import listed, shown
from dmlcpu.directml.enums import TensorDataType
from dmlcpu.models.dispatchables import Binding, Buffers, Dispatchable, check_resources, load_bindings, overlaps
from dmlcpu.models.faults import Faults, Refused
from dmlcpu.models.onnx_models import OnnxDispatch, OnnxDispatchable, load_onnx_dispatch
from dmlcpu.models.resources import Buffer
from dmlcpu.runtime.memory import packed_strides

# Dispatchables by name. None: the file has one of that name, but it is invalid.
Dispatchables = Mapping[str, Dispatchable | OnnxDispatchable | None]


class Dispatch(NamedTuple):
    """Run an operator."""

    dispatchable: str
    bindings: dict[str, Binding]
    written: list[str]  # the resources that the outputs are bound to


class Print(NamedTuple):
    """Print a buffer's values."""

    resource: str
    verbose: bool


class WriteFile(NamedTuple):
    """Write a buffer to a file."""

    resource: str
    target: Path
    shape: tuple[int, ...] | None  # None for raw files, and for the shape of a deferred buffer


Command = Dispatch | OnnxDispatch | Print | WriteFile


def load_command(entry: dict[str, Any], buffers: Buffers, dispatchables: Dispatchables, faults: Faults) -> Command:
    """Return an entry of `commands`, or refuse it."""
    if entry["type"] == "dispatch":
        return _dispatch(entry, buffers, dispatchables, faults)
    name = entry["resource"]
    if name not in buffers:
        faults.at("resource").add(repr(name), f"a resource: {listed(buffers)}")
    buffer = buffers.get(name)
    if entry["type"] == "writeFile":
        return _write_file(entry, buffer, faults)
    if buffer is not None:
        _check_typed(buffer, faults)
    return Print(name, entry.get("verbose", False))


def _dispatch(entry: dict[str, Any], buffers: Buffers, dispatchables: Dispatchables, faults: Faults) -> Command:
    name, given = entry["dispatchable"], entry["bindings"]
    if name not in dispatchables:
        faults.at("dispatchable").add(repr(name), f"a dispatchable: {listed(dispatchables)}")
    dispatchable, faults = dispatchables.get(name), faults.at("bindings")
    if dispatchable is None:
        check_resources(given, buffers, faults)
        raise Refused
    if isinstance(dispatchable, OnnxDispatchable):
        return load_onnx_dispatch(dispatchable, given, buffers, faults)
    bindings = load_bindings(dispatchable, given, buffers, faults, owned=False)
    _check_apart(dispatchable, bindings, faults)
    outputs = [field.dml_name for field, _ in dispatchable.tensors(owned=False) if field.output]
    return Dispatch(name, bindings, [bindings[each].resource for each in outputs if each in bindings])


def _check_apart(dispatchable: Dispatchable, bindings: dict[str, Binding], faults: Faults) -> None:
    """Refuse outputs that overlap another tensor of the same dispatch."""
    tensors = {field.dml_name: (field, tensor) for field, tensor in dispatchable.tensors(owned=False)}
    inputs, outputs = (
        {name: bindings[name] for name, (field, _) in tensors.items() if name in bindings and field.output == output}
        for output in (False, True)
    )
    for name, other in overlaps(inputs, outputs):
        (field, tensor), (other_field, other_tensor) = tensors[name], tensors[other]
        allowed = "its own memory"
        if (field.name, other_field.name) == dispatchable.desc.IN_PLACE:
            strides, its = (each.strides or packed_strides(each.sizes) for each in (tensor, other_tensor))
            if bindings[name].offset == bindings[other].offset and strides == its:
                continue
            allowed += f", or exactly {other}'s, with the same strides"
        faults.at(name).add(f"{bindings[name].resource!r}, which overlaps {other}", allowed)


def _write_file(entry: dict[str, Any], buffer: Buffer | None, faults: Faults) -> WriteFile:
    target = Path(entry["targetPath"])
    suffix, shape = target.suffix.lower(), None
    if suffix not in (".npy", ".dat", ".bin"):
        faults.at("targetPath").add(shown(entry["targetPath"]), "a .npy, .dat or .bin file")
    if buffer is not None and suffix == ".npy":
        shape = tuple(map(int, entry.get("dimensions", ()))) or None  # DxDispatch treats an empty list as missing
        if not buffer.deferred:
            _check_typed(buffer, faults)
            shape = shape or (buffer.count,)
            counts = sorted({buffer.initial.size, buffer.count})  # of the initial values, and of the whole buffer
            if math.prod(shape) not in counts:
                allowed = f"{' or '.join(map(str, counts))} elements, as many as {buffer.name!r} has"
                faults.at("dimensions").add(f"{list(shape)}, {math.prod(shape)} elements", allowed)
    return WriteFile(entry["resource"], target, shape)


def _check_typed(buffer: Buffer, faults: Faults) -> None:
    if buffer.data_type is TensorDataType.UNKNOWN and not buffer.deferred:
        faults.at("resource").add(f"{buffer.name!r} of type UNKNOWN", "a resource whose initial values have one type")


def check_deferred(commands: Iterable[Command | None], buffers: Buffers, faults: Faults) -> None:
    """Note commands that print or write a deferred buffer before a dispatch has filled it."""
    given: set[str] = set()
    for i, command in enumerate(commands):
        if command is None:
            return  # the invalid command may be the one that fills it
        if isinstance(command, OnnxDispatch):
            given.update(command.written)
        elif isinstance(command, Print | WriteFile):
            buffer = buffers.get(command.resource)
            if buffer is not None and buffer.deferred and buffer.name not in given:
                found = f"{buffer.name!r}, which is deferred and still empty"
                faults.at(i, "resource").add(found, "a resource that an earlier dispatch has written to")
