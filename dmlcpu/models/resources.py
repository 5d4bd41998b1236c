"""A model's resources: buffers of bytes and the values they start with."""

import functools
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dmlcpu.common.faults import Faults, Path
from dmlcpu.common.wording import listed, shown
from dmlcpu.directml.enums import TensorDataType, full_name
from dmlcpu.runtime.memory import aligned_empty

Array = NDArray[Any]

DATA_TYPES = {member.name: member for member in TensorDataType if member.bits >= 8}
_TYPE_NAMED = {
    name: member
    for member in (TensorDataType.UNKNOWN, *DATA_TYPES.values())
    for name in (member.name, full_name(member))
}
_NOT_FINITE = ("nan", "inf", "-inf")
# Halfway between the largest number and what would follow it: from here on, conversion gives infinity.
_OVERFLOW = {2: 65520, 4: 2**128 - 2**103, 8: 2**1024 - 2**970}
# A list of a million wrong values is one mistake.
_MOST_FAULTS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A buffer of bytes: its size, and the values that it starts with.

    `data_type` is that of the initial values, UNKNOWN where each has its own. It says how the buffer is printed and
    written to .npy files; tensors of any type may be bound to it.

    Constants and sequences take memory only once allocated: `initial` is one element that stands for all. With a
    `delta`, each value is the one before it plus delta.
    """

    name: str
    data_type: TensorDataType
    initial: Array
    nbytes: int  # sizeInBytes, or what the initial values take
    delta: Array | None = None
    deferred: bool = False  # it becomes what an ONNX model gives, of any size

    def allocate(self) -> Array:
        """Return new memory, as bytes, that holds the initial values and zeros behind them."""
        memory = aligned_empty(self.size, np.uint8)
        end = self.initial.nbytes
        values = memory[:end].view(self.initial.dtype)
        values[:] = self.initial
        if self.delta is not None:
            values[1:] = self.delta
            with np.errstate(over="ignore", invalid="ignore"):  # sequences that start, or go on, with infinity
                # As DxDispatch does: each sum is rounded to the type.
                np.add.accumulate(values, dtype=values.dtype, out=values)
        memory[end:] = 0
        return memory

    @property
    def size(self) -> int:
        """The size in bytes: DirectML wants multiples of 4."""
        return -(-self.nbytes // 4) * 4

    @property
    def count(self) -> int:
        """How many elements a .npy file of the whole buffer has: the padding to 4 bytes holds none."""
        return self.nbytes // self.initial.itemsize


def load_buffer(name: str, entry: dict[str, Any], folder: FilePath, faults: Faults) -> Buffer | None:
    """Return the buffer that an entry of `resources` describes; None, with the faults noted, if it is not right."""
    path: Path = ("resources", name)
    data_type = _declared_type(entry, path, faults)
    if data_type is None:
        return None
    values = entry["initialValues"]
    if values == "deferred":
        nothing = np.empty(0, np.uint8 if data_type is TensorDataType.UNKNOWN else data_type.dtype)
        return Buffer(name, data_type, nothing, 0, deferred=True)
    values_path = (*path, "initialValues")
    delta = None
    if isinstance(values, dict) and "sourcePath" in values:
        initial = _from_file(values["sourcePath"], data_type, folder, path, faults)
    elif data_type is TensorDataType.UNKNOWN and isinstance(values, list) and dict in map(type, values):
        initial = _mixed(values, values_path, faults)
    elif data_type is TensorDataType.UNKNOWN:
        _missing_type(entry, path, faults)
        return None
    elif isinstance(values, list):
        initial = _list(values, data_type, values_path, faults)
    elif "value" in values:
        initial = _constant(values, data_type, values_path, faults)
    else:
        initial, delta = _sequence(values, data_type, values_path, faults)
    if initial is None:
        return None
    if data_type is TensorDataType.UNKNOWN and "sourcePath" in values:
        data_type = DATA_TYPES[initial.dtype.name.upper()]
    nbytes = int(entry.get("sizeInBytes", initial.nbytes))
    if nbytes < initial.nbytes:
        faults.add((*path, "sizeInBytes"), str(nbytes), f"at least {initial.nbytes}, the bytes of the initial values")
        return None
    return Buffer(name, data_type, initial, nbytes, delta)


def _declared_type(entry: dict[str, Any], path: Path, faults: Faults) -> TensorDataType | None:
    text = entry.get("initialValuesDataType", "UNKNOWN")
    data_type = _TYPE_NAMED.get(text)
    if data_type is None:
        faults.add((*path, "initialValuesDataType"), shown(text), listed([*DATA_TYPES, "UNKNOWN"]))
    return data_type


def _missing_type(entry: dict[str, Any], path: Path, faults: Faults) -> None:
    found = shown(entry["initialValuesDataType"]) if "initialValuesDataType" in entry else "missing"
    faults.add((*path, "initialValuesDataType"), found, listed(DATA_TYPES))


def _list(values: list[Any], data_type: TensorDataType, path: Path, faults: Faults) -> Array | None:
    if not values:
        faults.add(path, "an empty list", "at least one value")
        return None
    fits = _test_of(data_type)
    wrong = [i for i, value in enumerate(values) if not fits(value)]
    for i in wrong[:_MOST_FAULTS]:
        faults.add((*path, i), shown(values[i]), _allowed_values(data_type))
    if len(wrong) > _MOST_FAULTS:
        faults.add((*path, wrong[_MOST_FAULTS]), f"{len(wrong)} such values in all", _allowed_values(data_type))
    return None if wrong else _array(values, data_type)


def _constant(values: dict[str, Any], data_type: TensorDataType, path: Path, faults: Faults) -> Array | None:
    if not _check_value(values["value"], data_type, (*path, "value"), faults):
        return None
    return np.broadcast_to(_array([values["value"]], data_type), int(values["valueCount"]))


def _sequence(
    values: dict[str, Any], data_type: TensorDataType, path: Path, faults: Faults
) -> tuple[Array | None, Array | None]:
    """Return the first value, standing for all, and delta; None twice, with the faults noted, if they do not fit."""
    start, delta, count = values["valueStart"], values["valueDelta"], int(values["valueCount"])
    fits = [_check_value(values[name], data_type, (*path, name), faults) for name in ("valueStart", "valueDelta")]
    if not all(fits):
        return None, None
    if not isinstance(start, str) and not isinstance(delta, str):
        number = float if data_type.dtype.kind == "f" else int
        last = number(start) + number(delta) * (count - 1)
        if not _fits(last, data_type):
            faults.add(path, f"a sequence that ends with {last}", _allowed_values(data_type))
            return None, None
    return np.broadcast_to(_array([start], data_type), count), _array([delta], data_type)


def _mixed(items: list[Any], path: Path, faults: Faults) -> Array | None:
    parts = [_mixed_item(item, (*path, i), faults) for i, item in enumerate(items)]
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _mixed_item(item: Any, path: Path, faults: Faults) -> Array | None:
    if not isinstance(item, dict) or not isinstance(item.get("type"), str) or "value" not in item:
        faults.add(path, shown(item), 'an object {"name": ..., "type": ..., "value": ...}')
        return None
    data_type = _TYPE_NAMED.get(item["type"])
    if not data_type:
        faults.add((*path, "type"), shown(item["type"]), listed(DATA_TYPES))
        return None
    if not _check_value(item["value"], data_type, (*path, "value"), faults):
        return None
    return _array([item["value"]], data_type).view(np.uint8)


def _check_value(value: Any, data_type: TensorDataType, path: Path, faults: Faults) -> bool:
    if _fits(value, data_type):
        return True
    faults.add(path, shown(value), _allowed_values(data_type))
    return False


def _fits(value: Any, data_type: TensorDataType) -> bool:
    return _test_of(data_type)(value)


@functools.cache
def _test_of(data_type: TensorDataType) -> Callable[[Any], bool]:
    """Return the function that tells whether a JSON value can be an element of a type."""
    if data_type.dtype.kind == "f":
        overflow = _OVERFLOW[data_type.dtype.itemsize]

        def fits_float(value: Any) -> bool:
            if type(value) is str:
                return value.lower() in _NOT_FINITE
            return type(value) in (int, float) and abs(value) < overflow

        return fits_float
    low, high = int(np.iinfo(data_type.dtype).min), int(np.iinfo(data_type.dtype).max)
    return lambda value: type(value) is int and low <= value <= high  # True is no number


def _allowed_values(data_type: TensorDataType) -> str:
    if data_type.dtype.kind == "f":
        return f'numbers in the range of {data_type.name}, "nan", "inf" or "-inf"'
    limits = np.iinfo(data_type.dtype)
    return f"integers from {limits.min} to {limits.max} ({data_type.name})"


def _array(values: list[Any], data_type: TensorDataType) -> Array:
    """Convert values that fit."""
    numbers = [float(value) if type(value) is str else value for value in values]
    return np.array(numbers, data_type.dtype)


def find_file(source: str, folder: FilePath) -> FilePath | None:
    """Return where a file is that a model names: relative to the model's folder, or the current one."""
    return next((file for file in (folder / source, FilePath(source)) if os.path.exists(file)), None)


