"""zarr folders of version 3: one array, or a group of them. Read and written in regions by the library.

Folders of version 2 are not opened: their filters may unpickle.
"""

import contextlib
import math
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlcpu.batch.files.base import (
    FileError,
    FileSource,
    check_dtype,
    chosen,
    library,
    no_name,
    on_failure,
    pieces,
    refused,
    whole,
)
from dmlcpu.batch.files.remote import is_remote
from dmlcpu.batch.files.targets import ArraySink, Writer, make_folder, put_folder, remove, sync_folder
from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Region, Tensor

_ALLOWED = "a zarr folder of version 3"
_CHUNK = 4 << 20
_LARGE = 32 << 20  # chunks of more bytes count: each is decompressed as a whole, and copied
_AT_ONCE = 2 * _LARGE  # bytes of chunks that are read at the same time, if it is more than one
_MOST_AT_ONCE = 1024  # chunks: zarr has some kilobytes for each
_TYPES = [np.dtype(code) for code in "?" + np.typecodes["AllInteger"] + "efdFD"]


def open_source(path: str, name: str | None, dtype: str | None) -> FileSource:
    """Open an array of a zarr folder."""
    root = _opened(path)
    if not hasattr(root, "members"):
        no_name(name, "zarr's array")
        return _ZarrSource(root, dtype)
    members = _members(root, name if is_remote(path) else None)
    return _ZarrSource(members[chosen(name, sorted(members))], dtype)


def check(tensors: Mapping[str, Tensor]) -> None:
    """Refuse arrays that a zarr folder cannot hold."""
    library("zarr", "zarr")
    for tensor in tensors.values():
        if tensor.dtype not in _TYPES:
            raise FileError(f"elements of {tensor.dtype} for a zarr folder", "the types of numbers that NumPy has")


def create(target: str, tensors: Mapping[str, Tensor], token: str) -> Writer:
    """Begin a zarr folder: an array if there is one, otherwise a group."""
    return _ZarrWriter(target, tensors, token)


def _opened(path: str) -> Any:
    if os.path.exists(path) and not os.path.isdir(path):
        raise FileError("a file", _ALLOWED)
    place: Any
    if is_remote(path):
        zarr = library("zarr", "zarr")
        from dmlcpu.batch.files.remote_zarr import store_of

        place = store_of(path)
    else:
        os.scandir(path).close()  # the system's error, if it cannot be read
        zarr = library("zarr", "zarr")
        from dmlcpu.batch.files.bounded_zarr import Folder

        place = Folder(path)
    try:
        with refused(_ALLOWED):
            return zarr.open(place, mode="r", zarr_format=3)
    except FileNotFoundError:  # zarr raises it for a folder without zarr.json
        raise FileError("a folder without zarr.json", _ALLOWED) from None


def _members(group: Any, wanted: str | None) -> dict[str, Any]:
    """Return the arrays in a group, and in the groups within it; only the wanted one if it is there.

    A web server has no list of them. A group that a link leads to again is passed over.
    """
    from dmlcpu.batch.files.bounded_zarr import settled

    arrays: dict[str, Any] = {}
    groups, seen = [group], set()
    with refused(_ALLOWED), settled():
        if wanted is not None and wanted in group and hasattr(group[wanted], "chunks"):
            return {wanted: group[wanted]}
        while groups:
            each = groups.pop()
            folder = os.path.realpath(os.path.join(getattr(each.store, "root", ""), each.path))
            if folder in seen:
                continue
            seen.add(folder)
            members = [member for _, member in each.members()]
            arrays |= {member.path: member for member in members if hasattr(member, "chunks")}
            groups += [member for member in members if not hasattr(member, "chunks")]
    return arrays


class _ZarrSource(FileSource):
    def __init__(self, array: Any, dtype: str | None) -> None:
        check_dtype(array.dtype)
        super().__init__(Tensor(tuple(array.shape), array.dtype.newbyteorder("=")), dtype)
        from dmlcpu.batch.files.bounded_zarr import bounded

        with refused(_ALLOWED):
            self._array, most = bounded(array)
        self._reading = threading.Lock()  # one region at a time: zarr takes more memory for each
        shards, chunks = array.shards or array.chunks, array.chunks
        chunk = math.prod(chunks) * self.dtype.itemsize  # within shards, which are not read as a whole unless small
        index = 16 * math.prod(shards) // max(1, math.prod(chunks)) if array.shards else 0  # of a shard
        self.buffer_bytes = sum(2 * nbytes for nbytes in (chunk, index) if nbytes > _LARGE)
        self._grid = tuple(max(1, size) for size in (shards if most <= _AT_ONCE else chunks))
        self._at_once = min(max(1, _AT_ONCE // (math.prod(self._grid) * self.dtype.itemsize)), _MOST_AT_ONCE)

    def read(self, region: Region | None = None, into: Array | None = None) -> Array:
        region = whole(self.shape) if region is None else region
        first, _ = next(pieces(region, self._grid, self._at_once), (None, None))
        if into is None and first == region:
            return self._part(region)  # without a copy
        return super().read(region, into)

    def _fill(self, array: Array, region: Region) -> None:
        for piece, place in pieces(region, self._grid, self._at_once):
            array[place] = self._part(piece)

    def missing_chunks(self) -> int | None:
        from dmlcpu.batch.files.bounded_zarr import missing_chunks, settled

        with refused(_ALLOWED), settled():
            return missing_chunks(self._array) if self.nbytes else 0

    def _part(self, region: Region) -> Array:
        """Return the elements of a region that has few chunks."""
        from dmlcpu.batch.files.bounded_zarr import settled

        with self._reading, refused(_ALLOWED), settled():
            part = np.asarray(self._array[region])
        return np.ascontiguousarray(part, part.dtype.newbyteorder("=")).reshape(part.shape).view(self.dtype)


class _ZarrWriter(Writer):
    def __init__(self, target: str, tensors: Mapping[str, Tensor], token: str) -> None:
        super().__init__(target, token)
        make_folder(self.folder)
        os.mkdir(self._temporary)
        with on_failure(self.discard):
            self.sinks = self._create(tensors)

    def _create(self, tensors: Mapping[str, Tensor]) -> dict[str, ArraySink]:
        zarr = library("zarr", "zarr")
        group = len(tensors) != 1
        if group:
            zarr.create_group(self._temporary, zarr_format=3)
        sinks = {}
        for name, (shape, dtype) in tensors.items():
            within = {"name": name if group else None, "chunks": _chunks(tensors[name]), "zarr_format": 3}
            sinks[name] = ArraySink(zarr.create_array(self._temporary, shape=shape, dtype=dtype, **within), dtype)
        return sinks

    def finish(self) -> None:
        for folder, _, files in os.walk(self._temporary):
            for name in files:
                with open(os.path.join(folder, name), "rb+") as file:
                    os.fsync(file.fileno())
            sync_folder(folder)

    def put_in_place(self) -> None:
        """Replace the target by the new folder."""
        put_folder(self._temporary, self._target)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            remove(self._temporary)


def _chunks(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape of the chunks: whole rows, as most regions have, unless they are too long."""
    left = _CHUNK // tensor.dtype.itemsize
    chunks = []
    for size in reversed(tensor.shape):
        chunks.append(max(1, min(size, left)))
        left //= chunks[-1]
    return tuple(reversed(chunks))
