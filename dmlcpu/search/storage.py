"""Indices on disk: a folder with a .npy file for each array, and a header in JSON.

A folder is written next to its target and takes its name in one step. What is read is checked before it is used: the
header has a fixed form, and names no paths; each file has the type, the shape and the length that the header says.
"""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.data_types import BYTE_TYPES
from dmlcpu.common.faults import shown
from dmlcpu.common.regions import Tensor
from dmlcpu.errors import BindingError, DmlError
from dmlcpu.files import Writer, create
from dmlcpu.files.base import FileError, whole
from dmlcpu.files.folders import FolderWriter, is_held, remove
from dmlcpu.files.formats import INDEX_HEADER as HEADER
from dmlcpu.files.npy import check_size, read_header
from dmlcpu.files.stored import open_file, size_of
from dmlcpu.files.targets import stray, sync_folder
from dmlcpu.search.codes import MOST_EXPONENT, Frame
from dmlcpu.search.spaces import METRICS, check_depth, space_of
from dmlcpu.search.vectors import Limits, Stored

PREFIX, VERSION = "dmlcpu.search.", 1  # of the format's name, before the class
_LONGEST_HEADER = 1 << 16
_CHECKED = (
    1 << 18
)  # numbers that are checked at once: a file may have gaps, and take no space for what it seems to hold
# The arrays of an index, and the types that each may have.
_KEPT = ("float32", "float16", "float64")
_ARRAY_TYPES: dict[str, dict[str, tuple[str, ...]]] = {
    "Int8Index": {
        "vectors": BYTE_TYPES,
        "scales": ("float32",),
        "squares": ("int32", "float64"),
        "ids": ("int64",),
        "floats": _KEPT,
        "ranges": ("float32",),
    },
    "FloatIndex": {
        "vectors": ("int8",),
        "scales": ("float32",),
        "squares": ("float64",),
        "ids": ("int64",),
        "floats": _KEPT,
        "bias": ("float32",),
        "centre": ("float64",),
        "limits": ("float64",),  # the factor of the codes, and the bounds of all vectors
    },
}
FILES = (HEADER, *sorted({f"{array}.npy" for arrays in _ARRAY_TYPES.values() for array in arrays}))
_NEEDED = {"Int8Index": {"vectors"}, "FloatIndex": {"vectors", "scales", "floats", "bias", "centre", "limits"}}


class IndexWriter(FolderWriter):
    """A writer of an index: `begin` says what it is, `write_rows` takes it; what it replaces has to be an index."""

    def __init__(self, target: str, token: str) -> None:
        super().__init__(target, token)
        self._token = token
        self._files: dict[str, Writer] = {}
        self._header: tuple[str, str, Mapping[str, Tensor]]

    def begin(self, name: str, metric: str, tensors: Mapping[str, Tensor]) -> None:
        """Begin the files of an index of a class."""
        self._header = name, metric, tensors
        for array, tensor in tensors.items():
            file = os.path.join(self._temporary, f"{array}.npy")
            self._files[array] = create(file, {array: tensor}, self._token)

    def write_rows(self, array: str, rows: Array, start: int) -> None:
        """Write rows of an array, from a place on."""
        region = (slice(start, start + len(rows)), *whole(rows.shape[1:]))
        self._files[array].sinks[array].write(region, np.ascontiguousarray(rows))

    def finish(self) -> None:
        """Have it all on the disk, under the temporary name."""
        for writer in self._files.values():
            writer.finish()
            writer.put_in_place()
        _write_header(self._temporary, *self._header)
        self._needed = (HEADER, *(f"{array}.npy" for array in self._files))

    def discard(self) -> None:
        """Remove the temporary folder."""
        for writer in self._files.values():
            writer.discard()
        super().discard()


@contextlib.contextmanager
def new_index(path: str | os.PathLike[str], name: str) -> Iterator[IndexWriter]:
    """Create an index of a class on disk; it replaces an older one.

    At the end the index is in place; after an exception all is as it was.
    """
    target = target_of(path, f"{name}.save")
    try:
        writer = IndexWriter(target, os.urandom(6).hex())
        with OnFailure(writer.discard):
            for left in stray([writer.folder], lambda file: file == target) if writer.held is not None else ():
                if not is_held(left):  # of a process that was killed
                    remove(left)
            yield writer
            writer.finish()
            writer.put_in_place()
        sync_folder(writer.folder)
    except OSError as error:
        if error.errno is not None:
            error.filename = target  # a full disk names no file, and others a temporary one
        raise


