"""zarr folders of version 3: one array, or a group of them. Read and written in regions by the library.

Folders of version 2 are not opened: their filters may unpickle.
"""

import os
from collections.abc import Mapping

import numpy as np

from dmlcpu.common.block_reader import tile_of
from dmlcpu.common.cleanup import OnFailure
from dmlcpu.common.regions import Tensor
from dmlcpu.files.base import ZARR_FOLDER, FileError, FileSource, Format, library
from dmlcpu.files.folders import FolderWriter, sync_within
from dmlcpu.files.remote import is_remote

_CHUNK = 4 << 20
_MARK = "zarr.json"
_TYPES = [np.dtype(code) for code in "?" + np.typecodes["AllInteger"] + "efdFD"]


def open_source(path: str, name: str | None, dtype: str | None) -> FileSource:
    """Open an array of a zarr folder."""
    if not is_remote(path):
        if os.path.exists(path) and not os.path.isdir(path):
            raise FileError("a file", ZARR_FOLDER)
        os.scandir(path).close()  # the system's error, if it cannot be read
    library("zarr", "zarr")
    from dmlcpu.files.bounded_zarr import open_array

    return open_array(path, name, dtype)


def check(tensors: Mapping[str, Tensor]) -> None:
    """Refuse arrays that a zarr folder cannot hold."""
    library("zarr", "zarr")
    for tensor in tensors.values():
        if tensor.dtype not in _TYPES:
            raise FileError(f"elements of {tensor.dtype} for a zarr folder", "the types of numbers that NumPy has")


class _ZarrWriter(FolderWriter):
    """A writer of a zarr folder: an array if there is one, otherwise a group."""

    def __init__(self, target: str, tensors: Mapping[str, Tensor], token: str) -> None:
        from dmlcpu.files.bounded_zarr import ZarrSink

        super().__init__(target, token)
        zarr, group, sinks = library("zarr", "zarr"), len(tensors) != 1, {}
        with OnFailure(self.discard):
            folder = self.inside
            if group:
                zarr.create_group(folder, zarr_format=3)
            for name, (shape, dtype) in tensors.items():
                chunks = tile_of(shape, _CHUNK // dtype.itemsize)  # whole rows, as most regions have, if they fit
                place, within = folder, name if group else None
                if within and name.isidentifier():  # as a member zarr leaves coroutines if it cannot read the group
                    place, within = os.path.join(place, name), None
                settings = {"shape": shape, "dtype": dtype, "chunks": chunks, "zarr_format": 3}
                sinks[name] = ZarrSink(zarr.create_array(place, name=within, **settings))
        self.sinks = sinks
        self._needed = [os.path.join(part, _MARK) for part in (os.curdir, *(tensors if group else ()))]

    def finish(self) -> None:
        sync_within(self._temporary)


FORMAT = Format((".zarr",), open_source, check, _ZarrWriter, is_remote=True, mark=_MARK)
