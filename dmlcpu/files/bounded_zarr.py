"""zarr folders that may hold anything: only regular files are read, and no chunk is longer than its shape says.

Those that are written are new. This module imports zarr.
"""

import asyncio
import functools
import math
import operator
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zarr
from zarr.abc.codec import ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.abc.store import ByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.codecs import BytesCodec, ShardingCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import collect_aiterator, sync
from zarr.storage import FsspecStore, LocalStore, StorePath

from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Region, Tensor
from dmlcpu.files.base import ZARR_FOLDER, FileError, FileSource, check_dtype, chosen, no_name, pieces, refused
from dmlcpu.files.remote import file_system, is_remote, is_web, options_of, reached
from dmlcpu.files.stored import open_file, read_at, size_of
from dmlcpu.files.targets import ArraySink
from dmlcpu.files.unpacking import CODECS, longer, unpack

METADATA = 16 << 20  # bytes of a zarr.json, at most
_OF_VERSION_2 = (".zarray", ".zgroup")  # files in folders of version 2, whose filters may unpickle
_LARGE = 32 << 20  # chunks of more bytes count: each is decompressed as a whole, and copied
_AT_ONCE = 2 * _LARGE  # bytes of chunks that are read at the same time, if it is more than one
_MOST_AT_ONCE = 1024  # chunks: zarr has some kilobytes for each
_settling = threading.Lock()  # two that wait for all others would wait for each other


class _Limited:
    """A store of which at most `most` bytes of a file are read, and `most_of_range` of a range of it."""

    most = most_of_range = METADATA


class _Folder(_Limited, LocalStore):
    """A folder of regular files, or links to them."""

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        return await asyncio.to_thread(self.get_sync, key, prototype=prototype, byte_range=byte_range)

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        try:
            with open_file(self.root / key) as file:
                whole, most = size_of(file), self.most_of_range if byte_range else self.most
                part: Any = byte_range or RangeByteRequest(0, whole)  # zarr asks for none that has no end
                if isinstance(part, SuffixByteRequest):
                    part = RangeByteRequest(max(0, whole - part.suffix), whole)
                size = max(0, min(part.end, whole) - part.start)
                if size > most:
                    raise FileError(f"{size:,} bytes", f"at most {most:,}")
                data = np.empty(size, np.uint8)
                read_at(file, part.start, data)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        except FileError as error:
            raise FileError(f"{key!r}: {error.found}", error.allowed) from None
        return (prototype or default_buffer_prototype()).buffer.from_array_like(data)


class _RemoteFolder(_Limited, FsspecStore):
    """A folder of a remote file system."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        most = self.most_of_range if byte_range else self.most
        part: Any = byte_range or RangeByteRequest(0, most + 1)
        size = part.suffix if isinstance(part, SuffixByteRequest) else part.end - part.start
        with reached():
            found = await super().get(key, prototype, part) if size <= most + 1 else None
        if byte_range and found is not None and len(found) > size:
            raise FileError(f"all of {key}, where {size:,} bytes were requested", "a server that sends parts of files")
        if size > most + 1 or (found is not None and len(found) > most):
            raise FileError(f"{key}, which has more than {most:,} bytes", "what the shape of the chunks needs")
        return found


def open_array(path: str, name: str | None, dtype: str | None) -> FileSource:
    """Open the array of a zarr folder, or one of its group."""
    store: Any = None
    if is_remote(path):
        file_system(path)  # which says what is not installed
        with reached():
            store = _RemoteFolder.from_url(path, storage_options=options_of(path), read_only=True)
        store.supports_listing = not is_web(path)
    else:
        store = _Folder(os.path.realpath(path), read_only=True)  # one folder, wherever links lead meanwhile
    try:
        with refused(ZARR_FOLDER):
            root: Any = zarr.open(store, mode="r", zarr_format=3)
    except FileNotFoundError:  # zarr raises it for a folder without zarr.json
        is_older = not is_remote(path) and any(os.path.exists(os.path.join(path, name)) for name in _OF_VERSION_2)
        raise FileError("one of version 2" if is_older else "a folder without zarr.json", ZARR_FOLDER) from None
    if not hasattr(root, "members"):
        no_name(name, "zarr's array")
        return _ZarrSource(root, dtype)
    members = _members(root, name if is_remote(path) else None)  # a web server has no list of them
    return _ZarrSource(members[chosen(name, sorted(members))], dtype)


def _members(group: Any, wanted: str | None) -> dict[str, Any]:
    """Return the arrays in a group, and in the groups within it; only the wanted one, if it exists."""
    arrays: dict[str, Any] = {}
    groups, seen = [group], set()
    with refused(ZARR_FOLDER), _settled():
        if wanted is not None and wanted in group and hasattr(group[wanted], "chunks"):
            return {wanted: group[wanted]}
        while groups:
            each = groups.pop()
            folder = os.path.realpath(os.path.join(getattr(each.store, "root", ""), each.path))
            if folder in seen:  # a link leads to it
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
        with refused(ZARR_FOLDER):
            self._array = _bounded_array(array)
        self.folder = getattr(array.store, "root", None)
        self._reading = threading.Lock()  # one region at a time: zarr takes more memory for each
        shards, chunks = array.shards or array.chunks, array.chunks
        chunk = math.prod(chunks) * self.dtype.itemsize  # within shards, which are not read as a whole unless small
        index = 16 * math.prod(shards) // max(1, math.prod(chunks)) if array.shards else 0  # of a shard
        self.buffer_bytes = sum(2 * nbytes for nbytes in (chunk, index) if nbytes > _LARGE)
        self._grid = tuple(max(1, size) for size in (shards if array.store.most <= _AT_ONCE else chunks))
        self._at_once = min(max(1, _AT_ONCE // (math.prod(self._grid) * self.dtype.itemsize)), _MOST_AT_ONCE)

    def _fill(self, array: Array, region: Region) -> None:
        buffer = default_buffer_prototype().nd_buffer
        with self._reading, refused(ZARR_FOLDER), _settled():
            for piece, place in pieces(region, self._grid, self._at_once):
                part: Any = array[place] if place else array  # an array, and no scalar
                self._array.get_basic_selection(piece, out=buffer.from_ndarray_like(part))

    def missing_chunks(self) -> int | None:
        """Count the chunks, or shards, that have no file; None if the store has no list of files."""
        array, there = self._array, 0
        if not self.nbytes:
            return 0
        if not array.store.supports_listing:
            return None
        grid = [-(-size // chunk) for size, chunk in zip(array.shape, array.shards or array.chunks, strict=True)]
        before = f"{array.path}/" if array.path else ""
        with refused(ZARR_FOLDER), _settled():
            for key in collect_aiterator(array.store.list_prefix(array.path)):
                place = tuple(map(int, re.findall("[0-9]+", key.removeprefix(before))))[: array.ndim]
                is_within = len(place) == array.ndim and all(map(operator.lt, place, grid))
                there += is_within and key == before + array.metadata.encode_chunk_key(place)
        return int(math.prod(grid) - there)


class ZarrSink(ArraySink):
    """An array of zarr's that is written by regions. After an error nothing more is written."""

    def write(self, region: Region, block: Array) -> None:
        """Write the elements of a region."""
        with _settled():
            super().write(region, block)


