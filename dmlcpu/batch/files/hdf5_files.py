"""HDF5 files: datasets by name, read in regions by h5py. They are not written.

A dataset has all of its elements in its own file: links, external storage and virtual datasets would open others.
"""

import itertools
import math
import sys
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from dmlcpu.batch.files.base import FileError, FileSource, check_dtype, library, refused
from dmlcpu.batch.files.stored import as_bytes, open_file
from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Region, Tensor

_ALLOWED = "an HDF5 file"
_GZIP, _SHUFFLE, _FLETCHER32, _LZF = 1, 2, 3, 32000  # HDF5's numbers of filters
_FILTERS = "no filter, gzip or lzf, shuffle, fletcher32 (h5repack -f GZIP=4 rewrites a file so)"
_EXPANDS = 88  # bytes that one of lzf unpacks to, at most
_BESIDE = 64  # bytes that a chunk may take beside its elements: checksums, gzip's own
_NAMES = 20  # that a message has, at most
_GROUPS = 10_000  # that are searched for names, at most


def open_source(path: str, name: str | None, dtype: str | None) -> FileSource:
    """Open a dataset of an HDF5 file."""
    h5py = library("h5py", "hdf5")
    open_file(path).close()  # the system's error, if it cannot be read
    with _refused():
        file = h5py.File(path, "r")
    try:
        with _refused():
            return _Hdf5Source(file, _dataset(h5py, file, name), dtype)
    except BaseException:
        file.close()
        raise


def check(tensors: Mapping[str, Tensor]) -> NoReturn:
    """Refuse to write."""
    raise FileError("an HDF5 file to write", "one to read")


@contextmanager
def _refused() -> Iterator[None]:
    """Turn h5py's exceptions for broken files into `FileError`; its OSErrors without a number are HDF5's own."""
    with refused(_ALLOWED):
        try:
            yield
        except OSError as error:
            if error.errno is None:
                raise ValueError(str(error)) from None
            raise


def _dataset(h5py: ModuleType, file: Any, name: str | None) -> Any:
    """Return the dataset of a name, or the only one of a file."""
    if name is None:
        names = _names(h5py, file)
        if len(names) != 1:
            found = "a file of several arrays and no name" if names else "a file without arrays"
            raise FileError(found, f"a name: {', '.join(names)}" if names else "a file that holds one")
        [name] = names
    found = file
    for part in filter(None, name.split("/")):
        link = found.get(part, getlink=True) if isinstance(found, h5py.Group) else None
        if link is None:
            raise FileError(f"the name {name!r}", ", ".join(_names(h5py, file)))
        if not isinstance(link, h5py.HardLink):
            raise FileError(f"the name {name!r}, which leads through a link", "the name that the dataset itself has")
        found = found[part]
    if not isinstance(found, h5py.Dataset):
        raise FileError(f"the name {name!r}, which is no array", ", ".join(_names(h5py, file)))
    return found


def _names(h5py: ModuleType, file: Any) -> list[str]:
    """Return the names of the first datasets, without following links; "..." if there are more."""
    names: list[str] = []
    groups = deque([("", file)])
    seen = set[int]()
    while groups and len(seen) < _GROUPS:
        before, group = groups.popleft()
        place = h5py.h5o.get_info(group.id).addr
        if place in seen:  # groups may be within themselves
            continue
        seen.add(place)
        for part in group:
            if isinstance(group.get(part, getlink=True), h5py.HardLink):
                member = group[part]
                if isinstance(member, h5py.Group):
                    groups.append((f"{before}{part}/", member))
                elif isinstance(member, h5py.Dataset):
                    names.append(before + part)
            if len(names) > _NAMES:
                return [*names[:_NAMES], "..."]
    return names


class _Hdf5Source(FileSource):
    def __init__(self, file: Any, dataset: Any, dtype: str | None) -> None:
        settings = dataset.id.get_create_plist()
        if dataset.is_virtual or settings.get_external_count():
            raise FileError("a dataset whose elements are in other files", "one with elements of its own")
        if dataset.shape is None:
            raise FileError("a dataset without a shape", "an array")
        check_dtype(dataset.dtype)
        stored = Tensor(dataset.shape, np.dtype(dataset.dtype.newbyteorder("=").str))
        if stored.dtype.itemsize * math.prod(size or 1 for size in stored.shape) > sys.maxsize:
            raise FileError(f"the shape {stored.shape}", "an array that memory can address")
        super().__init__(stored, dtype)
        self._file = file
        self._dataset = dataset
        self._stored = stored.dtype
        # Elements that were never written have no value then: HDF5 leaves them as they are.
        self._has_no_fill = not settings.fill_value_defined() or settings.get_fill_time() == 1
        filters = [settings.get_filter(number) for number in range(settings.get_nfilters())]
        self._gzip_bit = 0  # of the mask of filters that a chunk has skipped
        if filters:
            self._check_filters([(code, text) for code, _, _, text in filters])

    def _check_filters(self, filters: list[tuple[int, bytes]]) -> None:
        codes = [code for code, _ in filters]
        for code, text in filters:
            if code not in (_GZIP, _SHUFFLE, _FLETCHER32, _LZF):
                raise FileError(f"elements behind the filter {code} ({text.decode(errors='replace')})", _FILTERS)
        if len(set(codes)) < len(codes) or {_GZIP, _LZF} <= set(codes):
            raise FileError(f"elements that are packed twice (filters {codes})", _FILTERS)
        self._chunk = math.prod(self._dataset.chunks) * self._dataset.dtype.itemsize
        self._most = self._chunk + self._chunk // 1000 + _BESIDE
        largest = 0

        def look(chunk: Any) -> None:
            nonlocal largest
            largest = max(largest, chunk.size)

        self._dataset.id.chunk_iter(look)
        if largest > self._most:
            raise FileError(f"a chunk of {largest:,} bytes", f"{self._chunk:,}, as its shape says")
        self._gzip_bit = 1 << codes.index(_GZIP) if _GZIP in codes else 0
        self.beside_bytes = 3 * self._chunk + (_EXPANDS * largest if _LZF in codes else 0)

    def close(self) -> None:
        self._file.close()

    def read(self, region: Region | None = None, into: Array | None = None) -> Array:
        if region is None:
            region = tuple(slice(0, size) for size in self.shape)
        array = self._room(tuple(part.stop - part.start for part in region), into)
        if array.size:
            if self._has_no_fill:
                as_bytes(array)[...] = 0
            with _refused():
                if self._gzip_bit:
                    self._check_chunks(region)
                self._dataset.read_direct(array.view(self._stored), source_sel=region)
        return array

    def _check_chunks(self, region: Region) -> None:
        """Refuse chunks that unpack to more than their shape says: HDF5 takes memory for all that they unpack to."""
        chunks, most = self._dataset.chunks, self._most
        axes = (range(part.start // size * size, part.stop, size) for part, size in zip(region, chunks, strict=True))
        for corner in itertools.product(*axes):
            try:
                skipped, packed = self._dataset.id.read_direct_chunk(corner)
            except RuntimeError:  # it was never written; what else is wrong shows when it is read
                continue
            if not skipped & self._gzip_bit and len(zlib.decompressobj().decompress(packed, most + 1)) > most:
                raise FileError(f"a chunk that unpacks to more than {self._chunk:,} bytes", "what its shape says")
