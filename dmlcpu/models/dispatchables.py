"""A model's dispatchables: operators, and which buffers are bound to their tensors."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmlcpu.common.wording import listed, shown
from dmlcpu.directml.base import Field, OperatorDesc
from dmlcpu.directml.compiled import compile_operator
from dmlcpu.directml.enums import TensorFlags
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.errors import DmlError
from dmlcpu.models.faults import Faults, Path
from dmlcpu.models.resources import Buffer
from dmlcpu.operators.descs import operator_desc_from_dict

# DirectML's rule for where in a buffer a tensor may start (DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT).
_OFFSET_ALIGNMENT = 16

# Buffers by name. None: the file has a buffer of that name, but it is at fault.
Buffers = Mapping[str, Buffer | None]
Tensors = Iterable[tuple[Field, TensorDesc]]


class Binding(NamedTuple):
    """A place in a buffer: where a tensor's bytes start."""

    resource: str
    offset: int


@dataclass(frozen=True, slots=True)
class Dispatchable:
    """An operator, with the bindings of the tensors that it owns."""

    desc: OperatorDesc
    owned: dict[str, Binding]

    def owned_tensors(self) -> Tensors:
        """Return the tensors that are bound once, at initialization."""
        return [(field, tensor) for field, tensor in self.desc.tensors() if tensor.flags & TensorFlags.OWNED_BY_DML]

    def dispatched_tensors(self) -> Tensors:
        """Return the tensors that each dispatch binds."""
        return [(field, tensor) for field, tensor in self.desc.tensors() if not tensor.flags & TensorFlags.OWNED_BY_DML]


def load_dispatchable(name: str, entry: dict[str, Any], buffers: Buffers, faults: Faults) -> Dispatchable | None:
    """Return the operator that an entry of `dispatchables` describes; None, with the faults noted, if it cannot run."""
    path: Path = ("dispatchables", name)
    given = entry.get("bindings", {})
    desc = _load_desc(entry, path, faults)
    if desc is None:
        check_resources(given, buffers, (*path, "bindings"), faults)
        return None
    bare = Dispatchable(desc, {})
    elsewhere = "a tensor that is not flagged OWNED_BY_DML is bound by each dispatch"
    owned, dispatched = bare.owned_tensors(), bare.dispatched_tensors()
    return Dispatchable(desc, load_bindings(given, owned, dispatched, elsewhere, buffers, (*path, "bindings"), faults))


def _load_desc(entry: dict[str, Any], path: Path, faults: Faults) -> OperatorDesc | None:
    member = "Desc" if "Desc" in entry else "desc"  # DxDispatch reads both
    if member == "Desc" and "desc" in entry:
        faults.add((*path, "Desc"), "another desc", "desc or Desc, not both")
        return None
    try:
        desc = operator_desc_from_dict({"type": entry["type"], "desc": entry.get(member, {})})
        compile_operator(desc)
    except DmlError as error:
        if error.operator == "operator_desc_from_dict":
            path = (*path, error.field)
            if error.field == "type":
                faults.add(path, error.found, f"{error.allowed}, onnx")
                return None
        elif member not in entry:
            faults.add((*path, "desc"), "missing", "an object of the operator's fields")
            return None
        else:
            path = (*path, member, *_parts(error.field))
        faults.add(path, error.found, error.allowed)
        return None
    return desc


def _parts(field: str) -> Path:
    """Take InputTensor.Sizes[2] apart."""
    return tuple(int(part) if part.isdigit() else part for part in re.findall(r"\w+", field))


def load_bindings(
    given: dict[str, Any],
    tensors: Tensors,
    others: Tensors,
    elsewhere: str,
    buffers: Buffers,
    path: Path,
    faults: Faults,
) -> dict[str, Binding]:
    """Return the bindings of `tensors`, and note the faults: missing, unknown or too small.

    `others` are the operator's other tensors; `elsewhere` says where they are bound.
    """
    needed = {field.dml_name: tensor for field, tensor in tensors}
    foreign = {field.dml_name for field, _ in others}
    bindings, met = {}, set()
    for tensor, source, where in sources(given, {*needed, *foreign}, path, faults):
        met.add(tensor)
        binding = load_binding(source, buffers, where, faults)
        if tensor in foreign:
            faults.add(where, repr(source if isinstance(source, str) else source["name"]), f"nothing: {elsewhere}")
        elif tensor not in needed or "[" in str(where[-1]):  # elements are not bound by names
            names = dict.fromkeys(name.partition("[")[0] for name in needed)
            faults.add(where, "unknown", f"the tensors {listed(names)}")
        elif binding is not None:
            bound = needed[tensor]
            nbytes, sizes = bound.total_tensor_size_in_bytes, ", ".join(map(str, bound.sizes))
            check_size(binding, nbytes, f"{bound.data_type.name} of sizes {{{sizes}}}", buffers, where, faults)
            bindings[tensor] = binding
    for tensor in needed:
        if tensor not in met and tensor not in given:
            faults.add((*path, *_parts(tensor)), "missing", "the name of a resource")
    return bindings


def sources(
    given: dict[str, Any], names: Collection[str], path: Path, faults: Faults
) -> Iterator[tuple[str, Any, Path]]:
    """Yield each bound tensor with its source and the source's place in the file.

    The tensors of an array come one by one; null, for a tensor that is bound elsewhere, is left out.
    """
    for tensor, source in given.items():
        where = (*path, tensor)
        sources = source if isinstance(source, list) else [source]
        if f"{tensor}[0]" in names:
            elements = ((f"{tensor}[{i}]", each, (*where, i)) for i, each in enumerate(sources))
            yield from (element for element in elements if element[1] is not None)
        elif len(sources) == 1 and sources[0] is not None:
            yield tensor, sources[0], where
        else:
            faults.add(where, shown(source), "one resource")


def check_resources(given: dict[str, Any], buffers: Buffers, path: Path, faults: Faults) -> None:
    """Check the names of resources in the bindings of an operator that is at fault itself."""
    for tensor, source in given.items():
        sources = source if isinstance(source, list) else [source]
        for i, each in enumerate(sources):
            if each is not None:
                load_binding(each, buffers, (*path, tensor, i) if len(sources) > 1 else (*path, tensor), faults)


def load_binding(source: Any, buffers: Buffers, path: Path, faults: Faults) -> Binding | None:
    """Return the place that a binding names; None, with the fault noted, if there is none."""
    details = {"name": source} if isinstance(source, str) else source
    name = details["name"]
    if name not in buffers:
        faults.add(path, repr(name), f"a resource: {listed(buffers)}")
        return None
    buffer = buffers[name]
    if buffer is None:
        return None
    itemsize = int(details.get("elementSizeInBytes", 0)) or buffer.initial.itemsize
    offset = int(details.get("elementOffset", 0)) * itemsize
    if offset % _OFFSET_ALIGNMENT:
        faults.add(path, f"an offset of {offset} bytes", f"a multiple of {_OFFSET_ALIGNMENT} bytes")
        return None
    return Binding(name, offset)


def check_size(binding: Binding, nbytes: int, tensor: str, buffers: Buffers, path: Path, faults: Faults) -> bool:
    """Return whether a tensor's bytes fit behind its place in a buffer; note the fault if they do not."""
    buffer = buffers[binding.resource]
    assert buffer is not None  # or there would be no binding
    if buffer.size - binding.offset >= nbytes:
        return True
    after = f", from byte {binding.offset} on" if binding.offset else ""
    faults.add(path, f"{buffer.name!r} of {buffer.size} bytes{after}", f"at least {nbytes} bytes, for {tensor}")
    return False
