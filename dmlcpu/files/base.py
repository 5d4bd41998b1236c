"""Shared by all formats: the error, the source that each of them opens, checks of types and names."""

import errno
import io
import itertools
import math
import os
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array, named
from dmlcpu.common.block_reader import extent
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.imports import optional
from dmlcpu.common.regions import Region, Tensor

MOST_NAMES, _LONGEST = 20, 80  # names that a message has, and characters of each
ZARR_FOLDER = "a zarr folder of version 3"  # what errors say is allowed; here, as two modules raise them


class FileError(ValueError):
    """A file is not what its format says, or lacks an array. What the system refuses stays an OSError."""

    def __init__(self, found: str, allowed: str) -> None:
        super().__init__(found, allowed)  # args: the error pickles
        self.found = found
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.found}; allowed: {self.allowed}"


class FileSource(AbstractContextManager["FileSource", None], ABC):
    """An array in a file: a `Source`, and a context manager that closes the file.

    `shape`, `dtype` and `nbytes` describe the array that `read` returns; `whole` is its region. `stored` describes the
    file's, in native byte order; `dtype` names a type of the same width, to see the elements as.
    """

    in_regions = True  # False: `read` of a region reads the whole array
    folder: str | os.PathLike[str] | None = None  # that is open, of this machine, wherever its path leads by now
    buffer_bytes = 0  # memory that `read` of a small region takes on top of its result, if that is much

    def __init__(self, stored: Tensor, dtype: str | None, *opened: Any) -> None:
        check_shape(stored)
        self.shape, self.dtype, self.nbytes = stored.shape, stored.dtype, stored.nbytes
        self._stored = stored.dtype
        self.whole = whole(stored.shape)
        self._opened = opened  # what is closed with the source
        if dtype is None:
            return
        if dtype not in DATA_TYPES:
            raise FileError(f"the dtype {dtype!r}", ", ".join(DATA_TYPES))
        self.dtype = named(dtype)
        if self.dtype.itemsize != stored.dtype.itemsize:
            found, allowed = f"elements of {stored.dtype}, seen as {dtype}", f"a type of {stored.dtype.itemsize} bytes"
            raise FileError(found, allowed)

    def read(self, region: Region | None = None, into: Array | None = None) -> Array:
        """Return the elements of a region, by default all, in C order; `into`: an array of that shape to use."""
        region = self.whole if region is None else region
        shape = extent(region)
        if into is None:
            into = np.empty(shape, self.dtype)
        elif into.shape != shape or into.dtype != self.dtype or not into.flags.c_contiguous:
            raise TypeError(f"into is of {into.dtype}, shape {into.shape}; allowed: {self.dtype}, {shape}, in C order")
        self._fill(into.view(self._stored), region)
        return into

    @abstractmethod
    def _fill(self, array: Array, region: Region) -> None:
        """Read the elements of a region into an array in C order, of the type that the file has."""

    def missing_chunks(self) -> int | None:
        """Count the parts of the array that the file lacks, which are read as one value; None if that is not known."""
        return 0

    def identity(self) -> dict[str, Any] | None:
        """Return the `identity` of the file that is open, wherever its path leads by now; None: it is remote."""
        for each in self._opened:
            if isinstance(each, io.FileIO):
                return identity_of(os.stat(each.fileno()))
        return None

    def close(self) -> None:
        """Close the file; arrays that were read stay."""
        for each in self._opened:
            each.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@dataclass(frozen=True)
class Format:
    """A file format: the names of its files, what it can do, and the functions that do it."""

    suffixes: tuple[str, ...]
    open_source: Callable[[str, str | None, str | None], FileSource]  # of a path, an array's name, a data type
    check: Callable[[Mapping[str, Tensor]], None] | None = None  # refuses arrays that it cannot hold; None: not written
    create: Callable[[str, Mapping[str, Tensor], str], Any] | None = None  # begins a file that is written in regions
    save: Callable[[Any, Mapping[str, Array]], None] | None = None  # writes a file of arrays in memory
    copies: int = 0  # of the arrays that are in memory while a file is written, at most (measured)
    holds_one: bool = False  # one array, without a name
    is_remote: bool = False  # also read from remote file systems
    mark: str | None = None  # the file that makes a folder one of this format; None: it has files, no folders


