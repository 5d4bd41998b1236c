"""A model's commands, which run in order."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from dmlcpu.common.wording import listed, shown
from dmlcpu.directml.base import Field
from dmlcpu.directml.enums import TensorDataType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.models.dispatchables import Binding, Buffers, Dispatchable, check_resources, load_bindings
from dmlcpu.models.faults import Faults, Path
from dmlcpu.models.onnx_models import OnnxDispatch, OnnxDispatchable, load_onnx_dispatch
from dmlcpu.models.resources import Buffer

# Dispatchables by name. None: the file has one of that name, but it is at fault.
Dispatchables = Mapping[str, Dispatchable | OnnxDispatchable | None]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Run an operator."""

    dispatchable: str
    bindings: dict[str, Binding]


@dataclass(frozen=True, slots=True)
class Print:
    """Print a buffer's values."""

    resource: str
    verbose: bool


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a buffer to a file."""

    resource: str
    target: FilePath
    shape: tuple[int, ...] | None  # None for raw files, and for a deferred buffer's own


Command = Dispatch | OnnxDispatch | Print | WriteFile


def load_command(
    i: int, entry: dict[str, Any], buffers: Buffers, dispatchables: Dispatchables, faults: Faults
) -> Command | None:
    """Return an entry of `commands`; None, with the faults noted, if it cannot run."""
    path: Path = ("commands", i)
    if entry["type"] == "dispatch":
        return _dispatch(entry, path, buffers, dispatchables, faults)
    name = entry["resource"]
    if name not in buffers:
        faults.add((*path, "resource"), repr(name), f"a resource: {listed(buffers)}")
    buffer = buffers.get(name)
    if entry["type"] == "writeFile":
        return _write_file(entry, path, buffer, faults)
    if buffer is not None:
        _check_typed(buffer, path, faults)
    return Print(name, entry.get("verbose", False))


def _dispatch(
    entry: dict[str, Any], path: Path, buffers: Buffers, dispatchables: Dispatchables, faults: Faults
) -> Dispatch | OnnxDispatch | None:
    name, given = entry["dispatchable"], entry["bindings"]
    path_of_bindings = (*path, "bindings")
    if name not in dispatchables:
        faults.add((*path, "dispatchable"), repr(name), f"a dispatchable: {listed(dispatchables)}")
    dispatchable = dispatchables.get(name)
    if dispatchable is None:
        check_resources(given, buffers, path_of_bindings, faults)
        return None
    if isinstance(dispatchable, OnnxDispatchable):
        return load_onnx_dispatch(dispatchable, given, buffers, path_of_bindings, faults)
    tensors, owned = dispatchable.dispatched_tensors(), dispatchable.owned_tensors()
    elsewhere = "a tensor flagged OWNED_BY_DML is bound in the dispatchable's bindings"
    bindings = load_bindings(given, tensors, owned, elsewhere, buffers, path_of_bindings, faults)
    _check_apart(dispatchable, bindings, path_of_bindings, faults)
    return Dispatch(name, bindings)


def _check_apart(dispatchable: Dispatchable, bindings: dict[str, Binding], path: Path, faults: Faults) -> None:
    """Refuse outputs that overlap another tensor of the same dispatch."""
    before: list[tuple[Field, Binding, TensorDesc]] = []
    for field, tensor in dispatchable.dispatched_tensors():  # inputs first: DirectML's order
        if field.dml_name not in bindings:
            continue
        binding = bindings[field.dml_name]
        for other, other_binding, other_tensor in before if field.output else ():
            if not _meet(binding, tensor, other_binding, other_tensor):
                continue
            allowed = "memory of its own"
            if (field.name, other.name) == dispatchable.desc.IN_PLACE:
                if binding == other_binding and _strides(tensor) == _strides(other_tensor):
                    continue
                allowed += f", or exactly {other.dml_name}'s, with the same strides"
            faults.add((*path, field.dml_name), f"{binding.resource!r}, which overlaps {other.dml_name}", allowed)
        before.append((field, binding, tensor))


def _meet(a: Binding, a_tensor: TensorDesc, b: Binding, b_tensor: TensorDesc) -> bool:
    return (
        a.resource == b.resource
        and a.offset < b.offset + b_tensor.total_tensor_size_in_bytes
        and b.offset < a.offset + a_tensor.total_tensor_size_in_bytes
    )


def _strides(tensor: TensorDesc) -> tuple[int, ...]:
    if tensor.strides is not None:
        return tensor.strides
    return tuple(math.prod(tensor.sizes[i + 1 :]) for i in range(tensor.dimension_count))


def _write_file(entry: dict[str, Any], path: Path, buffer: Buffer | None, faults: Faults) -> WriteFile:
    target = FilePath(entry["targetPath"])
    suffix, shape = target.suffix.lower(), None
    if suffix not in (".npy", ".dat", ".bin"):
        faults.add((*path, "targetPath"), shown(entry["targetPath"]), "a .npy, .dat or .bin file")
    if buffer is not None and suffix == ".npy":
        shape = tuple(map(int, entry.get("dimensions", ()))) or None  # DxDispatch takes an empty list for none
        if not buffer.deferred:
            _check_typed(buffer, path, faults)
            shape = shape or (buffer.count,)
            _check_count(shape, buffer, (*path, "dimensions"), faults)
    return WriteFile(entry["resource"], target, shape)


def _check_count(shape: tuple[int, ...], buffer: Buffer, path: Path, faults: Faults) -> None:
    """Refuse a shape that has neither the elements of the initial values nor those of the whole buffer."""
    counts = sorted({buffer.initial.size, buffer.count})
    if math.prod(shape) not in counts:
        found = f"{list(shape)}, {math.prod(shape)} elements"
        faults.add(path, found, f"{' or '.join(map(str, counts))} elements, as many as {buffer.name!r} has")


def check_deferred(commands: Sequence[Command | None], buffers: Buffers, faults: Faults) -> None:
    """Note commands that print or write a deferred buffer before a dispatch has filled it."""
    given: set[str] = set()
    for i, command in enumerate(commands):
        if command is None:
            return  # the command at fault may be the one that fills it
        if isinstance(command, OnnxDispatch):
            given |= {place.resource for place in command.outputs.values()}
        elif isinstance(command, Print | WriteFile):
            buffer = buffers.get(command.resource)
            if buffer is not None and buffer.deferred and buffer.name not in given:
                found = f"{buffer.name!r}, which is deferred and has nothing yet"
                faults.add(("commands", i, "resource"), found, "a resource that a dispatch before has written to")


def _check_typed(buffer: Buffer, path: Path, faults: Faults) -> None:
    if buffer.data_type is TensorDataType.UNKNOWN and not buffer.deferred:
        found = f"{buffer.name!r} of type UNKNOWN"
        faults.add((*path, "resource"), found, "a resource whose initial values have one type")
