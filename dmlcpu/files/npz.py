"""NumPy's .npz: arrays in a zip archive. Read whole, which checks their sums; written without compression."""

import io
import zipfile
from collections.abc import Mapping

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.regions import Region, Tensor
from dmlcpu.files.base import FileSource, Format, chosen, refused
from dmlcpu.files.npy import check_size, header_of, read_header
from dmlcpu.files.remote import RemoteFile
from dmlcpu.files.stored import File, Storage, as_bytes, open_file

_ALLOWED = "a zip archive of .npy files"
_PIECE = 1 << 20


def open_source(path: str, name: str | None, dtype: str | None) -> FileSource:
    """Open an array of an .npz file."""
    file = open_file(path)
    with OnFailure(file.close), refused(_ALLOWED):
        # Each read of a remote file is a request: a buffer makes them fewer.
        archive = zipfile.ZipFile(io.BufferedReader(file, _PIECE) if isinstance(file, RemoteFile) else file)
        # No folder is an array, and none of the files that macOS adds. Of X and X.npy the latter is X.
        listed = [each for each in archive.namelist() if not each.endswith("/") and not each.startswith("__MACOSX/")]
        members = {each.removesuffix(".npy"): each for each in sorted(listed, key=lambda each: each.endswith(".npy"))}
        named = [stem for stem, each in members.items() if each != stem]
        stem = name if name in members else chosen(name, named or list(members))  # some writers give no suffix
        member = archive.getinfo(members[stem])
        with archive.open(member) as opened:
            storage = read_header(opened)
        check_size(member.file_size - storage.offset, storage)
        return _NpzSource(archive, file, member, storage, dtype)


def check(tensors: Mapping[str, Tensor]) -> None:
    """Refuse arrays that an .npz file cannot hold: the same as a .npy file."""
    for tensor in tensors.values():
        header_of(*tensor)


def save(file: io.FileIO, arrays: Mapping[str, Array]) -> None:
    """Write what numpy.savez writes, with time stamps that are always the same."""
    buffered = io.BufferedWriter(file)  # ZipFile ignores that a raw file may take a part only
    # ZipFile seeks back to each header, and the buffer is written at each seek: 20 system calls for two small arrays.
    memory = io.BytesIO() if sum(array.nbytes for array in arrays.values()) < _PIECE else None
    with OnFailure(file.close):  # or the buffer would try again to write the rest
        with zipfile.ZipFile(memory or buffered, "w") as archive:
            for name, array in arrays.items():
                member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
                member.external_attr = 0o600 << 16
                with archive.open(member, "w", force_zip64=True) as opened:
                    opened.write(header_of(array.shape, array.dtype))
                    opened.write(as_bytes(array).data)
        if memory:
            buffered.write(memory.getbuffer())
        buffered.detach()


class _NpzSource(FileSource):
    in_regions = False

    def __init__(
        self, archive: zipfile.ZipFile, file: File, member: zipfile.ZipInfo, storage: Storage, dtype: str | None
    ) -> None:
        super().__init__(storage.tensor, dtype, archive, file)
        self._archive, self._member, self._storage = archive, member, storage

    def _fill(self, array: Array, region: Region) -> None:
        storage = self._storage
        at_once = region == self.whole and not storage.fortran
        found = array if at_once else np.empty(self.shape, array.dtype)
        with refused(_ALLOWED), self._archive.open(self._member) as member:
            member.read(storage.offset)
            into, done = as_bytes(found), 0
            while piece := member.read(_PIECE):  # to the end, where the member's sum is checked
                into[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
                done += len(piece)
            if done != into.size:
                raise EOFError(f"it ends after {done:,} bytes of elements")
        if storage.swapped:
            found.byteswap(inplace=True)
        if not at_once:
            array[...] = (found.reshape(self.shape[::-1]).transpose() if storage.fortran else found)[region]


FORMAT = Format((".npz",), open_source, check, save=save, copies=1, is_remote=True)
