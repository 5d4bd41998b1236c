"""HDF5 files: datasets by name, read in regions by h5py. They are not written.

A dataset has all of its elements in its own file: links, external storage and virtual datasets would open others.
"""

import itertools
import math
import os
import zlib
from types import ModuleType
from typing import Any

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.regions import Region, Tensor
from dmlcpu.files.base import (
    MOST_NAMES,
    FileError,
    FileSource,
    Format,
    check_dtype,
    first_of,
    identity_of,
    library,
    pieces,
    refused,
)
from dmlcpu.files.stored import as_bytes, open_file

_ALLOWED = "an HDF5 file"
_SHUFFLE, _GZIP, _FLETCHER32 = _FILTERS = 2, 1, 3  # HDF5's numbers of filters, in their order
_KNOWN = "shuffle, gzip and fletcher32, in this order (h5repack -f SHUF -f GZIP=4 rewrites a file so)"
_ADDED = 64  # bytes that gzip adds to what cannot be packed, at most, with a thousandth of it
_AT_ONCE = 256  # chunks that are read by one call, at most: HDF5 takes 6 KB for each, however small it is
_VISITED = 10_000  # objects that are searched for names, at most


def open_source(path: str, name: str | None, dtype: str | None) -> FileSource:
    """Open a dataset of an HDF5 file."""
    h5py = library("h5py", "hdf5")
    open_file(path).close()  # the system's error, if it cannot be read
    with refused(_ALLOWED):
        file = h5py.File(path, "r", driver="sec2")  # whatever HDF5_DRIVER says: it has the handle of the file
    with OnFailure(file.close), refused(_ALLOWED):
        return _Hdf5Source(file, _dataset(h5py, file, name), dtype)


def _dataset(h5py: ModuleType, file: Any, name: str | None) -> Any:
    """Return the dataset of a name, or the only one of a file."""
    if name is None:
        names = _names(h5py, file)
        if len(names) != 1:
            found = "a file of several arrays and no name" if names else "a file without arrays"
            raise FileError(found, f"a name: {first_of(names)}" if names else "a file that holds one")
        [name] = names
    found = file
    for part in filter(None, name.split("/")):
        link = found.get(part, getlink=True) if isinstance(found, h5py.Group) else None
        if link is None:
            raise FileError(f"the name {name!r}", first_of(_names(h5py, file)))
        if not isinstance(link, h5py.HardLink):
            raise FileError(f"the name {name!r}, which leads through a link", "the name that the dataset itself has")
        found = found[part]
    if not isinstance(found, h5py.Dataset):
        raise FileError(f"the name {name!r}, which is no array", first_of(_names(h5py, file)))
    return found


def _names(h5py: ModuleType, file: Any) -> list[str]:
    """Return the first names of datasets, as h5py visits them: each object once, and through no link."""
    names: list[str] = []
    seen = itertools.count(1)

    def note(name: str, member: Any) -> bool | None:
        if isinstance(member, h5py.Dataset):
            names.append(name)
        return len(names) > MOST_NAMES or next(seen) >= _VISITED or None  # anything but None ends it

    file.visititems(note)
    return names


class _Hdf5Source(FileSource):
    def __init__(self, file: Any, dataset: Any, dtype: str | None) -> None:
        settings = dataset.id.get_create_plist()
        if dataset.is_virtual or settings.get_external_count():
            raise FileError("a dataset whose elements are in other files", "one whose elements are in the file")
        if dataset.shape is None:
            raise FileError("a dataset without a shape", "an array")
        check_dtype(dataset.dtype)
        super().__init__(Tensor(dataset.shape, np.dtype(dataset.dtype.newbyteorder("=").str)), dtype, file)
        self._dataset = dataset
        # Elements that were never written have no value then: HDF5 leaves them as they are.
        self._has_no_fill = not settings.fill_value_defined() or settings.get_fill_time() == 1
        self._gzip_bit = 0  # of the mask of filters that a chunk has skipped
        if dataset.chunks is not None:
            self._check_chunks([settings.get_filter(number) for number in range(settings.get_nfilters())])

    def _check_chunks(self, filters: list[tuple[int, int, tuple[int, ...], bytes]]) -> None:
        """Refuse filters that are not known, and chunks of another size than their shape says.

        HDF5 takes memory for all that a chunk unpacks to, and of a chunk that is too short it returns what follows in
        memory.
        """
        codes = [code for code, *_ in filters]
        for code, *_, name in filters:
            if code not in _FILTERS:
                found = f"elements that pass through the filter {code} ({name.decode(errors='replace')})"
                raise FileError(found, _KNOWN)
        if codes != [code for code in _FILTERS if code in codes]:
            raise FileError(f"the filters {codes}", _KNOWN)
        bits = {code: 1 << number for number, code in enumerate(codes)}  # of the mask of filters that a chunk skips
        self._gzip_bit = bits.get(_GZIP, 0)
        self._chunk = chunk = math.prod(self._dataset.chunks) * self._dataset.id.get_type().get_size()
        self.buffer_bytes = 3 * chunk if codes else 0

        def wrong(found: Any) -> int | None:
            size: int = found.size - (4 if bits.get(_FLETCHER32, 0) & ~found.filter_mask else 0)
            packed = self._gzip_bit & ~found.filter_mask
            return size if (size > chunk + chunk // 1000 + _ADDED if packed else size != chunk) else None

        size = self._dataset.id.chunk_iter(wrong)
        if size is not None:
            raise FileError(f"a chunk of {size:,} bytes", f"{chunk:,}, as its shape says")

    def identity(self) -> dict[str, Any]:
        return identity_of(os.stat(self._dataset.file.id.get_vfd_handle()))

    def missing_chunks(self) -> int:
        written = self._dataset.id
        if self._dataset.chunks is None:
            return int(bool(self.nbytes) and not written.get_storage_size())
        grid = (-(-size // chunk) for size, chunk in zip(self.shape, self._dataset.chunks, strict=True))
        return int(math.prod(grid) - written.get_num_chunks())

    def _fill(self, array: Array, region: Region) -> None:
        if not array.size:
            return
        if self._has_no_fill:
            as_bytes(array)[...] = 0
        with refused(_ALLOWED):
            for piece, place in pieces(region, self._dataset.chunks or self.shape, _AT_ONCE):
                if self._gzip_bit:
                    self._check_unpacked(piece)
                self._dataset.read_direct(array, source_sel=piece, dest_sel=place)

    def _check_unpacked(self, region: Region) -> None:
        """Refuse chunks that do not unpack to what their shape says."""
        axes = [range(part.start // n * n, part.stop, n) for part, n in zip(region, self._dataset.chunks, strict=True)]
        for corner in itertools.product(*axes):
            try:
                skipped, packed = self._dataset.id.read_direct_chunk(corner)
            except RuntimeError:  # it was never written; what else is wrong shows when it is read
                continue
            if skipped & self._gzip_bit:
                continue
            if len(zlib.decompressobj().decompress(packed, self._chunk + 1)) != self._chunk:
                raise FileError(f"a chunk that does not unpack to {self._chunk:,} bytes", "what its shape says")


FORMAT = Format((".h5", ".hdf5"), open_source)