def identity_of(*states: os.stat_result) -> dict[str, Any]:
    """Return what differs if a file, or one of several, has another state."""
    size = mtime = ctime = 0
    for each in states:
        size += each.st_size if stat.S_ISREG(each.st_mode) else 0
        mtime += each.st_mtime_ns  # not the latest: it may be one of the future, that hides others
        ctime += each.st_ctime_ns
    return {"size": size, "mtime_ns": mtime, "ctime_ns": ctime}


def whole(shape: Sequence[int]) -> Region:
    """Return the region that is all of an array."""
    return tuple(slice(0, size) for size in shape)


def pieces(region: Region, chunks: Sequence[int], most: int) -> Iterator[tuple[Region, Region]]:
    """Cut a region into pieces, each of at most `most` chunks; yield each piece, and its place in the region."""
    axes: list[list[slice]] = []
    for part, size in zip(reversed(region), reversed(chunks), strict=True):
        first = part.start // size * size
        step = size * max(1, min(-(-(part.stop - first) // size), most))
        most //= step // size
        axes.append([slice(max(at, part.start), min(at + step, part.stop)) for at in range(first, part.stop, step)])
    for piece in itertools.product(*reversed(axes)):
        pairs = zip(piece, region, strict=True)
        yield piece, tuple(slice(part.start - along.start, part.stop - along.start) for part, along in pairs)


def check_shape(stored: Tensor) -> None:
    """Refuse an array that memory cannot address. As for NumPy, the other sizes count even if one is 0."""
    if math.prod(size or 1 for size in stored.shape) * stored.dtype.itemsize > sys.maxsize:
        raise FileError(f"the shape {stored.shape}", "an array that memory can address")


def check_dtype(dtype: np.dtype[Any]) -> None:
    """Refuse elements that are not plain bytes of one fixed size."""
    if dtype.hasobject or dtype.kind in "OT":
        raise FileError("Python objects", "elements of fixed size (nothing is unpickled)")
    if dtype.names is not None or dtype.subdtype is not None or not dtype.itemsize:
        raise FileError(f"elements of the type {dtype}", "numbers (no structured types)")


def chosen(name: str | None, names: list[str]) -> str:
    """Return which of a file's arrays is meant."""
    if not names:
        raise FileError("a file without arrays", "a file that holds one")
    if name is None and len(names) == 1:
        return names[0]
    if name is None:
        raise FileError(f"a file of {len(names):,} arrays and no name", f"a name: {first_of(names)}")
    if name not in names:
        raise FileError(f"the name {name!r}", first_of(names))
    return name


def first_of(names: Iterable[str]) -> str:
    """Write the first names of a file's arrays, which may be many and long, and "..." for more."""
    first = [
        name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
        for name in itertools.islice(names, MOST_NAMES + 1)
    ]
    return ", ".join([*first[:MOST_NAMES], *(["..."] if len(first) > MOST_NAMES else [])])


def no_name(name: str | None, suffix: str) -> None:
    """Refuse a name for a file whose one array has none."""
    if name is not None:
        raise FileError(f"the name {name!r}", f"none ({suffix} files hold one array)")


def only_array(tensors: Mapping[str, Tensor], suffix: str) -> Tensor:
    """Return the only array for a format that holds one."""
    if len(tensors) != 1:
        raise FileError(f"{len(tensors)} arrays for a {suffix} file", "1 (other formats hold several)")
    [tensor] = tensors.values()
    return tensor


def library(module: str, extra: str) -> ModuleType:
    """Import a library that an extra of the package installs."""
    return optional(module, f"{extra} files need", extra)


def check_block(region: Region, block: Array, dtype: np.dtype[Any]) -> None:
    """Refuse a block that does not fit its region."""
    shape = extent(region)
    if block.shape != shape or block.dtype != dtype:
        raise TypeError(f"a block of {block.dtype}, shape {block.shape}; allowed: {dtype}, {shape}")


@contextmanager
def refused(allowed: str) -> Iterator[None]:
    """Turn a library's exceptions for broken files, which may be any, into `FileError`."""
    try:
        yield
    except (FileError, ImportError, MemoryError):
        raise
    except Exception as error:
        is_hdf5s = type(error) is OSError and error.errno is None  # h5py's
        if isinstance(error, OSError) and error.errno != errno.EINVAL and not is_hdf5s:  # EINVAL: of broken offsets
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FileError(f"unreadable data ({reason})", allowed) from None
