"""Indices on disk: a folder with a .npy file for each array, and a header in JSON.

A folder is written next to its target and takes its name in one step. What is read is checked before it is used: the
header has a fixed form, and names no paths; each file has the type, the shape and the length that the header says.
"""

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dmlcpu.batch.files import Writer, create
from dmlcpu.batch.files.base import FileError, whole
from dmlcpu.batch.files.npy import check_size, read_header
from dmlcpu.batch.files.stored import open_file, size_of
from dmlcpu.batch.files.targets import make_folder, put_folder, remove, sync_folder
from dmlcpu.common.arguments import Array
from dmlcpu.common.data_types import BYTE_TYPES
from dmlcpu.common.faults import shown
from dmlcpu.common.regions import Tensor
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.search.spaces import METRICS, Space, space_of
from dmlcpu.search.vectors import Stored

HEADER = "index.json"
FORMAT, VERSION = "dmlcpu.search.Int8Index", 1
_SAVE, _LOAD = "Int8Index.save", "Int8Index.load"
_LONGEST_HEADER = 1 << 16
# The arrays of an index, and the types that each may have.
_ARRAY_TYPES = {
    "vectors": BYTE_TYPES,
    "scales": ("float32",),
    "squares": ("int32", "float64"),
    "ids": ("int64",),
    "floats": ("float32", "float16", "float64"),
    "ranges": ("float32",),
}


@contextlib.contextmanager
def new_index(
    path: str | os.PathLike[str], space: Space, tensors: Mapping[str, Tensor]
) -> Iterator[Callable[[str, Array, int], None]]:
    """Create an index on disk; yield what writes rows of one of its arrays, from a place on. It replaces an older one.

    At the end the index is in place; after an exception all is as it was.
    """
    target = target_of(path)
    folder, name = os.path.split(target)
    token = os.urandom(6).hex()
    make_folder(folder)
    temporary = os.path.join(folder, f".{name}.{token}.part")
    ranges = {} if space.ranges is None else {"ranges": space.ranges}
    tensors = {**tensors, **{name: Tensor(each.shape, each.dtype) for name, each in ranges.items()}}
    writers: dict[str, Writer] = {}

    def write(name: str, rows: Array, start: int) -> None:
        region = (slice(start, start + len(rows)), *whole(rows.shape[1:]))
        writers[name].sinks[name].write(region, np.ascontiguousarray(rows))

    os.mkdir(temporary)
    try:
        for name, tensor in tensors.items():
            writers[name] = create(os.path.join(temporary, f"{name}.npy"), {name: tensor}, token)
        for name, array in ranges.items():
            write(name, array, 0)
        yield write
        for writer in writers.values():
            writer.finish()
            writer.put_in_place()
        _write_header(temporary, space, tensors)
        put_folder(temporary, target)
        sync_folder(folder)
    finally:
        for writer in writers.values():
            writer.discard()
        remove(temporary)


