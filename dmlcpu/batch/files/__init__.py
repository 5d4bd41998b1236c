"""Arrays in files: opened to be read a region at a time, and written so that no half-written file is ever seen.

One module for each format, found by the suffix of the file's name. A missing library is named in the error, with the
extra that brings it. Nothing is ever unpickled.
"""

import importlib
import os
from collections.abc import Mapping
from typing import Any

from dmlcpu.batch.files.base import FileError as FileError, FileSource as FileSource
from dmlcpu.batch.files.identities import Identity as Identity, identity as identity
from dmlcpu.batch.files.remote import is_remote, local, suffix_of
from dmlcpu.batch.files.targets import HANDLES, HeldWriter, Writer as Writer, resolved, write_whole as write_whole
from dmlcpu.common.regions import Tensor

_MODULES = {
    ".npy": "npy",
    ".npz": "npz",
    ".safetensors": "safetensors_files",
    ".zarr": "zarr_folders",
    ".pb": "onnx_tensors",
    ".h5": "hdf5_files",
    ".hdf5": "hdf5_files",
}
SUFFIXES = tuple(_MODULES)
WRITTEN = tuple(suffix for suffix in SUFFIXES if suffix not in (".h5", ".hdf5"))
_REMOTE = (".npy", ".npz", ".zarr")  # formats that are read from remote file systems
ONE_ARRAY = (".npy", ".pb")  # formats that hold one array, without a name
IN_REGIONS = (".npy", ".zarr")  # formats that are written as regions come; the others hold arrays in memory
# How many copies of the arrays are in memory, at most, while a file is written: the libraries' own copies (measured).
HELD = {".npz": 1, ".safetensors": 3, ".pb": 4}


def open_source(path: str | os.PathLike[str], name: str | None = None, dtype: str | None = None) -> FileSource:
    """Open an array in a file. Its header is checked, and that the file is as long as that says.

    `name` says which array, and is needed if the file has several. `dtype` names a type as wide as the stored one, as
    which the elements are seen: .npy files have no name for bfloat16. Raises FileError for a broken file, Python
    objects, structured elements or an unknown array; OSError; ImportError if the format needs another package.
    """
    text = local(os.fspath(path))
    if is_remote(text) and suffix_of(text) not in _REMOTE:
        raise FileError("a remote file", ", ".join(_REMOTE))
    opened: FileSource = _format(text).open_source(text, name, dtype)
    return opened


def create(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], token: str, place: str | None = None) -> Writer:
    """Begin a file of one or several arrays, under a temporary name in the folder of its target.

    The target's folder is made; of a symbolic link, the file that it leads to is replaced. `token`: hexadecimal digits,
    others for each attempt, for the temporary name. `place`: where the target has to be, and no link leads elsewhere.

    Raises FileError if the format cannot hold these arrays or another kind of thing is in the target's place; OSError;
    ImportError if the format needs another package.
    """
    module, target = check_target(place or path, tensors, is_real=place is not None and HANDLES)
    if place is not None and target != place:
        raise FileError(f"a link to {target!r}", f"{place!r}, as when the job was checked")
    if hasattr(module, "save"):
        return HeldWriter(target, tensors, token, module.save)
    writer: Writer = module.create(target, tensors, token)
    return writer


def check_target(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], *, is_real: bool = False
) -> tuple[Any, str]:
    """Return the module of a new file's format, and the file to replace; raise what `create` does before it writes."""
    path = os.fspath(path)
    if is_remote(path):
        raise FileError("a remote file", "a file of this machine")
    module = _format(path)
    if not hasattr(module, "check"):
        raise FileError("an HDF5 file to write", "one to read")
    module.check(tensors)
    return module, resolved(path, folder=path.lower().endswith(".zarr"), is_real=is_real)


def _format(path: str) -> Any:
    """Return a format's module: `open_source`; if it is written, `check`, and `save`, or `create` to write regions."""
    suffix = suffix_of(path)
    if suffix not in _MODULES:
        raise FileError(f"the suffix {suffix!r}" if suffix else "no suffix", ", ".join(SUFFIXES))
    return importlib.import_module(f"dmlcpu.batch.files.{_MODULES[suffix]}")
