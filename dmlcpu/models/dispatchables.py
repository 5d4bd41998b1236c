"""A model's dispatchables: operators, and the buffers bound to their tensors."""

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.faults import listed, shown
from dmlcpu.directml.base import Field, OperatorDesc
from dmlcpu.directml.compiled import compile_operator
from dmlcpu.directml.enums import TensorFlags
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.errors import DmlError
from dmlcpu.models.faults import Faults, Path
from dmlcpu.models.resources import Buffer
from dmlcpu.operators.descs import field_errors, operator_desc_from_dict

# DirectML's alignment of a tensor's start in a buffer (DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT).
_OFFSET_ALIGNMENT = 16

# Buffers by name. None: the file has a buffer of that name, but it is invalid.
Buffers = Mapping[str, Buffer | None]
Tensors = list[tuple[Field, TensorDesc]]


@dataclass(frozen=True, slots=True)
class Binding:
    """A tensor's bytes in a buffer."""

    resource: str
    offset: int
    nbytes: int


class Dispatchable(NamedTuple):
    """An operator, with the bindings of the tensors that it owns."""

    desc: OperatorDesc
    owned: dict[str, Binding]

    def tensors(self, *, owned: bool) -> Tensors:
        """Return the tensors that are bound once, at initialization, or those that each dispatch binds."""
        tensors = self.desc.tensors()
        return [(field, each) for field, each in tensors if bool(each.flags & TensorFlags.OWNED_BY_DML) == owned]


def load_dispatchable(entry: dict[str, Any], buffers: Buffers, faults: Faults) -> Dispatchable:
    """Return the operator that an entry of `dispatchables` describes, or refuse it."""
    given, here = entry.get("bindings", {}), faults.at("bindings")
    with OnFailure(lambda: check_resources(given, buffers, here)):
        desc = _load_desc(entry, faults)
    return Dispatchable(desc, load_bindings(Dispatchable(desc, {}), given, buffers, here, owned=True))


def _load_desc(entry: dict[str, Any], faults: Faults) -> OperatorDesc:
    member = "Desc" if "Desc" in entry else "desc"  # DxDispatch reads both
    if member == "Desc" and "desc" in entry:
        faults.at("Desc").refuse("another desc", "desc or Desc, not both")
    given = {"type": entry["type"], "desc": entry.get(member, {})}
    try:
        desc = operator_desc_from_dict(given)
        compile_operator(desc)
    except DmlError as error:
        if error.operator == "operator_desc_from_dict":
            others = ", onnx" if error.field == "type" else ""
            faults.at(error.field).refuse(error.found, error.allowed + others)
        if member not in entry:
            faults.at("desc").refuse("missing", "an object of the operator's fields")
        for each in field_errors(given):
            if each.field != error.field:
                faults.at(member, *_parts(each.field)).add(each.found, each.allowed)
        faults.at(member, *_parts(error.field)).refuse(error.found, error.allowed)
    return desc


def _parts(field: str) -> Path:
    """Take InputTensor.Sizes[2] apart."""
    return tuple(int(part) if part.isdigit() else part for part in re.findall(r"\w+", field))


def load_bindings(
    dispatchable: Dispatchable, given: dict[str, Any], buffers: Buffers, faults: Faults, *, owned: bool
) -> dict[str, Binding]:
    """Return the bindings of the owned tensors, or of the others; note those missing, unknown or too small."""
    groups = dispatchable.tensors(owned=owned), dispatchable.tensors(owned=not owned)
    needed, foreign = ({field.dml_name: tensor for field, tensor in group} for group in groups)
    nothing = "nothing: a tensor flagged OWNED_BY_DML is bound in the dispatchable's bindings"
    if owned:
        nothing = "nothing: a tensor that is not flagged OWNED_BY_DML is bound by each dispatch"
    bindings, met = {}, set()
    for tensor, source, here in sources(given, {*needed, *foreign}, faults):
        met.add(tensor)
        buffer, offset = load_binding(source, buffers, here)
        if tensor in foreign:
            here.add(repr(source if isinstance(source, str) else source["name"]), nothing)
        elif tensor not in needed or "[" in str(here.path[-1]):  # elements are not bound by names
            names = dict.fromkeys(name.partition("[")[0] for name in needed)
            here.add("unknown", f"the tensors {listed(names)}")
        elif buffer is not None:
            bound = needed[tensor]
            binding = Binding(buffer.name, offset, bound.total_tensor_size_in_bytes)
            sizes = ", ".join(map(str, bound.sizes))
            check_size(binding, buffer, f"{bound.data_type.name} of sizes {{{sizes}}}", here)
            bindings[tensor] = binding
    for tensor in needed:
        if tensor not in met and tensor not in given:
            faults.at(*_parts(tensor)).add("missing", "the name of a resource")
    return bindings


def sources(given: dict[str, Any], names: Container[str], faults: Faults) -> Iterator[tuple[str, Any, Faults]]:
    """Yield each bound tensor, those of an array one by one, with its source and the source's place in the file."""
    for tensor, source in given.items():
        elements = source if isinstance(source, list) else [source]
        if f"{tensor}[0]" in names:
            for i, element in enumerate(elements):
                if element is not None:  # null: bound elsewhere
                    yield f"{tensor}[{i}]", element, faults.at(tensor, i)
        elif len(elements) == 1 and elements[0] is not None:
            yield tensor, elements[0], faults.at(tensor)
        else:
            faults.at(tensor).add(shown(source), "one resource")


def check_resources(given: dict[str, Any], buffers: Buffers, faults: Faults) -> None:
    """Check the names of resources in the bindings of an invalid operator."""
    for tensor, source in given.items():
        elements = source if isinstance(source, list) else [source]
        for i, element in enumerate(elements):
            if element is not None:
                load_binding(element, buffers, faults.at(tensor, i) if len(elements) > 1 else faults.at(tensor))


def load_binding(source: Any, buffers: Buffers, faults: Faults) -> tuple[Buffer | None, int]:
    """Return the buffer that a binding names, and the offset in it; None, with the error noted, if there is none."""
    details = {"name": source} if isinstance(source, str) else source
    name = details["name"]
    if name not in buffers:
        faults.add(repr(name), f"a resource: {listed(buffers)}")
    buffer = buffers.get(name)
    if buffer is None:
        return None, 0
    itemsize = int(details.get("elementSizeInBytes", 0)) or buffer.initial.itemsize
    offset = int(details.get("elementOffset", 0)) * itemsize
    if offset % _OFFSET_ALIGNMENT:
        faults.add(f"an offset of {offset} bytes", f"a multiple of {_OFFSET_ALIGNMENT} bytes")
        return None, 0
    return buffer, offset


def overlaps(inputs: Mapping[str, Binding], outputs: Mapping[str, Binding]) -> Iterator[tuple[str, str]]:
    """Yield each output with every input, and every earlier output, that shares bytes with it."""
    before = dict(inputs)
    for name, place in outputs.items():
        for other, its in before.items():
            apart = place.offset >= its.offset + its.nbytes or its.offset >= place.offset + place.nbytes
            if place.resource == its.resource and not apart:
                yield name, other
        before[name] = place


def check_size(binding: Binding, buffer: Buffer, tensor: str, faults: Faults) -> bool:
    """Return whether a tensor's bytes fit in a buffer from its offset on; note the error if they do not."""
    if buffer.size - binding.offset >= binding.nbytes:
        return True
    after = f", from byte {binding.offset} on" if binding.offset else ""
    faults.add(f"{buffer.name!r} of {buffer.size} bytes{after}", f"at least {binding.nbytes} bytes, for {tensor}")
    return False