def _from_file(source: str, data_type: TensorDataType, folder: FilePath, path: Path, faults: Faults) -> Array | None:
    where = (*path, "initialValues", "sourcePath")
    extension = FilePath(source).suffix.lower()
    if extension not in (".npy", ".dat", ".bin"):
        faults.add(where, shown(source), "a .npy, .dat or .bin file")
        return None
    found = find_file(source, folder)
    if found is None:
        faults.add(where, f"{source!r}, no such file", f"a file, relative to {folder} or the current directory")
        return None
    if extension != ".npy" and data_type is TensorDataType.UNKNOWN:
        faults.add((*path, "initialValuesDataType"), "no type", f"{listed(DATA_TYPES)} (raw files have none)")
        return None
    try:
        with found.open("rb") as file:
            array = _read_npy(file) if extension == ".npy" else np.frombuffer(file.read(), np.uint8)
    except Exception as error:  # NumPy evaluates .npy headers: a broken one raises nearly anything
        reason = str(error) or type(error).__name__
        faults.add(where, f"{source!r}, which cannot be read: {reason}", f"a {extension} file")
        return None
    if extension == ".npy":
        return _checked_npy(array, source, data_type, path, faults)
    itemsize = data_type.dtype.itemsize
    if not array.size or array.size % itemsize:
        found_size = f"{source!r} of {array.size} bytes"
        faults.add(where, found_size, f"a positive multiple of {itemsize} bytes ({data_type.name})")
        return None
    return array.view(data_type.dtype)


def _read_npy(file: BinaryIO) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's of files that Python 2 wrote: they are read all the same
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _checked_npy(array: Array, source: str, data_type: TensorDataType, path: Path, faults: Faults) -> Array | None:
    where = (*path, "initialValues", "sourcePath")
    if array.dtype == np.bool_:
        array = array.view(np.uint8)
    name = array.dtype.name.upper()
    if name not in DATA_TYPES:
        faults.add(where, f"{source!r} of {array.dtype}", listed(DATA_TYPES))
        return None
    if data_type not in (TensorDataType.UNKNOWN, DATA_TYPES[name]):
        faults.add((*path, "initialValuesDataType"), data_type.name, f"{name}, the type of {source!r}")
        return None
    if not array.size:
        faults.add(where, f"{source!r} of shape {array.shape}", "at least one value")
        return None
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1)