def _write_header(folder: str, space: Space, tensors: Mapping[str, Tensor]) -> None:
    arrays = {name: {"dtype": each.dtype.name, "shape": list(each.shape)} for name, each in tensors.items()}
    header = {"format": FORMAT, "version": VERSION, "metric": space.metric, "arrays": arrays}
    with open(os.path.join(folder, HEADER), "x", encoding="utf-8") as file:
        json.dump(header, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def target_of(path: str | os.PathLike[str]) -> str:
    """Return the folder that an index goes to, behind links; refuse one with anything but an index in it."""
    given, allowed = os.fsdecode(path), "an index, an empty folder, or nothing"
    if not given:
        raise DmlError(_SAVE, "path", "''", "the path of a folder")
    target = os.path.realpath(given)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return target
    if not stat.S_ISDIR(mode):
        raise DmlError(_SAVE, "path", f"{given!r}, a file", allowed)
    names = set(os.listdir(target))
    if names - {HEADER, *(f"{name}.npy" for name in _ARRAY_TYPES)}:
        raise DmlError(_SAVE, "path", f"{given!r}, a folder of other files", allowed)
    if names:
        try:
            _read_header(target)
        except DmlError as error:
            raise DmlError(_SAVE, "path", f"{given!r}, whose {error.field} is {error.found}", allowed) from None
    return target


def save(path: str | os.PathLike[str], space: Space, stored: Stored) -> None:
    """Write an index."""
    arrays = stored.arrays()
    with new_index(path, space, {name: Tensor(each.shape, each.dtype) for name, each in arrays.items()}) as write:
        for name, array in arrays.items():
            write(name, array, 0)


def load(path: str | os.PathLike[str]) -> tuple[Space, Stored]:
    """Return a saved index, its arrays memory-mapped, or refuse the folder.

    It is read again if another index has taken its place meanwhile.
    """
    folder = os.fsdecode(path)
    while True:
        before = _state(folder)
        try:
            found = _load(folder)
        except (DmlError, FileNotFoundError):
            if _state(folder) == before:
                raise
        else:
            if _state(folder) == before:
                return found


def _state(folder: str) -> tuple[int, ...]:
    """Return what is another number once another folder has this name."""
    status = os.stat(folder)
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _load(folder: str) -> tuple[Space, Stored]:
    metric, tensors = _read_header(folder)
    arrays = {name: _mapped_array(folder, name, tensor) for name, tensor in tensors.items()}
    space = space_of(_LOAD, metric, tensors["vectors"], arrays.pop("ranges", None))
    stored = Stored(**arrays)
    _check_numbers(stored)
    return space, stored


def _read_header(folder: str) -> tuple[str, dict[str, Tensor]]:
    """Return the metric, and the arrays that a header lists, or refuse it."""
    os.scandir(folder).close()  # the system's error, if it cannot be read
    path = os.path.join(folder, HEADER)
    try:
        with open_file(path) as file:
            text = file.read(_LONGEST_HEADER + 1) or b""
        header = json.loads(text.decode()) if len(text) <= _LONGEST_HEADER else None
    except FileNotFoundError:
        raise DmlError(_LOAD, HEADER, "missing", f"a folder that Int8Index.save wrote ({folder!r} is none)") from None
    except (FileError, ValueError, RecursionError) as error:
        found = f"not readable ({' '.join(str(error).split()):.200})"
        raise DmlError(_LOAD, HEADER, found, "a header in JSON") from None
    if not isinstance(header, dict) or header.keys() != {"format", "version", "metric", "arrays"}:
        found = f"an object with {shown(', '.join(header))}" if isinstance(header, dict) else shown(header)
        raise DmlError(_LOAD, HEADER, found, "an object with format, version, metric and arrays")
    for field, wanted in (("format", FORMAT), ("version", VERSION)):
        if header[field] != wanted or isinstance(header[field], bool):
            raise DmlError(_LOAD, f"{HEADER}: {field}", shown(header[field]), repr(wanted))
    if header["metric"] not in METRICS or not isinstance(header["metric"], str):
        raise DmlError(_LOAD, f"{HEADER}: metric", shown(header["metric"]), ", ".join(map(repr, METRICS)))
    return header["metric"], _parse_tensors(header["arrays"], header["metric"])


def _parse_tensors(arrays: Any, metric: str) -> dict[str, Tensor]:
    """Return the arrays of a header, or refuse those that do not fit one another."""
    if not isinstance(arrays, dict) or "vectors" not in arrays or not arrays.keys() <= _ARRAY_TYPES.keys():
        raise DmlError(_LOAD, f"{HEADER}: arrays", shown(arrays), f"vectors, and some of {', '.join(_ARRAY_TYPES)}")
    tensors = {name: _parse_tensor(name, each) for name, each in arrays.items()}
    shape = tensors["vectors"].shape
    if len(shape) != 2:
        raise DmlError(_LOAD, f"{HEADER}: vectors", str(shape), "two sizes")
    shapes = {"vectors": shape, "floats": shape, "ranges": (2, shape[1])}
    for name, tensor in tensors.items():
        wanted = shapes.get(name, shape[:1])
        if tensor.shape != wanted:
            raise DmlError(_LOAD, f"{HEADER}: {name}", str(tensor.shape), f"{wanted}, as the vectors")
    if ("squares" in tensors) != (metric != "ip"):
        found = "there" if metric == "ip" else "missing"
        raise DmlError(_LOAD, f"{HEADER}: squares", found, "there unless metric is ip")
    if "squares" in tensors and (tensors["squares"].dtype == np.float64) != ("ranges" in tensors):
        raise DmlError(_LOAD, f"{HEADER}: squares", str(tensors["squares"].dtype), "float64 with ranges, else int32")
    if "scales" in tensors and ("ranges" in tensors or tensors["vectors"].dtype != np.int8):
        raise DmlError(_LOAD, f"{HEADER}: scales", "there", "none with ranges or vectors of uint8")
    return tensors


def _parse_tensor(name: str, described: Any) -> Tensor:
    """Return the type and shape of an array in a header."""
    field = f"{HEADER}: {name}"
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape"}:
        raise DmlError(_LOAD, field, shown(described), "an object with dtype and shape")
    if described["dtype"] not in _ARRAY_TYPES[name] or not isinstance(described["dtype"], str):
        raise DmlError(_LOAD, f"{field}.dtype", shown(described["dtype"]), ", ".join(_ARRAY_TYPES[name]))
    sizes = described["shape"]
    if not (isinstance(sizes, list) and all(type(size) is int and 0 <= size < 1 << 48 for size in sizes)):
        raise DmlError(_LOAD, f"{field}.shape", shown(sizes), "a list of sizes")
    return Tensor(tuple(sizes), np.dtype(described["dtype"]))


def _mapped_array(folder: str, name: str, tensor: Tensor) -> Array:
    """Return an array of an index, memory-mapped; refuse one that is not as its header says."""
    field = f"{name}.npy"
    try:
        array = mapped(_LOAD, field, os.path.join(folder, field))
    except FileNotFoundError:
        raise BindingError(_LOAD, field, "missing", "a file beside the header") from None
    if (array.shape, array.dtype) != (tensor.shape, tensor.dtype):
        wanted = f"{tensor.dtype} {tensor.shape}, as {HEADER} says"
        raise BindingError(_LOAD, field, f"{array.dtype} {array.shape}", wanted)
    return array


def mapped(operator: str, field: str, path: str | os.PathLike[str]) -> Array:
    """Return the array of a .npy file, memory-mapped, or refuse the file. Nothing of it is evaluated or unpickled.

    The file must be as long as its header says, in C order, and in the machine's byte order.
    """
    try:
        with open_file(path) as file:
            layout = read_header(file)
            check_size(size_of(file) - layout.offset, layout)
            shape, dtype = layout.tensor
            if layout.fortran and len(shape) > 1:
                raise FileError("an array in Fortran order", "an array in C order")
            if layout.swapped:
                raise FileError("elements in the other byte order", "the machine's byte order")
            return np.empty(shape, dtype) if 0 in shape else np.memmap(file, dtype, "r", layout.offset, shape)
    except FileError as error:
        raise BindingError(operator, field, f"{os.fspath(path)!r}: {error.found}", error.allowed) from None


def _check_numbers(stored: Stored) -> None:
    """Refuse numbers that no index has. The vectors themselves may be any bytes, and are not read."""
    for name in ("scales", "squares"):
        array = getattr(stored, name)
        if array is not None and not ((array >= 0) & (array < np.inf)).all():
            found = "with numbers that are negative or not finite"
            raise DmlError(_LOAD, f"{name}.npy", found, "finite numbers from 0 on")
    ids = stored.ids
    if ids is None or not ids.size:
        return
    if ids.min() < 0:
        raise DmlError(_LOAD, "ids.npy", str(ids.min()), "ids from 0 on")
    ordered = ids if (ids[1:] > ids[:-1]).all() else ids[stored.order]
    if (ordered[1:] == ordered[:-1]).any():
        raise DmlError(_LOAD, "ids.npy", "with an id twice", "different ids")
