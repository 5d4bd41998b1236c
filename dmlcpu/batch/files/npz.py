"""NumPy's .npz: arrays in a zip archive. Read whole, which checks their sums; written without compression."""

import io
import zipfile
from collections.abc import Mapping
from typing import IO

import numpy as np

from dmlcpu.batch.files.base import FileSource, chosen, refused
from dmlcpu.batch.files.npy import check_size, header_of, read_header
from dmlcpu.batch.files.remote import RemoteFile
from dmlcpu.batch.files.stored import File, Layout, as_bytes, open_file
from dmlcpu.common.arguments import Array
from dmlcpu.common.regions import Region, Tensor

_ALLOWED = "a zip archive of .npy files"
_PIECE = 1 << 20


def open_source(path: str, name: str | None, dtype: str | None) -> FileSource:
    """Open an array of an .npz file."""
    file = open_file(path)
    try:
        with refused(_ALLOWED):
            # Of a remote file each read is a request: they are fewer with a buffer.
            archive = zipfile.ZipFile(io.BufferedReader(file, _PIECE) if isinstance(file, RemoteFile) else file)
            member = archive.getinfo(chosen(name, _names(archive)) + ".npy")
            with archive.open(member) as opened:
                layout = read_header(opened)
            check_size(member.file_size - layout.offset, layout)
            return _NpzSource(file, archive, member, layout, dtype)
    except BaseException:
        file.close()
        raise


def check(tensors: Mapping[str, Tensor]) -> None:
    """Refuse arrays that an .npz file cannot hold: the same as a .npy file."""
    for tensor in tensors.values():
        header_of(*tensor)


def save(file: io.FileIO, arrays: Mapping[str, Array]) -> None:
    """Write what numpy.savez writes, with time stamps that are always the same."""
    buffered = io.BufferedWriter(file)  # ZipFile ignores that a raw file may take a part only
    try:
        with zipfile.ZipFile(buffered, "w") as archive:
            for name, array in arrays.items():
                member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
                member.external_attr = 0o600 << 16
                with archive.open(member, "w", force_zip64=True) as opened:
                    opened.write(header_of(array.shape, array.dtype))
                    opened.write(as_bytes(array).data)
        buffered.detach()
    except BaseException:
        file.close()  # or the buffer would try again to write the rest
        raise


def _names(archive: zipfile.ZipFile) -> list[str]:
    return list(dict.fromkeys(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")))


class _NpzSource(FileSource):
    in_regions = False

    def __init__(
        self, file: File, archive: zipfile.ZipFile, member: zipfile.ZipInfo, layout: Layout, dtype: str | None
    ) -> None:
        super().__init__(layout.tensor, dtype)
        self._file = file
        self._archive = archive
        self._member = member
        self._layout = layout

    def close(self) -> None:
        self._archive.close()
        self._file.close()

    def read(self, region: Region | None = None, into: Array | None = None) -> Array:
        fortran = self._layout.fortran
        whole = self._room(self.shape, into if region is None and not fortran else None)
        with refused(_ALLOWED), self._archive.open(self._member) as member:
            member.read(self._layout.offset)
            _read_into(member, as_bytes(whole))
        if self._layout.swapped:
            whole.view(self._layout.tensor.dtype).byteswap(inplace=True)
        if fortran:
            whole = whole.reshape(self.shape[::-1]).transpose()
        elif region is None:
            return whole
        return self._copied(whole if region is None else whole[region], into)


def _read_into(member: IO[bytes], into: Array) -> None:
    """Read all that is left of a member; at its end its sum is checked."""
    done = 0
    while piece := member.read(_PIECE):
        into[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    if done != into.size:
        raise EOFError(f"it ends after {done:,} bytes of elements")