def own_arrays(space: Any, limits: Limits) -> dict[str, Array]:
    """Return the arrays of an index that have no row for each vector."""
    if isinstance(space, Frame):
        return {"centre": space.centre, "limits": np.array([space.factor, *limits])}
    return {} if space.ranges is None else {"ranges": space.ranges}


def _write_header(folder: str, name: str, metric: str, tensors: Mapping[str, Tensor]) -> None:
    arrays = {array: {"dtype": each.dtype.name, "shape": list(each.shape)} for array, each in tensors.items()}
    header = {"format": PREFIX + name, "version": VERSION, "metric": metric, "arrays": arrays}
    with open(os.path.join(folder, HEADER), "x", encoding="utf-8") as file:
        json.dump(header, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def as_path(operator: str, path: Any) -> str:
    """Return a path as text, or refuse what is none."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"{operator}: path is {path!r}; allowed: the path of a folder")
    return os.fsdecode(path)


def target_of(path: str | os.PathLike[str], operator: str) -> str:
    """Return the folder of a new index, with links resolved; refuse one with anything but an index in it."""
    given, allowed = as_path(operator, path), "an index, an empty folder, or nothing"
    if not given:
        raise DmlError(operator, "path", "''", "the path of a folder")
    target = os.path.realpath(given)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return target
    if not stat.S_ISDIR(mode):
        raise DmlError(operator, "path", f"{given!r}, a file", allowed)
    names = set(os.listdir(target))
    if names.difference(FILES):
        raise DmlError(operator, "path", f"{given!r}, a folder of other files", allowed)
    if names:
        try:
            _read_header(target, operator, tuple(_ARRAY_TYPES))
        except DmlError as error:
            raise DmlError(operator, "path", f"{given!r}, whose {error.field} is {error.found}", allowed) from None
    return target


def save(path: str | os.PathLike[str], name: str, space: Any, stored: Stored) -> None:
    """Write an index of a class."""
    arrays = {**stored.arrays(), **own_arrays(stored.frame or space, stored.limits)}
    tensors = {array: Tensor(each.shape, each.dtype) for array, each in arrays.items()}
    with new_index(path, name) as index:
        index.begin(name, space.metric, tensors)
        for array, numbers in arrays.items():
            index.write_rows(array, numbers, 0)


def load(path: str | os.PathLike[str], *names: str) -> tuple[str, Any, Stored]:
    """Return the class of a saved index, its space and its vectors, memory-mapped, or refuse the folder.

    names: the classes that it may be of. It is read again if another index has taken its place meanwhile.
    """
    folder = as_path(f"{names[0]}.load", path)
    while True:
        before = _state(folder, names[0])
        try:
            found = _load(folder, names)
        except (DmlError, FileNotFoundError):
            if _state(folder, names[0]) == before:
                raise
        else:
            if _state(folder, names[0]) == before:
                return found


def _state(folder: str, name: str) -> tuple[int, ...]:
    """Return what is another number once another folder has this name. name: of the class, for messages."""
    try:
        status = os.stat(folder)
    except FileNotFoundError:
        wanted = f"{name}.load: no such folder; allowed: a folder that {name}.save wrote"
        raise FileNotFoundError(errno.ENOENT, wanted, folder) from None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _load(folder: str, names: tuple[str, ...]) -> tuple[str, Any, Stored]:
    operator = f"{names[0]}.load"
    name, metric, tensors = _read_header(folder, operator, names)
    arrays = {array: _mapped_array(folder, operator, array, tensor) for array, tensor in tensors.items()}
    space: Any
    if name == "FloatIndex":
        check_depth(operator, tensors["vectors"].shape[1])
        space, limits = _frame(operator, metric, arrays.pop("centre"), arrays.pop("limits"))
        if not all((block > -np.inf).all() for block in _blocks(arrays["bias"])):
            raise DmlError(operator, "bias.npy", "with NaN or -inf", "numbers, or inf")
        others: dict[str, Any] = {"limits": limits, "frame": space}
    else:
        space, others = space_of(operator, metric, tensors["vectors"], arrays.pop("ranges", None)), {}
    stored = Stored(**{**others, **arrays})
    for array in ("scales", "squares"):
        if array in arrays:
            _checked(operator, array, arrays[array])
    if stored.ids is not None and stored.ids.size:
        _check_ids(operator, stored, stored.ids)
    return name, space, stored


def _read_header(folder: str, operator: str, names: tuple[str, ...]) -> tuple[str, Any, dict[str, Tensor]]:
    """Return the class, the metric and the arrays that a header lists, or refuse it. names: the classes allowed."""
    try:
        os.scandir(folder).close()  # the system's error, if it cannot be read
    except NotADirectoryError:
        raise DmlError(
            operator, "path", f"{folder!r}, a file and no index", f"a folder that {names[0]}.save wrote"
        ) from None
    path = os.path.join(folder, HEADER)
    try:
        with open_file(path) as file:
            text = file.read(_LONGEST_HEADER + 1) or b""
        header = json.loads(text.decode()) if len(text) <= _LONGEST_HEADER else None
    except FileNotFoundError:
        wanted = f"a folder that {names[0]}.save wrote ({folder!r} is none)"
        raise DmlError(operator, HEADER, "missing", wanted) from None
    except (FileError, ValueError, RecursionError) as error:
        found = f"not readable ({' '.join(str(error).split()):.200})"
        raise DmlError(operator, HEADER, found, "a header in JSON") from None
    if not isinstance(header, dict) or header.keys() != {"format", "version", "metric", "arrays"}:
        found = f"an object with {shown(', '.join(header))}" if isinstance(header, dict) else shown(header)
        raise DmlError(operator, HEADER, found, "an object with format, version, metric and arrays")
    formats = {PREFIX + name: name for name in names}
    allowed: dict[str, tuple[Any, ...]] = {"format": tuple(formats), "version": (VERSION,), "metric": METRICS}
    for field, values in allowed.items():
        value = header[field]
        if not isinstance(value, str | int) or isinstance(value, bool) or value not in values:
            raise DmlError(operator, f"{HEADER}: {field}", shown(value), ", ".join(map(repr, values)))
    name = formats[header["format"]]
    return name, header["metric"], _parse_tensors(operator, name, header["arrays"], header["metric"])


def _parse_tensors(operator: str, name: str, arrays: Any, metric: str) -> dict[str, Tensor]:
    """Return the arrays of a header, or refuse those that do not fit one another."""
    types, needed = _ARRAY_TYPES[name], _NEEDED[name]
    if not isinstance(arrays, dict) or not needed <= arrays.keys() <= types.keys():
        allowed = f"{', '.join(sorted(needed))}, and some of {', '.join(types)}"
        raise DmlError(operator, f"{HEADER}: arrays", shown(arrays), allowed)
    tensors = {array: _parse_tensor(operator, array, each, types[array]) for array, each in arrays.items()}
    shape = tensors["vectors"].shape
    if len(shape) != 2:
        raise DmlError(operator, f"{HEADER}: vectors", str(shape), "two sizes")
    own = {"vectors": shape, "floats": shape, "ranges": (2, shape[1]), "centre": shape[1:], "limits": (4,)}
    for array, tensor in tensors.items():
        wanted = own.get(array, shape[:1])
        if tensor.shape != wanted:
            raise DmlError(operator, f"{HEADER}: {array}", str(tensor.shape), f"{wanted}, as the vectors")
    has_squares = metric == "cosine" or (name == "Int8Index" and metric == "l2")
    if ("squares" in tensors) != has_squares:
        found, allowed = ("missing", "there") if has_squares else ("there", "missing")
        raise DmlError(operator, f"{HEADER}: squares", found, f"{allowed}, as metric is {metric}")
    if name == "Int8Index":
        _check_bytes(operator, tensors)
    return tensors


def _check_bytes(operator: str, tensors: dict[str, Tensor]) -> None:
    """Refuse arrays of an Int8Index that do not fit one another."""
    if "squares" in tensors and (tensors["squares"].dtype == np.float64) != ("ranges" in tensors):
        found = str(tensors["squares"].dtype)
        raise DmlError(operator, f"{HEADER}: squares", found, "float64 with ranges, else int32")
    if "scales" in tensors and ("ranges" in tensors or tensors["vectors"].dtype != np.int8):
        raise DmlError(operator, f"{HEADER}: scales", "there", "none with ranges or vectors of uint8")


def _parse_tensor(operator: str, name: str, described: Any, types: tuple[str, ...]) -> Tensor:
    """Return the type and shape of an array in a header."""
    field = f"{HEADER}: {name}"
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape"}:
        raise DmlError(operator, field, shown(described), "an object with dtype and shape")
    if described["dtype"] not in types or not isinstance(described["dtype"], str):
        raise DmlError(operator, f"{field}.dtype", shown(described["dtype"]), ", ".join(types))
    sizes = described["shape"]
    if not (isinstance(sizes, list) and all(type(size) is int and 0 <= size < 1 << 48 for size in sizes)):
        raise DmlError(operator, f"{field}.shape", shown(sizes), "a list of sizes")
    return Tensor(tuple(sizes), np.dtype(described["dtype"]))


def _mapped_array(folder: str, operator: str, name: str, tensor: Tensor) -> Array:
    """Return an array of an index, memory-mapped; refuse one that is not as its header says."""
    field = f"{name}.npy"
    try:
        array = mapped(operator, field, os.path.join(folder, field))
    except FileNotFoundError:
        raise BindingError(operator, field, "missing", "a file next to the header") from None
    if (array.shape, array.dtype) != (tensor.shape, tensor.dtype):
        wanted = f"{tensor.dtype} {tensor.shape}, as {HEADER} says"
        raise BindingError(operator, field, f"{array.dtype} {array.shape}", wanted)
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
    except FileNotFoundError:
        wanted = f"{operator}: {field} names no file; allowed: a .npy file"
        raise FileNotFoundError(errno.ENOENT, wanted, os.fspath(path)) from None
    except FileError as error:
        raise BindingError(operator, field, f"{os.fspath(path)!r}: {error.found}", error.allowed) from None


def _blocks(array: Array) -> Iterator[Array]:
    """Yield an array in parts, each of which begins with the last number of the one before."""
    for start in range(0, len(array), _CHECKED):
        yield array[max(0, start - 1) : start + _CHECKED]


def _checked(operator: str, name: str, array: Array) -> Array:
    """Return an array of an index, or refuse numbers that none has. Vectors may be any bytes, and are not read."""
    if not all(((block >= 0) & (block < np.inf)).all() for block in _blocks(array)):
        found = "with numbers that are negative or not finite"
        raise DmlError(operator, f"{name}.npy", found, "finite numbers from 0 on")
    return array


def _frame(operator: str, metric: Any, centre: Array, numbers: Array) -> tuple[Frame, Limits]:
    """Return how floats of an index were encoded, or refuse numbers that none has."""
    factor, *limits = _checked(operator, "limits", numbers).tolist()
    if np.frexp(factor)[0] != 0.5 or not 2.0**-MOST_EXPONENT <= factor <= 2.0**MOST_EXPONENT:
        raise DmlError(
            operator, "limits.npy", str(factor), f"a power of two, 2**-{MOST_EXPONENT} to 2**{MOST_EXPONENT}"
        )
    most = float(np.finfo(np.float32).max)
    if not (np.abs(centre) <= most).all():
        raise DmlError(
            operator, "centre.npy", "with numbers that are too great or not finite", f"numbers up to {most:g}"
        )
    return Frame(metric, np.array(centre), factor), Limits(*limits)


def _check_ids(operator: str, stored: Stored, ids: Array) -> None:
    """Refuse ids that no index has."""
    if ids.min() < 0:
        raise DmlError(operator, "ids.npy", str(ids.min()), "ids from 0 on")
    ascending = all((block[1:] > block[:-1]).all() for block in _blocks(ids))
    twice = not ascending and any((block[1:] == block[:-1]).any() for block in _blocks(ids))  # as where a file has gaps
    if not ascending and not twice:
        ordered = ids[stored.order]
        twice = bool((ordered[1:] == ordered[:-1]).any())
    if twice:
        raise DmlError(operator, "ids.npy", "with an id twice", "different ids")