@contextmanager
def _settled() -> Iterator[None]:
    """Raise errors of zarr's once it has no task any more: these would go on, and asyncio would report them at exit."""
    try:
        yield
    except Exception:
        with _settling:
            sync(_others())
        raise


async def _others() -> None:
    """Wait for what else runs in zarr's event loop."""
    if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(tasks)


def _bounded_array(array: Any) -> Any:
    """Return an array that refuses what is longer than its shape says."""
    metadata = array.metadata
    chunk = metadata.get_chunk_spec((0,) * array.ndim, ArrayConfig.from_dict({}), default_buffer_prototype())
    if 0 in chunk.shape and array.size:
        raise FileError(f"chunks of the shape {chunk.shape}", "sizes of at least 1")
    codecs, array.store.most, array.store.most_of_range = _bounded(metadata.codecs, chunk)
    return zarr.Array(zarr.AsyncArray(replace(metadata, codecs=codecs), StorePath(array.store, array.path)))


def _bounded(codecs: Iterable[Codec], chunk: ArraySpec) -> tuple[tuple[Codec, ...], int, int]:
    """Return codecs that unpack no more than a chunk; and how many bytes of a file, and in a range, may be read."""
    found: list[Codec] = []
    most = most_of_range = 0
    exact = False
    for codec in codecs:
        after = codec.resolve_metadata(chunk)
        if isinstance(codec, ShardingCodec):
            inner, most_inner, _ = _bounded(codec.codecs, replace(chunk, shape=codec.chunk_shape))
            count = math.prod(chunk.shape) // math.prod(codec.chunk_shape)
            most_of_range = max(most_inner, longer(16 * count))  # the latter is the index
            most = 2 * (count * most_inner + longer(16 * count))  # some writers leave chunks that they have replaced
            codec = replace(codec, codecs=inner)
        elif isinstance(codec, ArrayBytesCodec):
            exact = isinstance(codec, BytesCodec)
            dtype: Any = chunk.dtype if isinstance(chunk.dtype, np.dtype) else chunk.dtype.to_native_dtype()
            most = math.prod(chunk.shape) * dtype.itemsize
            most = most if exact else longer(most)
        elif isinstance(codec, BytesBytesCodec):
            members: Any = codec.to_dict()
            name = members["name"].removeprefix("numcodecs.")
            if name in CODECS:  # others, of other packages, stay as they are
                options = members.get("configuration", {})
                codec = _Bounded(functools.partial(unpack, name, most=most, exact=exact, options=options))
            most, exact = longer(most), False
        found.append(codec)
        chunk = after
    return tuple(found), most, most_of_range


@dataclass(frozen=True)
class _Bounded(BytesBytesCodec):
    """A codec that unpacks no more than some bytes, by a call of `unpack`."""

    unpacked: Callable[[Array], Any]

    is_fixed_size = False

    def compute_encoded_size(self, _input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        raise NotImplementedError  # as of all codecs whose output has no fixed size

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        unpacked = await asyncio.to_thread(self.unpacked, chunk_data.as_numpy_array())
        return chunk_spec.prototype.buffer.from_array_like(np.frombuffer(unpacked, np.uint8))
