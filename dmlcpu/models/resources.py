"""A model's resources: buffers of bytes and their initial values."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.faults import listed, shown
from dmlcpu.directml.enums import TensorDataType, full_name
from dmlcpu.files import FileError
from dmlcpu.models.faults import Faults, Refused
from dmlcpu.models.values import read
from dmlcpu.runtime.memory import aligned_empty

DATA_TYPES = {member.name: member for member in TensorDataType if member.bits >= 8}
_TYPES = (TensorDataType.UNKNOWN, *DATA_TYPES.values())
_TYPE_NAMED = {name: member for member in _TYPES for name in (member.name, full_name(member))}
_NOT_FINITE = ("nan", "inf", "-inf")
# Halfway between the largest number and the next power of two: from here on, conversion returns infinity.
_OVERFLOW = {2: 65520, 4: 2**128 - 2**103, 8: 2**1024 - 2**970}
_MOST_FAULTS = 10  # errors reported for one list of values: a million wrong values are one mistake


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A buffer of bytes: its size and its initial values.

    `data_type` is that of the initial values, UNKNOWN where each has its own. It decides how the buffer is printed and
    written to .npy files; tensors of any type may be bound to it.

    Constants and sequences take memory only when they are allocated: `initial` repeats one element. With a `delta`,
    each value is the one before it plus delta.
    """

    name: str
    data_type: TensorDataType
    initial: Array
    nbytes: int  # sizeInBytes, or the bytes of the initial values
    delta: Array | None = None
    deferred: bool = False  # an ONNX model's result, of any size, replaces it

    def allocate(self) -> Array:
        """Allocate memory, as bytes, with the initial values followed by zeros."""
        memory = aligned_empty(self.size, np.uint8)
        end = self.initial.nbytes
        values = memory[:end].view(self.initial.dtype)
        values[:] = self.initial
        if self.delta is not None:
            values[1:] = self.delta
            with np.errstate(over="ignore", invalid="ignore"):  # sequences that start, or go on, with infinity
                # Like DxDispatch, round each sum to the type.
                np.add.accumulate(values, dtype=values.dtype, out=values)
        memory[end:] = 0
        return memory

    @property
    def size(self) -> int:
        """The size in bytes: DirectML requires multiples of 4."""
        return -(-self.nbytes // 4) * 4

    @property
    def count(self) -> int:
        """The number of elements in a .npy file of the whole buffer, without the padding to 4 bytes."""
        return self.nbytes // self.initial.itemsize


class Files:
    """The files that a model names, relative to its folder or the current one; `found` collects them."""

    def __init__(self, folder: FilePath) -> None:
        self._folder = folder
        self.found: list[FilePath] = []

    def find(self, source: str, faults: Faults) -> FilePath:
        """Return a file, or refuse one that does not exist."""
        there = [file for file in (self._folder / source, FilePath(source)) if os.path.exists(file)]
        if not there:
            faults.refuse(
                f"{source!r}, no such file",
                f"a file, relative to the model's folder {self._folder} or the current directory",
            )
        self.found.append(there[0])
        return there[0]


def load_buffer(name: str, entry: dict[str, Any], files: Files, faults: Faults) -> Buffer:
    """Return the buffer that an entry of `resources` describes, or refuse it."""
    text, values = entry.get("initialValuesDataType", "UNKNOWN"), entry["initialValues"]
    data_type, delta = _TYPE_NAMED.get(text), None
    if data_type is None:
        faults.at("initialValuesDataType").refuse(shown(text), listed([*DATA_TYPES, "UNKNOWN"]))
    if values == "deferred":
        nothing = np.empty(0, np.uint8 if data_type is TensorDataType.UNKNOWN else data_type.dtype)
        return Buffer(name, data_type, nothing, 0, deferred=True)
    if isinstance(values, dict) and "sourcePath" in values:
        initial = _from_file(values["sourcePath"], data_type, files, faults)
        data_type = DATA_TYPES[initial.dtype.name.upper()]
    elif data_type is TensorDataType.UNKNOWN:
        initial = _mixed(entry, faults)
    elif isinstance(values, list):
        initial = _converted(values, range(len(values)), data_type, faults.at("initialValues"))
    else:
        initial, delta = _repeated(values, data_type, faults.at("initialValues"))
    nbytes = int(entry.get("sizeInBytes", initial.nbytes))
    if nbytes < initial.nbytes:
        faults.at("sizeInBytes").refuse(str(nbytes), f"at least {initial.nbytes}, the bytes of the initial values")
    return Buffer(name, data_type, initial, nbytes, delta)


def _repeated(values: dict[str, Any], data_type: TensorDataType, faults: Faults) -> tuple[Array, Array | None]:
    """Return a constant, or the first value of a sequence, repeated; and the sequence's delta."""
    names = ("value",) if "value" in values else ("valueStart", "valueDelta")
    given, count = [values[name] for name in names], int(values["valueCount"])
    array = _converted(given, names, data_type, faults)
    if len(given) == 2 and str not in map(type, given):
        number = float if data_type.dtype.kind == "f" else int
        last = number(given[0]) + number(given[1]) * (count - 1)
        fits, allowed = _range_of(data_type)
        if not fits(last):
            faults.refuse(f"a sequence that ends with {last}", allowed)
    return np.broadcast_to(array[:1], count), array[1:] if len(given) == 2 else None


def _mixed(entry: dict[str, Any], faults: Faults) -> Array:
    """Return values, each with its own type, as bytes."""
    values = entry["initialValues"]
    if not isinstance(values, list) or not any(isinstance(value, dict) for value in values):
        found = shown(entry["initialValuesDataType"]) if "initialValuesDataType" in entry else "missing"
        faults.at("initialValuesDataType").refuse(found, listed(DATA_TYPES))
    parts = []
    for i, item in enumerate(values):
        here = faults.at("initialValues", i)
        with contextlib.suppress(Refused):
            if not isinstance(item, dict) or not isinstance(item.get("type"), str) or "value" not in item:
                here.refuse(shown(item), 'an object {"name": ..., "type": ..., "value": ...}')
            data_type = _TYPE_NAMED.get(item["type"])
            if not data_type:
                here.at("type").refuse(shown(item["type"]), listed(DATA_TYPES))
            parts.append(_converted([item["value"]], ["value"], data_type, here).view(np.uint8))
    if len(parts) < len(values):
        raise Refused
    return np.concatenate(parts)


def _converted(values: Sequence[Any], names: Sequence[str | int], data_type: TensorDataType, faults: Faults) -> Array:
    """Return values as an array, or refuse those that do not fit the type, by name."""
    if not values:
        faults.refuse("an empty list", "at least one value")
    fits, allowed = _range_of(data_type)
    wrong = [i for i, value in enumerate(values) if not fits(value)]
    for i in wrong[:_MOST_FAULTS]:
        faults.at(names[i]).add(shown(values[i]), allowed)
    if len(wrong) > _MOST_FAULTS:
        faults.at(names[wrong[_MOST_FAULTS]]).add(f"{len(wrong)} such values in all", allowed)
    if wrong:
        raise Refused
    return np.array([float(value) if type(value) is str else value for value in values], data_type.dtype)


@functools.cache
def _range_of(data_type: TensorDataType) -> tuple[Callable[[Any], bool], str]:
    """Return a test of whether a JSON value can be an element of a type, and a text about the valid values."""
    if data_type.dtype.kind == "f":
        overflow = _OVERFLOW[data_type.dtype.itemsize]

        def fits_float(value: Any) -> bool:
            if type(value) is str:
                return value.lower() in _NOT_FINITE
            return type(value) in (int, float) and abs(value) < overflow

        return fits_float, f'numbers in the range of {data_type.name}, "nan", "inf" or "-inf"'
    low, high = int(np.iinfo(data_type.dtype).min), int(np.iinfo(data_type.dtype).max)
    allowed = f"integers from {low} to {high} ({data_type.name})"
    return lambda value: type(value) is int and low <= value <= high, allowed  # True is no number


def _from_file(source: str, data_type: TensorDataType, files: Files, faults: Faults) -> Array:
    here, suffix = faults.at("initialValues", "sourcePath"), FilePath(source).suffix.lower()
    if suffix not in (".npy", ".dat", ".bin"):
        here.refuse(shown(source), "a .npy, .dat or .bin file")
    found = files.find(source, here)
    if suffix != ".npy" and data_type is TensorDataType.UNKNOWN:
        faults.at("initialValuesDataType").refuse("no type", f"{listed(DATA_TYPES)} (raw files have none)")
    try:
        array = read(found)
    except FileError as error:
        here.refuse(f"{source!r}: {error.found}", error.allowed)
    except (OSError, MemoryError) as error:
        here.refuse(f"{source!r}, which cannot be read: {str(error) or 'not enough memory'}", f"a {suffix} file")
    if suffix != ".npy":
        size, itemsize = array.size, data_type.dtype.itemsize
        if not size or size % itemsize:
            here.refuse(f"{source!r} of {size} bytes", f"a positive multiple of {itemsize} bytes ({data_type.name})")
        return array.view(data_type.dtype)
    if array.dtype == np.bool_:
        array = array.view(np.uint8)
    name = array.dtype.name.upper()
    if name not in DATA_TYPES:
        here.refuse(f"{source!r} of {array.dtype}", listed(DATA_TYPES))
    if data_type not in (TensorDataType.UNKNOWN, DATA_TYPES[name]):
        faults.at("initialValuesDataType").refuse(data_type.name, f"{name}, the type of {source!r}")
    if not array.size:
        here.refuse(f"{source!r} of shape {array.shape}", "at least one value")
    return array.reshape(-1)
